//! Enters the namespaces of a command's sandbox: users, processes, mounts and network.

use std::io;

use rustix::thread::UnshareFlags;

use super::raw;

/// Enters a user namespace with only this user. The next child becomes the first process of a
/// process namespace.
pub(super) fn enter_outer() -> io::Result<()> {
    enter_users(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)
}

/// Enters new namespaces, including a user namespace with only this user.
pub(super) fn enter_users(flags: UnshareFlags) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    raw::unshare(flags)?;
    // The kernel lets a user without privileges map groups only after this denial.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Enters new namespaces for mounts and IPC, and a new network unless `keeps_network` is set.
pub(super) fn enter_inner(keeps_network: bool) -> io::Result<()> {
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if keeps_network {
        return raw::unshare(flags);
    }
    raw::unshare(flags | UnshareFlags::NEWNET)?;
    // Programs such as a test with a server use the loopback interface. If it can't be enabled,
    // these programs report it.
    let _ = raw::loopback_up();
    Ok(())
}
