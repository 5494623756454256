//! Notifies the host before each system call of a command that changes files or names, or that
//! connects a socket. The host can then save the data that the call would destroy, and decide on the
//! connection. A process can have only one listener, so both have the same one.

use std::io;
use std::os::fd::OwnedFd;

use libc::sock_filter;

use super::raw;

/// How a system call names the objects that it changes. The numbers are indexes of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Opens a path relative to the descriptor `directory`.
    Open {
        directory: Option<usize>,
        path: usize,
        flags: usize,
    },
    /// Changes the object at a path. `nofollow` is the argument with `AT_SYMLINK_NOFOLLOW`.
    Object {
        directory: Option<usize>,
        path: usize,
        nofollow: Option<usize>,
    },
    /// Changes, creates or removes the object at a path without following a final link.
    Name {
        directory: Option<usize>,
        path: usize,
    },
    Descriptor(usize),
    Socket {
        address: usize,
        length: usize,
    },
    Link {
        directories: Option<[usize; 2]>,
        paths: [usize; 2],
        flags: Option<usize>,
    },
    Rename {
        directories: Option<[usize; 2]>,
        paths: [usize; 2],
        flags: Option<usize>,
    },
}

use Target::{Descriptor, Link, Name, Object, Open, Rename, Socket};

/// Not defined in every libc.
const FCHMODAT2: libc::c_long = 452;

pub(crate) const CALLS: &[(libc::c_long, Target)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Open { directory: None, path: 0, flags: 1 }),
    (libc::SYS_openat, Open { directory: Some(0), path: 1, flags: 2 }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, Object { directory: None, path: 0, nofollow: None }),
    (libc::SYS_truncate, Object { directory: None, path: 0, nofollow: None }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, Object { directory: None, path: 0, nofollow: None }),
    (libc::SYS_fchmodat, Object { directory: Some(0), path: 1, nofollow: None }),
    (FCHMODAT2, Object { directory: Some(0), path: 1, nofollow: Some(3) }),
    (libc::SYS_fchmod, Descriptor(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utime, Object { directory: None, path: 0, nofollow: None }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utimes, Object { directory: None, path: 0, nofollow: None }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_futimesat, Object { directory: Some(0), path: 1, nofollow: None }),
    (libc::SYS_utimensat, Object { directory: Some(0), path: 1, nofollow: Some(3) }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, Name { directory: None, path: 0 }),
    (libc::SYS_unlinkat, Name { directory: Some(0), path: 1 }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, Name { directory: None, path: 0 }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, Name { directory: None, path: 0 }),
    (libc::SYS_mkdirat, Name { directory: Some(0), path: 1 }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, Name { directory: None, path: 0 }),
    (libc::SYS_mknodat, Name { directory: Some(0), path: 1 }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, Name { directory: None, path: 1 }),
    (libc::SYS_symlinkat, Name { directory: Some(1), path: 2 }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, Link { directories: None, paths: [0, 1], flags: None }),
    (libc::SYS_linkat, Link { directories: Some([0, 2]), paths: [1, 3], flags: Some(4) }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, Rename { directories: None, paths: [0, 1], flags: None }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_renameat, Rename { directories: Some([0, 2]), paths: [1, 3], flags: None }),
    (libc::SYS_bind, Socket { address: 1, length: 2 }),
    (libc::SYS_renameat2, Rename { directories: Some([0, 2]), paths: [1, 3], flags: Some(4) }),
];

const CHANGING: libc::c_int = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;

/// Returns the offset of an argument's lower half in the data of a filter.
const fn argument(index: usize) -> u32 {
    16 + 8 * index as u32
}

/// The system calls that the kernel notifies a listener of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notified {
    /// The calls in [`CALLS`].
    pub(super) changes: bool,
    /// Connections of sockets.
    pub(super) connections: bool,
}

/// Makes the kernel notify a listener of calls of this process and its descendants. The process
/// must not be able to get new privileges. Fails before Linux 5.5, and if the process already has a
/// listener.
pub(super) fn listen(notified: Notified) -> io::Result<OwnedFd> {
    raw::seccomp_listener(&program(notified))
}

/// Assembles the filter. It compares the number of a call with the numbers in `notified`, and the
/// flags of an open with [`CHANGING`]. All other calls are allowed.
fn program(notified: Notified) -> Vec<sock_filter> {
    let load = 0x20;
    let jump = 0x05;
    let equal = 0x15;
    let and = 0x54;
    let answer = 0x06;
    let changes = if notified.changes { CALLS } else { &[] };
    let opens: Vec<(u32, usize)> = changes
        .iter()
        .filter_map(|(call, target)| match target {
            Open { flags, .. } => Some((*call as u32, *flags)),
            _ => None,
        })
        .collect();
    let mut others: Vec<u32> = changes
        .iter()
        .filter(|(_, target)| !matches!(target, Open { .. }))
        .map(|(call, _)| *call as u32)
        .collect();
    if notified.connections {
        others.push(libc::SYS_connect as u32);
    }
    // The order: comparisons, two lines for each kind of open, the check of flags, the answers.
    let mut lines = vec![line(load, 0, 0, 0)];
    let first_open = 1 + others.len();
    let allow = first_open + opens.len();
    let opened = allow + 1;
    let flags = opened + 2 * opens.len();
    let notify = flags + 3;
    for call in others {
        lines.push(line(equal, distance(lines.len(), notify), 0, call));
    }
    for (index, (call, _)) in opens.iter().enumerate() {
        lines.push(line(equal, distance(lines.len(), opened + 2 * index), 0, *call));
    }
    lines.push(line(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    for (_, index) in &opens {
        lines.push(line(load, 0, 0, argument(*index)));
        lines.push(line(jump, 0, 0, u32::from(distance(lines.len(), flags))));
    }
    lines.push(line(and, 0, 0, CHANGING as u32));
    lines.push(line(equal, 0, 1, 0));
    lines.push(line(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    lines.push(line(answer, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    lines
}

/// Returns an instruction. `jt` and `jf` are the numbers of lines to skip if the comparison is true
/// or false. `k` is the operand.
fn line(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn distance(from: usize, to: usize) -> u8 {
    u8::try_from(to - from - 1).unwrap_or(u8::MAX)
}
