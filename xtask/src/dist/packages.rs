//! Lists the packages in the binary, with the help of cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{read, stdout_of};
use crate::cargo::{self, WASM};
use crate::tidy::manifest::Manifest;

/// The plugins in the binary: those in `host/core/builtins/build.rs`.
const BUILT_IN: [&str; 9] =
    ["code", "diagnostics", "file", "filters", "hostile", "memory", "scheduler", "shell", "web"];

/// A package whose code is in the binary: in the host or in a built-in plugin.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) licence: String,
    /// The SHA-256 of the package in the registry. `None` if the package is part of this
    /// repository.
    pub(crate) checksum: Option<String>,
    /// The folder of its sources.
    pub(crate) folder: PathBuf,
}

/// Every package in the binary for `target` and in the parts beside it, once for each name and
/// version.
pub(crate) fn in_binary(target: &str) -> Result<Vec<Package>, String> {
    let mut found = BTreeSet::new();
    found.extend(workspace_packages(cargo::root(), target, &["toolhold-cli"])?);
    found.extend(workspace_packages(&cargo::plugins(), WASM, &BUILT_IN)?);
    found.extend(workspace_packages(&cargo::plugins().join("grammars"), WASM, &["grammars"])?);
    Ok(found.into_iter().collect())
}

/// The source folders of every package that a workspace may need for `target`.
pub(crate) fn folders(workspace: &Path, target: &str) -> Result<Vec<PathBuf>, String> {
    let mut metadata = cargo::cargo(workspace, "metadata");
    let json = stdout_of(metadata.args([
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        target,
    ]))?;
    // This needs no JSON parser, because only the strings after this key are needed, and no other
    // object has such a key.
    let manifests =
        json.split(r#""manifest_path":""#).skip(1).filter_map(|rest| rest.split('"').next());
    Ok(manifests.filter_map(|path| Some(Path::new(path).parent()?.to_owned())).collect())
}

fn workspace_packages(
    workspace: &Path,
    target: &str,
    roots: &[&str],
) -> Result<Vec<Package>, String> {
    let mut tree = cargo::cargo(workspace, "tree");
    // Packages that only run during the build are not in the binary.
    tree.args([
        "--locked",
        "--edges",
        "normal,no-proc-macro",
        "--target",
        target,
        "--prefix",
        "none",
        "--format",
        "{p}|{l}",
    ]);
    for root in roots {
        tree.args(["--package", root]);
    }
    let checksums = checksums(&String::from_utf8_lossy(&read(&workspace.join("Cargo.lock"))?));
    let folders = folders_by_name(&folders(workspace, target)?);
    let output = stdout_of(&mut tree)?;
    let lines: BTreeSet<(&str, &str, &str)> = output.lines().filter_map(parse_line).collect();
    let mut packages = Vec::new();
    for (name, version, licence) in lines {
        let key = (name.to_owned(), version.to_owned());
        let folder = folders
            .get(&key)
            .ok_or(format!("cargo doesn't name the folder of {name} {version}"))?
            .clone();
        let checksum = checksums.get(&key).cloned();
        let licence = licence.to_owned();
        packages.push(Package { name: key.0, version: key.1, licence, checksum, folder });
    }
    Ok(packages)
}

/// Parses the name, version and licence from `name v1.2.3 (where)|licence (*)`.
fn parse_line(line: &str) -> Option<(&str, &str, &str)> {
    let (package, licence) = line.split_once('|')?;
    let mut words = package.split(' ');
    let name = words.next()?;
    let version = words.next()?.strip_prefix('v')?;
    Some((name, version, licence.trim_end_matches(" (*)")))
}

/// The checksums in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let manifest = Manifest::parse(package);
        if let Some(name) = manifest.string("", "name")
            && let Some(version) = manifest.string("", "version")
            && let Some(checksum) = manifest.string("", "checksum")
        {
            found.insert((name, version), checksum);
        }
    }
    found
}

/// The folders, by the name and version in their manifests. A version may come from a workspace's
/// manifest.
fn folders_by_name(folders: &[PathBuf]) -> BTreeMap<(String, String), PathBuf> {
    folders
        .iter()
        .filter_map(|folder| {
            let manifest = manifest(folder)?;
            let version =
                manifest.string("package", "version").or_else(|| inherited_version(folder))?;
            Some(((manifest.string("package", "name")?, version), folder.clone()))
        })
        .collect()
}

fn manifest(folder: &Path) -> Option<Manifest> {
    fs::read_to_string(folder.join("Cargo.toml")).map(|text| Manifest::parse(&text)).ok()
}

/// The version in the manifest of the workspace around a package.
fn inherited_version(folder: &Path) -> Option<String> {
    let mut above = folder.ancestors().skip(1);
    above.find_map(|folder| manifest(folder)?.string("workspace.package", "version"))
}

#[cfg(test)]
mod tests {
    use super::{checksums, parse_line};

    #[test]
    fn lines_of_cargo_tree_are_parsed() {
        assert_eq!(
            parse_line("serde v1.0.2|MIT OR Apache-2.0 (*)"),
            Some(("serde", "1.0.2", "MIT OR Apache-2.0"))
        );
        assert_eq!(
            parse_line("toolhold v0.1.0 (/somewhere/host/cli)|MIT"),
            Some(("toolhold", "0.1.0", "MIT"))
        );
        assert_eq!(
            parse_line("wasip2 v2.0.1+wasi-0.2.12|"),
            Some(("wasip2", "2.0.1+wasi-0.2.12", ""))
        );
        assert_eq!(parse_line(""), None);
    }

    #[test]
    fn checksums_of_lock_file_are_found() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let found: Vec<_> = checksums(lock).into_iter().collect();
        assert_eq!(found, [(("a".to_owned(), "1.0.0".to_owned()), "ab".to_owned())]);
    }
}
