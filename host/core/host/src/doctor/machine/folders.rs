//! `toolhold doctor`: checks whether Toolhold's own folders are private, writable and not full.

use std::path::Path;

use toolhold_catalogue::plugins::compiled_folder;
use toolhold_config::{Config, Folders};
use toolhold_contract::text::{counted, shell_word};
use toolhold_data_dir::folder::{self, Folder, FolderStatus};

use crate::doctor::machine::Finding;
use crate::doctor::machine::finding::size;

/// Number of bytes that compiled plugins may need soon.
const LITTLE_SPACE: u64 = 256 << 20;

/// With fewer free bytes, an audit entry may fail.
const NO_SPACE: u64 = 64 << 10;

const ROOT: u32 = 0;

/// The mode bits that let the group or other users write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The mode bits that give the group or other users any access.
const ACCESSIBLE_BY_OTHERS: u32 = 0o077;

/// The purpose of a folder, which determines how private the folder must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A user with write access could grant anything. All users may read the folder.
    Config,
    /// A user with write access could forge state, and a user with read access sees private data.
    Data,
    /// A user with write access could run code, so Toolhold then ignores the folder.
    Cache,
}

/// Checks Toolhold's own folders.
pub fn findings(folders: &Folders, loaded: &Config) -> Vec<Finding> {
    let compiled = compiled_folder(folders);
    let directory = std::env::current_dir().unwrap_or_default();
    let plugins = loaded.plugin_folder(folders, &directory);
    let mut findings = vec![
        folder("configuration", &folders.config, Purpose::Config),
        folder("data", &folders.data, Purpose::Data),
        folder("plugins", &plugins, Purpose::Config),
        folder("cache", &folders.cache, Purpose::Cache),
    ];
    if !matches!(folder::look_at(&compiled), Ok(Folder::Missing { .. })) {
        findings.push(folder("cache of compiled code", &compiled, Purpose::Cache));
    }
    if let Ok(usage) = folder::usage(&compiled) {
        findings.push(Finding::ok(
            "in the cache",
            format!("{}, {}", counted(usage.files, "file"), size(usage.bytes)),
        ));
    }
    findings
}

fn folder(name: &str, path: &Path, purpose: Purpose) -> Finding {
    let shown = path.display();
    match folder::look_at(path) {
        Err(error) => unusable(
            name,
            purpose,
            format!("{shown} can't be examined: {error}"),
            format!("ls -ld {}", quoted(path)),
        ),
        Ok(Folder::NoFolder) => unusable(
            name,
            purpose,
            format!("{shown} is not a folder"),
            format!("rm {0} && mkdir -m 700 {0}", quoted(path)),
        ),
        // A link to a private folder is accepted, except for compiled code.
        Ok(Folder::Link) if path.ends_with("compiled") => unusable(
            name,
            purpose,
            format!("{shown} is a link"),
            format!("rm {0} && mkdir -m 700 {0}", quoted(path)),
        ),
        Ok(Folder::Link) => match path.canonicalize() {
            Ok(target) => folder(name, &target, purpose),
            Err(error) => unusable(
                name,
                purpose,
                format!("{shown} is a broken link: {error}"),
                format!("rm {0} && mkdir -m 700 {0}", quoted(path)),
            ),
        },
        Ok(Folder::Missing { writable: true, .. }) => {
            Finding::ok(name, format!("{shown}: doesn't exist yet"))
        }
        Ok(Folder::Missing { above, .. }) if purpose == Purpose::Config => Finding::ok(
            name,
            format!("{shown}: doesn't exist, and {} isn't writable", above.display()),
        ),
        Ok(Folder::Missing { above, .. }) => {
            let found = format!("{shown} doesn't exist, and {} isn't writable", above.display());
            Finding::warning(
                name,
                found,
                format!("as the owner of {}: mkdir -p -m 700 {}", above.display(), quoted(path)),
            )
        }
        Ok(Folder::There(there)) => check_existing(name, path, purpose, &there),
    }
}

