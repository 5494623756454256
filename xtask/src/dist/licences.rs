//! The licences of what others wrote and the binary contains, which ask to be handed on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::packages::Package;

/// How files begin that tell a licence or whom to name.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

const ABOUT: &str = "\
The berth binary contains the work of others, under licences of their own. What each says of itself comes first, then the texts that lie
in their packages, each once. Rust's standard library is under MIT or Apache-2.0, by the Rust project's developers:
https://github.com/rust-lang/rust. The C library, musl, is under MIT, Copyright (c) 2005-2020 Rich Felker, et al.:
https://git.musl-libc.org/cgit/musl/tree/COPYRIGHT.
";

/// All of them as one text.
pub(crate) fn text(packages: &[Package]) -> Result<String, String> {
    let others: Vec<&Package> =
        packages.iter().filter(|package| package.checksum.is_some()).collect();
    let mut text = format!("{ABOUT}\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &others {
        let name = format!("{} {}", package.name, package.version);
        text += &format!("{name}: {}\n", package.licence);
        let mut files = Vec::new();
        collect(&package.folder, &mut files)?;
        for file in files {
            let bytes = fs::read(&file)
                .map_err(|error| format!("can't read {}: {error}", file.display()))?;
            let licence = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
            texts.entry(licence.trim().to_owned()).or_default().push(name.clone());
        }
    }
    for (licence, mut names) in texts {
        names.dedup();
        text += &format!("\n{}\n{}:\n\n{licence}\n", "=".repeat(100), names.join(", "));
    }
    Ok(text)
}

/// The files in a package's folder that tell about a licence, of what the package has copied from
/// others too, sorted.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| format!("can't list {}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        let name =
            path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        if path.is_dir() {
            collect(&path, files)?;
        } else if NAMES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".rs") {
            files.push(path);
        }
    }
    Ok(())
}
