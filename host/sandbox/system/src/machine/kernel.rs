//! The abilities of this kernel: namespaces, and limits on watching files.

use std::io;
use std::path::Path;

use rustix::fs::inotify;

use super::{number, read_text};

/// The namespaces that the kernel allows to users other than root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// The kinds of namespaces that the kernel supports: `user`, `mnt`, `pid` and `net`.
    pub kinds: Vec<&'static str>,
    /// For each setting that forbids user namespaces, the `sysctl` setting that allows them.
    pub forbidden_by: Vec<&'static str>,
    /// Whether a filter of system calls or an AppArmor profile confines this process, as in a
    /// container. The filter or profile may also forbid user namespaces.
    pub is_confined: bool,
}

/// Reads the [`Namespaces`] of this kernel without entering a namespace, because a process with
/// several threads can't enter one.
pub fn namespaces() -> Namespaces {
    let mut kinds = Vec::new();
    for kind in ["user", "mnt", "pid", "net"] {
        if Path::new("/proc/self/ns").join(kind).symlink_metadata().is_ok() {
            kinds.push(kind);
        }
    }

    // The file of a setting, the value that forbids namespaces, and the `sysctl` that allows them.
    let settings = [
        ("/proc/sys/user/max_user_namespaces", 0, "user.max_user_namespaces=15000"),
        // On Debian and its derivatives.
        ("/proc/sys/kernel/unprivileged_userns_clone", 0, "kernel.unprivileged_userns_clone=1"),
        // On Ubuntu.
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            1,
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let mut forbidden_by = Vec::new();
    for (path, forbidding_value, fix) in settings {
        if number(path) == Some(forbidding_value) {
            forbidden_by.push(fix);
        }
    }

    // An unreadable file counts as a process that isn't confined.
    let status = read_text("/proc/self/status").unwrap_or_default();
    // The mode 2 of seccomp is a filter of system calls.
    let is_filtered = status.lines().any(|line| line.trim_end() == "Seccomp:\t2");
    let profile = read_text("/proc/self/attr/apparmor/current").unwrap_or_default();
    let is_confined = is_filtered || profile.ends_with("(enforce)");
    Namespaces { kinds, forbidden_by, is_confined }
}

/// A user's limits on watching the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchLimits {
    /// Maximum number of watchers.
    pub instances: u64,
    /// Maximum number of folders and files of all watchers together.
    pub watches: u64,
}

/// Reads the [`WatchLimits`], or returns `None` if the kernel doesn't report them.
pub fn watch_limits() -> Option<WatchLimits> {
    Some(WatchLimits {
        instances: number("/proc/sys/fs/inotify/max_user_instances")?,
        watches: number("/proc/sys/fs/inotify/max_user_watches")?,
    })
}

/// Creates a watcher and closes it again.
///
/// # Errors
///
/// Returns the system's error. Usually, the user's limit is reached.
pub fn watching_works() -> io::Result<()> {
    inotify::init(inotify::CreateFlags::CLOEXEC).map(drop).map_err(io::Error::from)
}
