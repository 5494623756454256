//! Namespaces of its own.

use std::io;

use rustix::thread::UnshareFlags;

use super::raw;

/// Enters a namespace with nobody but the user in it, and has children be the first in one of
/// processes.
pub(super) fn enter_outer() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    raw::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)?;
    // Without this, nobody but root may say which group is which.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Enters the others. `network`: whether the network stays the one that it is.
pub(super) fn enter_inner(network: bool) -> io::Result<()> {
    let others = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if network {
        return raw::unshare(others);
    }
    raw::unshare(others | UnshareFlags::NEWNET)?;
    // Programs talk to themselves over it: servers that a test starts, say. Where it can't be had,
    // they see that.
    let _ = raw::loopback_up();
    Ok(())
}
