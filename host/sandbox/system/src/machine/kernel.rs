//! The abilities of this kernel: namespaces, and limits on watching files.

use std::io;
use std::path::Path;

use rustix::fs::inotify;

use super::{number, read_text};

/// The namespaces that the kernel allows to users other than root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// The kinds of namespaces that the kernel supports, out of `user`, `mnt`, `pid` and `net`.
    pub kinds: Vec<&'static str>,
    /// The `sysctl` settings that would allow user namespaces, for each setting that forbids them.
    pub forbidden_by: Vec<&'static str>,
    /// Whether a filter of system calls or an AppArmor profile confines this process, as in a
    /// container. Such a filter may also forbid user namespaces.
    pub is_confined: bool,
}

/// Reads the [`Namespaces`] of this kernel. Doesn't try to enter a namespace, because a process
/// with several threads can't enter a user namespace.
pub fn namespaces() -> Namespaces {
    let kinds = ["user", "mnt", "pid", "net"]
        .into_iter()
        .filter(|kind| Path::new("/proc/self/ns").join(kind).symlink_metadata().is_ok())
        .collect();

    // Each entry has a file, the value that forbids namespaces, and the `sysctl` that allows them.
    let settings = [
        ("/proc/sys/user/max_user_namespaces", 0, "user.max_user_namespaces=15000"),
        // This setting exists on Debian and its derivatives.
        ("/proc/sys/kernel/unprivileged_userns_clone", 0, "kernel.unprivileged_userns_clone=1"),
        // Of Ubuntu.
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            1,
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let forbidden_by = settings
        .into_iter()
        .filter(|(path, forbids, _)| number(path) == Some(*forbids))
        .map(|(_, _, fix)| fix)
        .collect();

    let status = read_text("/proc/self/status").unwrap_or_default();
    let is_filtered = status.lines().any(|line| line.trim_end() == "Seccomp:\t2");
    let profile = read_text("/proc/self/attr/apparmor/current").unwrap_or_default();
    let is_confined = is_filtered || profile.ends_with("(enforce)");
    Namespaces { kinds, forbidden_by, is_confined }
}

/// Limits on watching the file system, for one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchLimits {
    /// Watchers.
    pub instances: u64,
    /// Folders and files, over all watchers.
    pub watches: u64,
}

/// Reads the [`WatchLimits`]. Returns `None` if the kernel doesn't report them.
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
/// Returns the system's error. Mostly the user's limit is reached.
pub fn watching_works() -> io::Result<()> {
    inotify::init(inotify::CreateFlags::CLOEXEC).map(drop).map_err(io::Error::from)
}