/// Creates the finding about a folder that can't be used. For the cache, the finding is only a
/// warning, because Toolhold also works without a cache.
fn unusable(name: &str, purpose: Purpose, found: String, fix: String) -> Finding {
    match purpose {
        Purpose::Cache => {
            Finding::warning(name, format!("{found}, so compiled code is not stored"), fix)
        }
        _ => Finding::failure(name, found, fix),
    }
}

/// Checks the owner and the mode of an existing folder.
fn check_existing(name: &str, path: &Path, purpose: Purpose, status: &FolderStatus) -> Finding {
    let shown = path.display();
    let quoted_path = quoted(path);
    let mode = status.mode;
    let user = rustix::process::geteuid().as_raw();
    // The folder of the configuration may belong to an administrator.
    let is_of_administrator = purpose == Purpose::Config && status.owner == ROOT;
    if status.owner != user && !is_of_administrator {
        return unusable(
            name,
            purpose,
            format!("{shown} belongs to user {}, not to you", status.owner),
            format!("chown {user} {quoted_path}"),
        );
    }
    // A user with write access to a folder can replace its entries.
    if mode & WRITABLE_BY_OTHERS != 0 {
        return unusable(
            name,
            purpose,
            format!("{shown}: other users can write to it (mode {mode:o})"),
            format!("chmod 700 {quoted_path}"),
        );
    }
    // The parent of the folder with compiled code may be readable.
    let is_outer_cache = purpose == Purpose::Cache && !path.ends_with("compiled");
    let may_be_readable = purpose == Purpose::Config || is_outer_cache;
    if mode & ACCESSIBLE_BY_OTHERS != 0 && !may_be_readable {
        let found = format!("{shown}: other users can read it (mode {mode:o})");
        return Finding::warning(name, found, format!("chmod 700 {quoted_path}"));
    }
    check_file_system(name, path, purpose, status)
}

fn check_file_system(name: &str, path: &Path, purpose: Purpose, status: &FolderStatus) -> Finding {
    let shown = path.display();
    let file_system = &status.file_system;
    let mode = status.mode;
    let fix = match purpose {
        Purpose::Cache => {
            "TOOLHOLD_CACHE_DIR=/var/tmp/… (your own folder on a local disk without noexec)"
        }
        _ => "TOOLHOLD_DATA_DIR=… (your own folder on a local disk)",
    };
    match purpose {
        Purpose::Config => {}
        _ if file_system.read_only => {
            return Finding::warning(name, format!("{shown}: its file system is read-only"), fix);
        }
        Purpose::Cache if file_system.no_exec => {
            return Finding::warning(
                name,
                format!("{shown}: its file system is mounted noexec"),
                fix,
            );
        }
        Purpose::Data if file_system.free < NO_SPACE => {
            let found = format!(
                "{shown}: only {} free, too little to record calls, so calls that act are denied",
                size(file_system.free)
            );
            return Finding::failure(name, found, "free space on that disk");
        }
        _ if file_system.free < LITTLE_SPACE => {
            return Finding::warning(
                name,
                format!("{shown}: only {} free", size(file_system.free)),
                "free space on that disk",
            );
        }
        _ => {
            if let Some(network) = file_system.network {
                return Finding::warning(
                    name,
                    format!("{shown}: the folder is on {network}, where other machines can write"),
                    fix,
                );
            }
        }
    }
    Finding::ok(name, format!("{shown}: mode {mode:o}, {} free", size(file_system.free)))
}

fn quoted(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use toolhold_data_dir::folder::FileSystem;

    use super::*;
    use crate::doctor::machine::State;

    #[test]
    fn full_disk_is_a_failure_if_calls_are_recorded() {
        let check = |purpose, free, expected| {
            let file_system = FileSystem { network: None, no_exec: false, read_only: false, free };
            let found = check_existing(
                "it",
                Path::new("/d"),
                purpose,
                &FolderStatus { owner: 0, mode: 0o700, file_system },
            );
            assert_eq!(found.state, expected, "{found:?}");
        };
        check(Purpose::Data, 0, State::Failure);
        check(Purpose::Data, NO_SPACE, State::Warning);
        check(Purpose::Data, LITTLE_SPACE, State::Ok);
        check(Purpose::Cache, 0, State::Warning);
    }
}
