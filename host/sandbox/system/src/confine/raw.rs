//! Wraps the system calls that have no safe function in any crate.
//!
//! The helper always has only one thread. So `fork` is as safe as starting a process, and when the
//! thread enters a namespace, the whole process enters it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::Pid;

/// Closes every descriptor except the standard ones. Only for a process that has just started and
/// hasn't opened any. Inherited descriptors come from the parent process and would bypass the
/// sandbox.
///
/// # Errors
///
/// Returns the kernel's error. The call isn't supported before Linux 5.9.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: this process has opened no descriptor of its own, so none of them is used later.
    #[expect(unsafe_code, reason = "libc has no function for it on every platform")]
    let answer = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The process in which a fork returns.
pub(super) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks this process.
pub(super) fn fork() -> io::Result<Fork> {
    debug_assert!(has_one_thread(), "the helper forks before it has a second thread");
    // SAFETY: this process has only one thread, so no other thread has a lock that the child needs.
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

/// Moves this process into new namespaces. `NEWPID` moves only its children.
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

/// Sets flags (`MOUNT_ATTR_…`) of a mount and of all mounts below it.
pub(super) fn mount_attributes(mount: impl AsFd, set: u64) -> io::Result<()> {
    // `struct mount_attr`: flags to set, flags to clear, propagation, user namespace.
    let attributes: [u64; 4] = [set, 0, 0, 0];
    // SAFETY: the path is an empty string that ends with NUL, and the structure is valid and has
    // the given length.
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

/// The environment variable with which the tests hide later versions of Landlock. Only builds with
/// debug assertions read it.
#[cfg(debug_assertions)]
pub(crate) const NEWEST_LANDLOCK: &str = "TEST_NEWEST_LANDLOCK";

/// Returns the kernel's version of Landlock. Returns `None` if Landlock is missing or disabled.
pub fn landlock_version() -> Option<u32> {
    /// `LANDLOCK_CREATE_RULESET_VERSION`.
    const VERSION: u32 = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag, the kernel reads no memory and creates nothing.
    #[expect(unsafe_code, reason = "no crate tells the version before it restricts a thread")]
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
    let version = u32::try_from(answer).ok();
    #[cfg(debug_assertions)]
    if let Ok(text) = std::env::var(NEWEST_LANDLOCK)
        && let Ok(newest) = text.parse()
    {
        let shown = version?.min(newest);
        return if shown > 0 { Some(shown) } else { None };
    }
    version
}

/// Adds a filter of system calls, and returns the listener that gets the filter's notifications.
/// The filter applies to this process and its descendants.
///
/// # Errors
///
/// Returns the kernel's error.
pub(super) fn seccomp_listener(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    // With the second flag, from 5.19 on, signals don't interrupt a call that waits.
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let mut answer = install(filter, listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)?;
    if answer == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        answer = install(filter, listener)?;
    }
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let descriptor = i32::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor, and nothing else has it.
    #[expect(unsafe_code, reason = "a new descriptor of the kernel's")]
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes the system call that installs a filter, and returns its answer.
fn install(filter: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel only reads the program, which is valid and has the given length.
    #[expect(unsafe_code, reason = "no crate offers a filter with a listener")]
    let answer = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    Ok(answer)
}

/// A system call that waits for an answer of its listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    pub(crate) id: u64,
    /// The thread that made the call. The number is that in the listener's process namespace.
    pub(crate) thread: u32,
    pub(crate) call: libc::c_long,
    pub(crate) arguments: [u64; 6],
}

/// Waits for the next notification.
///
/// # Errors
///
/// Returns the kernel's error: `ENOENT` if the thread was killed meanwhile.
pub(crate) fn next_notification(listener: impl AsFd) -> io::Result<Notification> {
    // SAFETY: `seccomp_notif` is plain data for which zeros are valid. The kernel requires zeros.
    #[expect(unsafe_code, reason = "a plain structure of the kernel's")]
    let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    notify(listener, libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut notification)?;
    Ok(Notification {
        id: notification.id,
        thread: notification.pid,
        call: notification.data.nr.into(),
        arguments: notification.data.args,
    })
}

/// Checks whether a notification still waits. If so, its thread is alive and its thread number
/// wasn't reused.
pub(crate) fn is_waiting(listener: impl AsFd, id: u64) -> bool {
    let mut id = id;
    notify(listener, libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw mut id).is_ok()
}

/// Allows a call, or fails the call with an error.
///
/// # Errors
///
/// Returns the kernel's error: `ENOENT` if the thread was killed meanwhile.
pub(crate) fn answer_notification(
    listener: impl AsFd,
    id: u64,
    answer: Result<(), rustix::io::Errno>,
) -> io::Result<()> {
    let mut response = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: 0 };
    match answer {
        Ok(()) => {
            response.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE.try_into().unwrap_or_default();
        }
        Err(errno) => response.error = -errno.raw_os_error(),
    }
    notify(listener, libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut response)
}

fn notify<T>(listener: impl AsFd, request: libc::Ioctl, argument: *mut T) -> io::Result<()> {
    loop {
        // SAFETY: the requests above take a pointer to exactly these structures.
        #[expect(unsafe_code, reason = "ioctl takes a pointer")]
        let answer = unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), request, argument) };
        if answer == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
