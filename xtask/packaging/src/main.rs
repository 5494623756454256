//! Makes the packages of a release, for `cargo xtask dist`:
//! `toolhold-packaging VERSION MACHINE TIME FOLDER-OF-THE-ARCHIVE OUTPUT`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use toolhold_packaging::{Architecture, Package, Release, packages};

/// The files of the archive that have licences.
const LICENCES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENSES"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let [version, machine, time, archive, output] = arguments else {
        return Err("usage: toolhold-packaging VERSION MACHINE TIME ARCHIVE OUTPUT".to_owned());
    };
    let read = |path: &str| {
        let path = Path::new(archive).join(path);
        fs::read(&path).map_err(|error| format!("can't read {}: {error}", path.display()))
    };
    let documents = "share/doc/toolhold";
    let licences =
        LICENCES.iter().map(|name| Ok(((*name).to_owned(), read(&format!("{documents}/{name}"))?)));
    let release = Release {
        version: version.clone(),
        architecture: Architecture::from_name(machine)
            .ok_or_else(|| format!("there are no packages for {machine}"))?,
        program: read("bin/toolhold")?,
        parts: parts(&Path::new(archive).join("lib/toolhold/parts"))?,
        readme: read(&format!("{documents}/README.md"))?,
        licences: licences.collect::<Result<_, String>>()?,
        sbom: read(&format!("{documents}/sbom.cdx.json"))?,
        time: time.parse().map_err(|_| format!("{time} isn't a time in seconds"))?,
        compression: 9,
    };
    for Package { file_name, bytes } in packages(&release).map_err(|error| error.to_string())? {
        let path = Path::new(output).join(file_name);
        fs::write(&path, bytes)
            .map_err(|error| format!("can't write {}: {error}", path.display()))?;
    }
    Ok(())
}

/// The parts of the archive, sorted.
fn parts(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let failed = |error: std::io::Error| format!("can't read {}: {error}", folder.display());
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        parts.push((name, fs::read(&path).map_err(failed)?));
    }
    parts.sort();
    Ok(parts)
}
