//! The sandbox of the compiler process. The process enters it before it reads untrusted input.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter};

/// The limit of a compiler's address space. A large component needs a few hundred MiB.
const MEMORY: u64 = 6 << 30;

/// Largest processor time in seconds, over all threads. See [`lower_bounds`].
const CPU_SECONDS: u64 = 300;

/// A failure of a process to confine itself to computing.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// A resource isn't bounded.
    #[error("bounding {0:?}: {1}")]
    Bound(Resource, #[source] Errno),
    /// The filter can't be built.
    #[error("building the system call filter: {0}")]
    Build(#[source] BackendError),
    /// The kernel doesn't take the filter.
    #[error("installing the system call filter: {0}")]
    Install(#[source] seccompiler::Error),
}

/// Confines this process permanently. Only for a process without other threads.
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
        (Resource::Nofile, 64),
    ];
    for (resource, bound) in bounds {
        let limit = Rlimit { current: Some(bound), maximum: Some(bound) };
        setrlimit(resource, limit).map_err(|errno| ComputeError::Bound(resource, errno))?;
    }
    let filter = filter().map_err(ComputeError::Build)?;
    seccompiler::apply_filter(&filter).map_err(ComputeError::Install)
}

/// Limits the processor time of this process, over all threads, in seconds, and its memory in
/// bytes. This lowers the limits of [`to_computing`] to fit the input. After this time, `SIGXCPU`
/// ends the process. Allocations beyond the memory limit fail.
///
/// # Errors
///
/// Returns the part that can't be enforced. The caller must then stop.
pub fn lower_bounds(seconds: u64, memory: u64) -> Result<(), ComputeError> {
    // At the hard limit the kernel sends SIGKILL, which gives no reason. The memory limit applies
    // to written memory, because an allocator reserves more than it writes.
    let time = Rlimit { current: Some(seconds.min(CPU_SECONDS - 1)), maximum: Some(CPU_SECONDS) };
    let memory = Rlimit { current: Some(memory), maximum: Some(memory) };
    for (resource, limit) in [(Resource::Cpu, time), (Resource::Data, memory)] {
        setrlimit(resource, limit).map_err(|errno| ComputeError::Bound(resource, errno))?;
    }
    Ok(())
}

/// A reason why the filter of a compiler process doesn't work.
#[derive(Debug, thiserror::Error)]
pub enum FilterCheckError {
    /// The thread for the test can't be started.
    #[error(transparent)]
    Thread(#[from] io::Error),
    /// The filter can't be built.
    #[error(transparent)]
    Build(#[from] BackendError),
    /// The kernel doesn't take the filter.
    #[error(transparent)]
    Install(#[from] seccompiler::Error),
    /// The kernel permits a call that the filter refuses.
    #[error("the kernel took the filter and does not enforce it")]
    Unenforced,
    /// The thread panicked.
    #[error("the thread that tried it failed")]
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

/// Filters this thread for good, and makes a call that the filter refuses.
fn try_filter() -> Result<(), FilterCheckError> {
    seccompiler::apply_filter(&filter()?)?;
    match std::os::unix::net::UnixStream::pair() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(FilterCheckError::Unenforced),
    }
}

/// System calls with effects outside the process. The calls fail as not permitted, which the
/// libraries that try them accept.
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

fn filter() -> Result<BpfProgram, BackendError> {
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
