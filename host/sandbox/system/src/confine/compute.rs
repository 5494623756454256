//! The sandbox of the compiler process, which enters it before it reads untrusted input.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter};

/// Bytes of a compiler's address space. A large component needs a few hundred MiB.
const MEMORY: u64 = 6 << 30;

/// Seconds of CPU time over all threads. See [`lower_bounds`].
const CPU_SECONDS: u64 = 300;

/// Descriptors of a compiler, which opens no files.
const DESCRIPTORS: u64 = 64;

/// The reason why a process can't confine itself.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// A resource can't be limited.
    #[error("the resource {0:?} can't be limited: {1}")]
    Bound(Resource, #[source] Errno),
    /// The filter can't be built.
    #[error("the filter of system calls can't be built: {0}")]
    Build(#[source] BackendError),
    /// The kernel refuses the filter.
    #[error("the filter of system calls can't be installed: {0}")]
    Install(#[source] seccompiler::Error),
}

/// Confines this process permanently. Only for a process without other threads, because the filter
/// applies only to the calling thread.
///
/// The process can read its standard input, compute, and write its standard output and error. It
/// can't open files or sockets, or start programs. Its memory and time are limited.
///
/// # Errors
///
/// Returns the part that can't be enforced. The caller must then stop.
pub fn to_computing() -> Result<(), ComputeError> {
    let bounds = [
        (Resource::As, MEMORY),
        (Resource::Cpu, CPU_SECONDS),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nofile, DESCRIPTORS),
    ];
    for (resource, bound) in bounds {
        let limit = Rlimit { current: Some(bound), maximum: Some(bound) };
        setrlimit(resource, limit).map_err(|errno| ComputeError::Bound(resource, errno))?;
    }
    let program = filter().map_err(ComputeError::Build)?;
    seccompiler::apply_filter(&program).map_err(ComputeError::Install)
}

/// Lowers the limits of [`to_computing`] to `seconds` of CPU time over all threads, and `memory`
/// bytes. After this time, `SIGXCPU` ends the process. Allocations beyond `memory` fail.
///
/// # Errors
///
/// Returns the limit that can't be set. The caller must then stop.
pub fn lower_bounds(seconds: u64, memory: u64) -> Result<(), ComputeError> {
    // At the hard limit, the kernel sends SIGKILL, which gives no reason. So the soft limit is
    // lower, and the kernel sends SIGXCPU first.
    let soft_seconds = seconds.min(CPU_SECONDS - 1);
    let time_limit = Rlimit { current: Some(soft_seconds), maximum: Some(CPU_SECONDS) };
    // `Data` limits written memory. An allocator reserves more memory than it writes.
    let memory_limit = Rlimit { current: Some(memory), maximum: Some(memory) };
    for (resource, limit) in [(Resource::Cpu, time_limit), (Resource::Data, memory_limit)] {
        setrlimit(resource, limit).map_err(|errno| ComputeError::Bound(resource, errno))?;
    }
    Ok(())
}

/// The reason why the filter of a compiler process doesn't work.
#[derive(Debug, thiserror::Error)]
pub enum FilterCheckError {
    /// The thread can't be started.
    #[error(transparent)]
    Thread(#[from] io::Error),
    /// The filter can't be built.
    #[error(transparent)]
    Build(#[from] BackendError),
    /// The kernel refuses the filter.
    #[error(transparent)]
    Install(#[from] seccompiler::Error),
    /// The kernel allows a call that the filter refuses.
    #[error("the kernel accepted the filter, but does not enforce the filter")]
    Unenforced,
    /// The thread panicked.
    #[error("the thread that tested the filter crashed")]
    Panicked,
}

/// Checks on a separate thread whether the kernel accepts and enforces the filter.
///
/// # Errors
///
/// Returns the reason why the filter doesn't work.
pub fn filter_works() -> Result<(), FilterCheckError> {
    let thread = std::thread::Builder::new().name("filtered".to_owned()).spawn(try_filter)?;
    thread.join().unwrap_or(Err(FilterCheckError::Panicked))
}

/// Filters this thread permanently, and tries a refused call.
fn try_filter() -> Result<(), FilterCheckError> {
    seccompiler::apply_filter(&filter()?)?;
    // The filter refuses all sockets.
    let socket = std::os::unix::net::UnixStream::pair();
    let is_refused = socket.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    if is_refused { Ok(()) } else { Err(FilterCheckError::Unenforced) }
}

/// System calls with effects outside of the process. They fail as not permitted, which libraries
/// accept.
const REFUSED: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Returns the filter of a process that only computes.
fn filter() -> Result<BpfProgram, BackendError> {
    // Without a condition, every call is refused.
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        refuse,
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into()
}
