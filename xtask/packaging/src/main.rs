//! Makes the files of a release, for `cargo xtask dist` and `cargo xtask release`:
//!
//! * `toolhold-packaging pack VERSION MACHINE TIME REPOSITORY SOURCES ARCHIVE OUTPUT` makes the
//!   packages for one kind of machine. REPOSITORY is empty if there is none.
//! * `toolhold-packaging release VERSION REPOSITORY KEY INPUT OUTPUT` brings the packages of all
//!   kinds of machines together, each in a folder in INPUT. KEY is the file of a public key.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use toolhold_packaging::{Architecture, Package, Publication, Release, Repository, packages};

/// The files of the archive that have licences.
const LICENCES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENSES"];

/// Folders of the SDKs that are left out, because tools have made them, or authors don't need them.
const LEFT_OUT: [&str; 3] = ["__pycache__", "node_modules", "tests"];

/// Files, by their paths.
type Files = Vec<(String, Vec<u8>)>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match *arguments {
        ["pack", version, machine, time, repository, sources, archive, output] => {
            let paths = [sources, archive, output].map(Path::new);
            pack(version, machine, time, repository, paths)
        }
        ["release", version, repository, key, input, output] => {
            release(version, repository, [key, input, output].map(Path::new))
        }
        _ => Err("usage: toolhold-packaging pack … | release …".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pack(
    version: &str,
    machine: &str,
    time: &str,
    repository: &str,
    [sources, archive, output]: [&Path; 3],
) -> Result<(), String> {
    let documents = archive.join("share/doc/toolhold");
    let licences =
        LICENCES.iter().map(|name| Ok(((*name).to_owned(), read(&documents.join(name))?)));
    let parts = files(&archive.join("lib/toolhold/parts"), "")?;
    let release = Release {
        version: version.to_owned(),
        architecture: Architecture::from_name(machine)
            .ok_or_else(|| format!("there are no packages for {machine}"))?,
        program: read(&archive.join("bin/toolhold"))?,
        parts: parts.into_iter().map(|(path, wasm)| (path.replace(".wasm", ""), wasm)).collect(),
        readme: read(&documents.join("README.md"))?,
        licences: licences.collect::<Result<_, String>>()?,
        sbom: read(&documents.join("sbom.cdx.json"))?,
        share: files(&archive.join("share"), "share/")?,
        sdk_python: files(&sources.join("plugins/sdk-python/toolhold"), "toolhold/")?,
        sdk_javascript: files(&sources.join("plugins/sdk-javascript"), "")?,
        repository: match repository {
            "" => None,
            url => Some(repository_at(url)?),
        },
        time: time.parse().map_err(|_| format!("{time} isn't a time in seconds"))?,
        compression: 9,
    };
    write(output, packages(&release).map_err(|error| error.to_string())?)
}

fn release(
    version: &str,
    repository: &str,
    [key, input, output]: [&Path; 3],
) -> Result<(), String> {
    let mut all = BTreeMap::new();
    for (path, bytes) in files(input, "")? {
        let Some((_, name)) = path.split_once('/') else {
            return Err(format!("{path} isn't in a folder for a kind of machine"));
        };
        if name == "SHA256SUMS" {
            continue;
        }
        // A package that fits all kinds of machines was made on each of them, so its copies have to
        // be the same.
        if all.get(name).is_some_and(|other| *other != bytes) {
            return Err(format!("{name} isn't the same for all kinds of machines"));
        }
        all.insert(name.to_owned(), bytes);
    }
    let key = String::from_utf8_lossy(&read(key)?).trim_end().to_owned();
    let key = key.lines().last().unwrap_or_default();
    let is_key =
        key.len() == 56 && key.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c));
    if !is_key {
        return Err("the last line of the public key isn't one of minisign".to_owned());
    }
    let publication = Publication {
        version: version.to_owned(),
        repository: repository_at(repository)?,
        key: key.to_owned(),
        files: all,
    };
    let further = publication.further()?;
    let packages = publication.files.into_iter();
    write(output, packages.map(|(file_name, bytes)| Package { file_name, bytes }).collect())?;
    write(output, further)
}

fn repository_at(url: &str) -> Result<Repository, String> {
    Repository::from_url(url)
        .ok_or_else(|| format!("the repository isn't https://github.com/OWNER/NAME: {url}"))
}

/// The files in a folder and in its folders, sorted.
fn files(folder: &Path, prefix: &str) -> Result<Files, String> {
    let failed = |error: std::io::Error| format!("can't read {}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if LEFT_OUT.contains(&name.as_str()) {
            continue;
        } else if entry.path().is_dir() {
            found.extend(files(&entry.path(), &format!("{path}/"))?);
        } else {
            found.push((path, read(&entry.path())?));
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}

fn write(folder: &Path, packages: Vec<Package>) -> Result<(), String> {
    for Package { file_name, bytes } in packages {
        let path = folder.join(file_name);
        fs::write(&path, bytes)
            .map_err(|error| format!("can't write {}: {error}", path.display()))?;
    }
    Ok(())
}
