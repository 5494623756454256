//! Reads the packages of a server's lock, and refuses one that isn't pinned by digest.

use std::collections::BTreeMap;

use serde_json::Value;
use toolhold_core::text::{cut, neutral_line};

use super::line::Manager;

/// Each package of a lock with its version, by its name or, with npm, its place.
pub(crate) fn packages(lock: &str) -> BTreeMap<String, String> {
    let manager = if lock.trim_start().starts_with('{') { Manager::Npm } else { Manager::Uv };
    match manager {
        Manager::Npm => {
            of_npm(lock).into_iter().map(|(name, version, _)| (name, version)).collect()
        }
        Manager::Uv => of_uv(lock).map(|(name, version, _)| (name, version)).collect(),
    }
}

/// The gap in a lock that doesn't pin everything.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum LockError {
    #[error("the package manager named no package")]
    Empty,
    #[error("no digest of an archive is known for `{0}`")]
    Unpinned(String),
}

/// Checks that a lock pins everything that it names by the digest of an archive.
///
/// # Errors
///
/// The package that isn't pinned, or what the text lacks.
pub(super) fn check(manager: Manager, lock: &str) -> Result<(), LockError> {
    let all: Vec<(String, String, bool)> = match manager {
        Manager::Npm => of_npm(lock),
        Manager::Uv => of_uv(lock).collect(),
    };
    if all.is_empty() {
        return Err(LockError::Empty);
    }
    match all.into_iter().find(|(_, _, pinned)| !pinned) {
        Some((name, _, _)) => Err(LockError::Unpinned(name)),
        None => Ok(()),
    }
}

fn shown(text: &str) -> String {
    neutral_line(cut(text, 128))
}

/// ServerAddress below `node_modules`, version, and whether its archive's digest is there.
fn of_npm(lock: &str) -> Vec<(String, String, bool)> {
    let lock: Value = serde_json::from_str(lock).unwrap_or_default();
    let packages = lock["packages"].as_object().into_iter().flatten();
    let each = packages.filter(|(place, _)| !place.is_empty()).map(|(place, package)| {
        let name = place.strip_prefix("node_modules/").unwrap_or(place);
        let version = package["version"].as_str().unwrap_or_default();
        let integrity = package["integrity"].as_str().unwrap_or_default();
        let is_pinned = package["link"] != true
            && (integrity.split_whitespace().any(is_strong) || package["inBundle"] == true);
        (shown(name), shown(version), is_pinned)
    });
    each.collect()
}

/// Whether nobody can make another archive with this digest. Old packages have one of SHA-1.
fn is_strong(digest: &str) -> bool {
    ["sha256-", "sha384-", "sha512-"].iter().any(|kind| digest.starts_with(kind))
}

/// Name, version, and whether its hashes are there.
fn of_uv(lock: &str) -> impl Iterator<Item = (String, String, bool)> {
    // A package begins at the first column; its hashes follow on lines of their own.
    let mut packages: Vec<(String, String, bool)> = Vec::new();
    for line in lock.lines() {
        let text = line.trim().trim_end_matches('\\').trim();
        match packages.last_mut() {
            _ if text.is_empty() || text.starts_with('#') => {}
            Some((_, _, is_pinned)) if line.starts_with(' ') => {
                *is_pinned |= text.starts_with("--hash=sha256:");
            }
            _ => {
                let requirement = text.split(';').next().unwrap_or_default();
                let (name, version) = requirement.split_once("==").unwrap_or((requirement, ""));
                packages.push((shown(name.trim()), shown(version.trim()), false));
            }
        }
    }
    packages.into_iter()
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
