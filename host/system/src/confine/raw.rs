//! System calls that have no safe function yet.
//!
//! The helper has one thread from start to end. So `fork` is as safe as starting a process, and a
//! namespace that its thread enters is the whole process's.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::Pid;

/// Closes every descriptor except the standard ones. Only for a process that has just started and
/// opened none itself: inherited descriptors come from whoever started this program, and would
/// bypass the sandbox.
///
/// # Errors
///
/// The kernel's: not supported before Linux 5.9.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: this process has opened no descriptor of its own, so none of them is used later.
    #[expect(unsafe_code, reason = "libc has no function for it on every platform")]
    let answer = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The side of a fork.
pub(super) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks this process.
pub(super) fn fork() -> io::Result<Fork> {
    debug_assert!(has_one_thread(), "the helper forks before it has a second thread");
    // SAFETY: there is one thread, so no other thread holds a lock that the child would need.
    #[expect(unsafe_code, reason = "no crate that is kept well offers it as a safe function")]
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid)
            .map(Fork::Parent)
            .ok_or_else(|| io::Error::other("fork gave no process")),
    }
}

fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Moves this process into new namespaces; for `NEWPID`, its children.
pub(super) fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags change no memory and no descriptors that are in use.
    #[expect(unsafe_code, reason = "unsafe only with the flag for descriptors, not used here")]
    let done = unsafe { rustix::thread::unshare_unsafe(flags) };
    done.map_err(io::Error::from)
}

/// Switches the loopback interface of this network namespace on.
pub(super) fn loopback_up() -> io::Result<()> {
    // Any socket can carry this request.
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    // SAFETY: `ifreq` is plain data for which zeros are valid.
    #[expect(unsafe_code, reason = "a plain structure of the kernel's")]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::try_from(*from).unwrap_or_default();
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    // SAFETY: the call reads one complete `ifreq`. C libraries differ in the type of the request
    // number.
    #[expect(unsafe_code, reason = "ioctl takes a pointer")]
    let answer = unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets flags (`MOUNT_ATTR_…`) of a mount and of all mounts in it.
pub(super) fn mount_attributes(mount: impl AsFd, set: u64) -> io::Result<()> {
    // `struct mount_attr`: flags to set, flags to clear, propagation, user namespace.
    let attributes: [u64; 4] = [set, 0, 0, 0];
    // SAFETY: the path is an empty string that ends in NUL, and the structure is valid and has the
    // stated length.
    #[expect(unsafe_code, reason = "neither libc nor rustix has a function for it")]
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
