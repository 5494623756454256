//! The licences of third-party code in the binary, which have to be distributed with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::packages::Package;

/// The first words in the names of files with a licence or the authors.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

const ABOUT: &str = "\
The toolhold binary contains third-party packages under their own licences. First comes a list of the packages with the licence that each
declares; then the texts in the packages, each once. Rust's standard library is under MIT or Apache-2.0, by the Rust project's developers:
https://github.com/rust-lang/rust. The C library, musl, is under MIT, Copyright (c) 2005-2020 Rich Felker, et al.:
https://git.musl-libc.org/cgit/musl/tree/COPYRIGHT.
";

/// The licences of all third-party packages, as one text.
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

/// Collects the files with licences in a package's folder, sorted. Its subfolders may have licences
/// of code that the package has copied.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("can't list {}: {error}", folder.display()))?;
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
