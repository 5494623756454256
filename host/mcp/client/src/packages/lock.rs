//! Reads the packages of a server's lock, and refuses packages that aren't pinned by digest.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhold_core::text::{cut, neutral_line};

use super::line::Manager;

/// Returns the version of each package of a lock, by the package's name. With npm, the name is the
/// path below `node_modules`.
pub(crate) fn packages(lock: &str) -> BTreeMap<String, String> {
    let manager = if lock.trim_start().starts_with('{') { Manager::Npm } else { Manager::Uv };
    let packages = locked_packages(manager, lock).into_iter();
    packages.map(|package| (package.name, package.version)).collect()
}

/// The gap in a lock that doesn't pin everything.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum LockError {
    #[error("the package manager named no package")]
    Empty,
    #[error("no digest of an archive is known for `{0}`")]
    Unpinned(String),
}

/// Checks that a lock pins each of its packages by the digest of an archive.
///
/// # Errors
///
/// Returns an error if a package isn't pinned, or if the lock has no packages.
pub(super) fn check(manager: Manager, lock: &str) -> Result<(), LockError> {
    let packages = locked_packages(manager, lock);
    if packages.is_empty() {
        return Err(LockError::Empty);
    }
    match packages.into_iter().find(|package| !package.is_pinned) {
        Some(package) => Err(LockError::Unpinned(package.name)),
        None => Ok(()),
    }
}

/// A package of a lock.
struct LockedPackage {
    name: String,
    version: String,
    /// Whether the lock has the digest of the package's archive.
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

fn npm_packages(lock: &str) -> Vec<LockedPackage> {
    let lock: Value = serde_json::from_str(lock).unwrap_or_default();
    let mut packages = Vec::new();
    for (path, package) in lock["packages"].as_object().into_iter().flatten() {
        // The empty path is the server's own folder.
        if path.is_empty() {
            continue;
        }
        let name = path.strip_prefix("node_modules/").unwrap_or(path);
        let version = package["version"].as_str().unwrap_or_default();
        let integrity = package["integrity"].as_str().unwrap_or_default();
        let is_link = package["link"] == true;
        // The archive of another package contains a bundled package.
        let is_bundled = package["inBundle"] == true;
        let has_digest = is_bundled || integrity.split_whitespace().any(is_strong);
        packages.push(LockedPackage::new(name, version, has_digest && !is_link));
    }
    packages
}

/// Checks whether a digest is collision-resistant. Old packages have SHA-1 digests, which are not.
fn is_strong(digest: &str) -> bool {
    ["sha256-", "sha384-", "sha512-"].iter().any(|kind| digest.starts_with(kind))
}

fn uv_packages(lock: &str) -> Vec<LockedPackage> {
    // A package starts in the first column. The package's hashes follow on separate lines.
    let mut packages: Vec<LockedPackage> = Vec::new();
    for line in lock.lines() {
        let text = line.trim().trim_end_matches('\\').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match packages.last_mut() {
            Some(package) if line.starts_with(' ') => {
                if text.starts_with("--hash=sha256:") {
                    package.is_pinned = true;
                }
            }
            _ => {
                let requirement = text.split(';').next().unwrap_or_default();
                let (name, version) = requirement.split_once("==").unwrap_or((requirement, ""));
                packages.push(LockedPackage::new(name.trim(), version.trim(), false));
            }
        }
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
