//! `toolhold doctor`: checks whether the kernel and `/proc` have everything that Toolhold needs.

use toolhold_system::machine;

use crate::doctor::machine::Finding;

/// The oldest supported kernel, which is the first with `openat2`.
const OLDEST: (u32, u32) = (5, 6);

/// Numbers of inotify instances and watches that are too small. An editor alone may use thousands
/// of watches.
const FEW_WATCHERS: u64 = 64;
const FEW_WATCHES: u64 = 8192;

/// Checks the parts of the kernel that Toolhold needs.
pub fn findings() -> Vec<Finding> {
    vec![version(), proc(), resolving(), filter(), watching()]
}

/// Checks the version of the kernel.
fn version() -> Finding {
    let name = "version";
    let Some(release) = machine::release() else {
        return Finding::warning(name, "unknown: /proc is not mounted", "mount -t proc proc /proc");
    };
    let is_too_old = machine::version(&release).is_some_and(|version| version < OLDEST);
    if is_too_old {
        let (major, minor) = OLDEST;
        let found = format!("Linux {release}; Toolhold needs {major}.{minor}");
        return Finding::failure(name, found, "install a newer kernel");
    }
    Finding::ok(name, format!("Linux {release}"))
}

/// Checks `/proc`, through which real paths are found.
fn proc() -> Finding {
    let name = "/proc";
    if machine::proc_works() {
        return Finding::ok(name, "mounted, and the kernel's own");
    }
    let found = "not mounted, or not the kernel's own, so real paths are unknown and no directory \
                 can be granted";
    Finding::failure(name, found, "mount -t proc proc /proc")
}

/// Checks whether the kernel resolves file names only within a directory.
fn resolving() -> Finding {
    let name = "openat2";
    match machine::resolving_works() {
        Ok(()) => Finding::ok(name, "file names can't lead out of a granted directory"),
        Err(error) => {
            let fix = "use Linux 5.6 or later; in a container, use a runtime whose seccomp profile \
                       allows openat2";
            Finding::failure(name, format!("file names can't be resolved safely: {error}"), fix)
        }
    }
}

/// Checks whether a system call filter can confine the process that compiles plugins.
fn filter() -> Finding {
    let name = "system call filter";
    match machine::filter_works() {
        Ok(()) => Finding::ok(name, "enforced"),
        Err(reason) => {
            let fix = "use a kernel with CONFIG_SECCOMP_FILTER; in a container, use a profile that \
                       allows seccomp and prctl";
            Finding::failure(name, format!("plugins can't be compiled: {reason}"), fix)
        }
    }
}

/// Checks whether changes of files can be watched.
fn watching() -> Finding {
    let name = "watching files";
    if let Err(error) = machine::watching_works() {
        let found = format!("changed plugins are not noticed: creating a watcher failed: {error}");
        return Finding::warning(name, found, "sysctl fs.inotify.max_user_instances=1024");
    }
    match machine::watch_limits() {
        Some(limits) if limits.instances < FEW_WATCHERS => {
            let found =
                format!("too few watchers: {} for all programs of a user", limits.instances);
            Finding::warning(name, found, "sysctl fs.inotify.max_user_instances=1024")
        }
        Some(limits) if limits.watches < FEW_WATCHES => {
            let found =
                format!("too few watched folders: {} for all programs of a user", limits.watches);
            Finding::warning(name, found, "sysctl fs.inotify.max_user_watches=524288")
        }
        Some(limits) => {
            Finding::ok(name, format!("{} watchers, {} watches", limits.instances, limits.watches))
        }
        None => Finding::ok(name, "works; the limits are unknown"),
    }
}
