//! Which packages are in the binary, as cargo tells.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{printed, read};
use crate::cargo::{self, WASM};
use crate::tidy::manifest::Manifest;

/// The plugins that the binary carries: those that `host/cli/build.rs` names.
const CARRIED: [&str; 5] = ["file", "filters", "hostile", "shell", "web"];

/// A package whose code is in the binary, in the host or in a plugin that it carries.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// As SPDX writes it.
    pub(crate) licence: String,
    /// The SHA-256 of the package as the registry has it. A package of this repository has none.
    pub(crate) checksum: Option<String>,
    /// Where its sources lie.
    pub(crate) folder: PathBuf,
}

/// Every package in the binary for `target`, once, by name and version.
pub(crate) fn in_the_binary(target: &str) -> Result<Vec<Package>, String> {
    let mut found = BTreeSet::new();
    found.extend(of_workspace(cargo::root(), target, &["berth-cli"])?);
    found.extend(of_workspace(&cargo::plugins(), WASM, &CARRIED)?);
    Ok(found.into_iter().collect())
}

/// Where the sources of every package lie that a workspace may need for `target`.
pub(crate) fn folders(workspace: &Path, target: &str) -> Result<Vec<PathBuf>, String> {
    let mut metadata = cargo::cargo(workspace, "metadata");
    let json =
        printed(metadata.args(["--locked", "--format-version", "1", "--filter-platform", target]))?;
    // Strings in JSON, and the one key is nobody else's: what it takes to read them all is more
    // than what is needed here.
    let manifests =
        json.split(r#""manifest_path":""#).skip(1).filter_map(|rest| rest.split('"').next());
    Ok(manifests.filter_map(|path| Some(Path::new(path).parent()?.to_owned())).collect())
}

fn of_workspace(workspace: &Path, target: &str, roots: &[&str]) -> Result<Vec<Package>, String> {
    let mut tree = cargo::cargo(workspace, "tree");
    // What runs while others are compiled is in no binary.
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
    let folders = by_name(&folders(workspace, target)?);
    let printed = printed(&mut tree)?;
    let lines: BTreeSet<(&str, &str, &str)> = printed.lines().filter_map(line).collect();
    let package = |(name, version, licence): (&str, &str, &str)| {
        let key = (name.to_owned(), version.to_owned());
        let folder = folders
            .get(&key)
            .ok_or(format!("cargo doesn't tell where the sources of {name} {version} are"))?
            .clone();
        let checksum = checksums.get(&key).cloned();
        Ok(Package { name: key.0, version: key.1, licence: licence.to_owned(), checksum, folder })
    };
    lines.into_iter().map(package).collect()
}

/// Name, version and licence from `name v1.2.3 (where)|licence (*)`.
fn line(line: &str) -> Option<(&str, &str, &str)> {
    let (package, licence) = line.split_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some((name, version, licence.trim_end_matches(" (*)")))
}

/// The checksums in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let manifest = Manifest::parse(package);
        let value = |key| manifest.string("", key);
        if let (Some(name), Some(version), Some(checksum)) =
            (value("name"), value("version"), value("checksum"))
        {
            found.insert((name, version), checksum);
        }
    }
    found
}

/// The folders by the name and version in their manifests, which may come from a workspace's.
fn by_name(folders: &[PathBuf]) -> BTreeMap<(String, String), PathBuf> {
    let manifest = |folder: &Path| {
        fs::read_to_string(folder.join("Cargo.toml")).map(|text| Manifest::parse(&text)).ok()
    };
    let inherited = |folder: &Path| {
        folder
            .ancestors()
            .skip(1)
            .find_map(|above| manifest(above)?.string("workspace.package", "version"))
    };
    folders
        .iter()
        .filter_map(|folder| {
            let manifest = manifest(folder)?;
            let version = manifest.string("package", "version").or_else(|| inherited(folder))?;
            Some(((manifest.string("package", "name")?, version), folder.clone()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{checksums, line};

    #[test]
    fn lines_of_the_tree_are_read() {
        assert_eq!(
            line("serde v1.0.2|MIT OR Apache-2.0 (*)"),
            Some(("serde", "1.0.2", "MIT OR Apache-2.0"))
        );
        assert_eq!(
            line("berth-cli v0.1.0 (/somewhere/host/cli)|MIT"),
            Some(("berth-cli", "0.1.0", "MIT"))
        );
        assert_eq!(line("wasip2 v2.0.1+wasi-0.2.12|"), Some(("wasip2", "2.0.1+wasi-0.2.12", "")));
        assert_eq!(line(""), None);
    }

    #[test]
    fn checksums_are_found_where_there_are_some() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let found: Vec<_> = checksums(lock).into_iter().collect();
        assert_eq!(found, [(("a".to_owned(), "1.0.0".to_owned()), "ab".to_owned())]);
    }
}
