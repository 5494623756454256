//! Namespaces of its own.

use std::io;

use rustix::thread::UnshareFlags;

use super::raw;

/// Enters namespaces of its own, with nobody but the user in them. Children are the first in theirs of processes.
///
/// `network`: whether the network stays the one that it is.
pub(super) fn enter(network: bool) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    if !network {
        flags |= UnshareFlags::NEWNET;
    }
    raw::unshare(flags)?;
    // Without this, nobody but root may say which group is which.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    // Programs talk to themselves over it: servers that a test starts, say. Where it can't be had, they see that.
    if !network {
        let _ = raw::loopback_up();
    }
    Ok(())
}
