//! Wraps system calls that have no safe function in any crate.
//!
//! The helper has only one thread. So `fork` is as safe as starting a process, and the whole
//! process enters a namespace.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::Pid;

/// Closes every descriptor except for the standard ones. Only for a process that has just started
/// and has opened no descriptor. Inherited descriptors would bypass the sandbox.
///
/// # Errors
///
/// Fails before Linux 5.9.
pub fn close_inherited() -> io::Result<()> {
    let first = libc::STDERR_FILENO + 1;
    let last = u32::MAX;
    let flags = 0;
    // SAFETY: this process has opened no descriptor of its own, so no closed descriptor is used
    // later.
    #[expect(unsafe_code, reason = "libc has no function for it on every platform")]
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) enum Fork {
    Parent(Pid),
    Child,
}

pub(super) fn fork() -> io::Result<Fork> {
    debug_assert!(has_one_thread(), "the helper forks before it has a second thread");
    // SAFETY: this process has only one thread, so no other thread has a lock that the child needs.
    #[expect(unsafe_code, reason = "no maintained crate offers it as a safe function")]
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

/// Enables the loopback interface of this network.
pub(super) fn loopback_up() -> io::Result<()> {
    let mut request = interface_request(b"lo");
    // The flags fit into the type of the field, so the default is never used.
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    change_interface(libc::SIOCSIFFLAGS, &request)
}

/// Gives the loopback interface the address 127.0.0.2, too. If a network has no other address than
/// 127.0.0.1, the C library finds no IPv4 address of a name for some programs: those that ask for
/// IPv4 with `AI_ADDRCONFIG`.
pub(super) fn add_loopback_address() -> io::Result<()> {
    let mut request = interface_request(b"lo:1");
    request.ifr_ifru.ifru_addr = libc::sockaddr {
        sa_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default(),
        // The port, and the address.
        sa_data: [0, 0, 127, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0],
    };
    change_interface(libc::SIOCSIFADDR, &request)
}

fn interface_request(name: &[u8]) -> libc::ifreq {
    // SAFETY: `ifreq` is plain data for which zeros are valid.
    #[expect(unsafe_code, reason = "a plain structure of the kernel's")]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The letters fit into the type of the field, so the default is never used.
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = libc::c_char::try_from(*from).unwrap_or_default();
    }
    request
}

fn change_interface(change: libc::c_ulong, request: &libc::ifreq) -> io::Result<()> {
    // Any socket can carry this request.
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    // SAFETY: the call reads one complete `ifreq`. C libraries differ in the type of the request
    // number.
    #[expect(unsafe_code, reason = "ioctl takes a pointer")]
    let answer = unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), change as _, std::ptr::from_ref(request))
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

/// The variable with which tests hide later versions of Landlock. Only builds with debug assertions
/// read it.
#[cfg(debug_assertions)]
pub(crate) const NEWEST_LANDLOCK: &str = "TEST_NEWEST_LANDLOCK";

/// Returns the kernel's version of Landlock. Returns `None` if Landlock is missing or disabled. In
/// tests, an environment variable can lower the version.
pub fn landlock_version() -> Option<u32> {
    /// `LANDLOCK_CREATE_RULESET_VERSION`.
    const VERSION: u32 = 1;
    let no_attributes = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag, the kernel reads no memory and creates nothing.
    #[expect(unsafe_code, reason = "no crate tells the version before it restricts a thread")]
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0_usize, VERSION)
    };
    // The answer is negative if Landlock is missing or disabled.
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

/// Adds a filter to this process and its descendants. Returns the listener for its notifications.
pub(super) fn seccomp_listener(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let new_listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // With this flag, only deadly signals interrupt a waiting call. Linux has it since 5.19.
    let wait_killable = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let mut answer = install(filter, new_listener | wait_killable)?;
    if answer == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        answer = install(filter, new_listener)?;
    }
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let descriptor = i32::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor, and nothing else has it.
    #[expect(unsafe_code, reason = "a new descriptor of the kernel's")]
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Installs a filter. Returns the number that the kernel returns, or -1 for an error.
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

/// A system call that waits for the answer of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    pub(crate) id: u64,
    /// The thread that made the call, as numbered in the listener's process namespace.
    pub(crate) thread: u32,
    pub(crate) call: libc::c_long,
    pub(crate) arguments: [u64; 6],
}

/// Waits for the next notification. The error is `ENOENT` if its thread was killed.
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

/// Returns whether a notification still waits. If so, its thread is alive, and no other thread has
/// the number of the thread.
pub(crate) fn is_waiting(listener: impl AsFd, id: u64) -> bool {
    let mut argument = id;
    notify(listener, libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw mut argument).is_ok()
}

/// The answer to a system call that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallAnswer {
    /// The kernel carries the call out.
    Continue,
    /// The call returns 0, and the kernel does nothing.
    Done,
    /// The call fails.
    Failed(rustix::io::Errno),
}

/// Answers a call. The error is `ENOENT` if the thread was killed.
pub(crate) fn answer_notification(
    listener: impl AsFd,
    id: u64,
    answer: CallAnswer,
) -> io::Result<()> {
    let mut response = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: 0 };
    match answer {
        CallAnswer::Continue => {
            // The flag fits into the field, so the default is never used.
            response.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE.try_into().unwrap_or_default();
        }
        CallAnswer::Done => {}
        CallAnswer::Failed(errno) => response.error = -errno.raw_os_error(),
    }
    notify(listener, libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut response)
}

/// Gives a thread whose call waits a duplicate of `descriptor`, in place of its own descriptor
/// `number`.
pub(crate) fn replace_descriptor(
    listener: impl AsFd,
    id: u64,
    descriptor: impl AsFd,
    number: u32,
    closes_on_exec: bool,
) -> io::Result<()> {
    let mut request = libc::seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SETFD as u32,
        srcfd: descriptor.as_fd().as_raw_fd() as u32,
        newfd: number,
        newfd_flags: if closes_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    notify(listener, libc::SECCOMP_IOCTL_NOTIF_ADDFD as _, &raw mut request)
}

/// Sends a request about notifications to the kernel. Repeats an interrupted request.
fn notify<T>(listener: impl AsFd, request: libc::Ioctl, argument: *mut T) -> io::Result<()> {
    loop {
        // SAFETY: every caller passes a pointer to the structure that belongs to its request.
        #[expect(unsafe_code, reason = "ioctl takes a pointer")]
        let answer = unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), request, argument) };
        // A request to add a descriptor returns its number.
        if answer >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
