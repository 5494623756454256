//! `toolhold doctor`: checks whether the kernel and `/proc` have everything that Toolhold needs.

use toolhold_system::machine;

use crate::doctor::machine::Finding;

/// The oldest supported kernel, which is the first with `openat2`.
const OLDEST: (u32, u32) = (5, 6);

/// The number of watchers that other programs should leave for Toolhold. `FEW_WATCHES` is the
/// number of watches. An editor alone may use thousands.
const FEW_WATCHERS: u64 = 64;
const FEW_WATCHES: u64 = 8192;

/// Checks the parts of the kernel that Toolhold needs.
pub fn findings() -> Vec<Finding> {
    vec![version(), proc(), resolving(), filter(), watching()]
}

fn version() -> Finding {
    let name = "version";
    let Some(release) = machine::release() else {
        return Finding::warning(name, "unknown: /proc is not mounted", "mount -t proc proc /proc");
    };
    match machine::version(&release) {
        Some(version) if version < OLDEST => {
            let found = format!("Linux {release}; Toolhold needs {}.{}", OLDEST.0, OLDEST.1);
            Finding::failure(name, found, "install a newer kernel")
        }
        _ => Finding::ok(name, format!("Linux {release}")),
    }
}

fn proc() -> Finding {
    let name = "/proc";
    if machine::proc_works() {
        return Finding::ok(name, "mounted, and the kernel's own");
    }
    let found = "not mounted, or not the kernel's own: real paths are unknown, so no directory can be granted";
    Finding::failure(name, found, "mount -t proc proc /proc")
}

fn resolving() -> Finding {
    let name = "openat2";
    match machine::resolving_works() {
        Ok(()) => Finding::ok(name, "names can't lead out of their directory"),
        Err(error) => {
            let fix = "Linux 5.6 or later; in a container, a runtime whose seccomp profile allows openat2";
            Finding::failure(name, format!("names can't be resolved safely: {error}"), fix)
        }
    }
}

fn filter() -> Finding {
    let name = "system call filter";
    match machine::filter_works() {
        Ok(()) => Finding::ok(name, "enforced"),
        Err(reason) => {
            let fix = "a kernel with CONFIG_SECCOMP_FILTER; in a container, a profile that allows seccomp and prctl";
            Finding::failure(name, format!("plugins can't be compiled: {reason}"), fix)
        }
    }
}

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
        None => Finding::ok(name, "works; its limits are unknown"),
    }
}
