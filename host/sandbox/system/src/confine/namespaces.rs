//! Enters the namespaces of a command's sandbox: users, processes, mounts and network.

use std::io;

use rustix::thread::UnshareFlags;

use super::raw;

/// Enters a user namespace with a single user, and makes the next child the first process of a
/// process namespace.
pub(super) fn enter_outer() -> io::Result<()> {
    enter_users(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)
}

/// Enters new namespaces, including a user namespace with a single user.
pub(super) fn enter_users(flags: UnshareFlags) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    raw::unshare(flags)?;
    // The kernel requires this before a user without privileges may map groups.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Enters the other namespaces. `network`: whether to stay in the current network.
pub(super) fn enter_inner(network: bool) -> io::Result<()> {
    let others = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if network {
        return raw::unshare(others);
    }
    raw::unshare(others | UnshareFlags::NEWNET)?;
    // Programs use the loopback interface internally, such as a test with a server. If the
    // interface can't be enabled, the programs report it.
    let _ = raw::loopback_up();
    Ok(())
}
