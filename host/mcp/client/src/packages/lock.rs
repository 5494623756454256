//! Reads the packages of a server's lock.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhold_core::text::{cut, neutral_line};

use super::line::Manager;

/// Returns the versions of a lock's packages. The name of an npm package is its path below
/// `node_modules`.
pub(crate) fn packages(lock: &str) -> BTreeMap<String, String> {
    let manager = if lock.trim_start().starts_with('{') { Manager::Npm } else { Manager::Uv };
    let packages = locked_packages(manager, lock).into_iter();
    packages.map(|package| (package.name, package.version)).collect()
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum LockError {
    #[error("the package manager named no package")]
    Empty,
    #[error("no digest of an archive is known for `{0}`")]
    Unpinned(String),
}

/// Checks that a lock file pins each package by the digest of an archive.
pub(super) fn check(manager: Manager, lock: &str) -> Result<(), LockError> {
    let packages = locked_packages(manager, lock);
    if packages.is_empty() {
        return Err(LockError::Empty);
    }
    for package in packages {
        if !package.is_pinned {
            return Err(LockError::Unpinned(package.name));
        }
    }
    Ok(())
}

struct LockedPackage {
    name: String,
    version: String,
    is_pinned: bool,
}

impl LockedPackage {
    fn new(name: &str, version: &str, is_pinned: bool) -> Self {
        let name = neutral_line(cut(name, 128));
        let version = neutral_line(cut(version, 128));
        Self { name, version, is_pinned }
    }
}

fn locked_packages(manager: Manager, lock: &str) -> Vec<LockedPackage> {
    match manager {
        Manager::Npm => npm_packages(lock),
        Manager::Uv => uv_packages(lock),
    }
}

/// Returns the packages in npm's lock file.
fn npm_packages(lock_file: &str) -> Vec<LockedPackage> {
    // An invalid lock file has no packages, which `check` refuses.
    let lock: Value = serde_json::from_str(lock_file).unwrap_or_default();
    let Some(entries) = lock["packages"].as_object() else { return Vec::new() };
    let mut packages = Vec::new();
    for (path, package) in entries {
        // The empty path is the project itself.
        if path.is_empty() {
            continue;
        }
        let name = path.strip_prefix("node_modules/").unwrap_or(path);
        let version = package["version"].as_str().unwrap_or_default();
        let integrity = package["integrity"].as_str().unwrap_or_default();
        // A link leads to a folder, which has no digest, so a linked package isn't pinned.
        let is_link = package["link"] == true;
        // A bundled package needs no digest of its own, because it is part of the archive of
        // another package, which has a digest.
        let is_bundled = package["inBundle"] == true;
        let has_digest = is_bundled || integrity.split_whitespace().any(is_strong);
        let is_pinned = has_digest && !is_link;
        packages.push(LockedPackage::new(name, version, is_pinned));
    }
    packages
}

/// Checks for a collision-resistant digest. The SHA-1 digests of old packages don't count.
fn is_strong(digest: &str) -> bool {
    ["sha256-", "sha384-", "sha512-"].iter().any(|kind| digest.starts_with(kind))
}

/// Returns the packages in uv's lock file, which is a list of requirements with hashes.
fn uv_packages(lock: &str) -> Vec<LockedPackage> {
    let mut packages: Vec<LockedPackage> = Vec::new();
    for line in lock.lines() {
        let text = line.trim().trim_end_matches('\\').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        // The lines of a package's hashes are indented and follow the line of the package.
        if line.starts_with(' ')
            && let Some(package) = packages.last_mut()
        {
            if text.starts_with("--hash=sha256:") {
                package.is_pinned = true;
            }
            continue;
        }

        let requirement = match text.split_once(';') {
            Some((requirement, _condition)) => requirement,
            None => text,
        };
        let (name, version) = match requirement.split_once("==") {
            Some((name, version)) => (name.trim(), version.trim()),
            None => (requirement.trim(), ""),
        };
        // The hashes follow in the next lines.
        let is_pinned = false;
        packages.push(LockedPackage::new(name, version, is_pinned));
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_without_a_digest_are_found() {
        let npm = r#"{"packages":{"":{"dependencies":{"a":"1"}},
            "node_modules/a":{"version":"1.2.3","integrity":"sha512-x"},
            "node_modules/a/node_modules/b":{"version":"2.0.0","integrity":"sha512-y"}}}"#;
        assert_eq!(check(Manager::Npm, npm), Ok(()));
        let all = packages(npm);
        assert_eq!(all["a"], "1.2.3");
        assert_eq!(all["a/node_modules/b"], "2.0.0");
        for worse in [
            npm.replace(r#","integrity":"sha512-y""#, ""),
            npm.replace(r#""integrity":"sha512-y""#, r#""integrity":"sha512-y","link":true"#),
            npm.replace("sha512-y", "sha1-y"),
            "{}".to_owned(),
            "[".to_owned(),
        ] {
            assert!(check(Manager::Npm, &worse).is_err(), "{worse}");
        }
        let uv = "a==1.2 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n    # via x\nb==2 ; sys_platform == 'linux' \\\n    --hash=sha256:02\n";
        assert_eq!(check(Manager::Uv, uv), Ok(()));
        let all = packages(uv);
        assert_eq!((all.len(), &*all["a"], &*all["b"]), (2, "1.2", "2"));
        assert!(check(Manager::Uv, "a==1.2\nb==2 \\\n    --hash=sha256:02\n").is_err());
        assert!(check(Manager::Uv, "").is_err());
    }
}
