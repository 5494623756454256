//! The sandbox of the compiler process, which it enters before it reads untrusted input.

use std::collections::BTreeMap;

use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Address space of a compiler: a large component needs a few hundred MiB.
const MEMORY: u64 = 6 << 30;

/// Largest processor time in seconds, over all threads. See [`lower_bounds`].
const CPU_SECONDS: u64 = 300;

/// Confines this process for good. It can read its standard input, compute, and write its standard
/// output and error: no new files, no sockets, no programs, and limits on memory and time. Only for
/// a process without other threads.
///
/// # Errors
///
/// The part that can't be enforced. The caller must not go on then.
pub fn to_computing() -> Result<(), String> {
    let bounds = [
        (Resource::As, MEMORY),
        (Resource::Cpu, CPU_SECONDS),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nofile, 64),
    ];
    for (resource, bound) in bounds {
        let limit = Rlimit { current: Some(bound), maximum: Some(bound) };
        setrlimit(resource, limit).map_err(|errno| format!("bounding {resource:?}: {errno}"))?;
    }
    let filter = filter().map_err(|error| format!("building the system call filter: {error}"))?;
    seccompiler::apply_filter(&filter)
        .map_err(|error| format!("installing the system call filter: {error}"))
}

/// Limits the processor time of this process, over all threads, in seconds, and its memory in
/// bytes: it lowers the limits of [`to_computing`] to fit the input. After this time, `SIGXCPU`
/// ends it; more memory isn't given.
///
/// # Errors
///
/// The part that can't be enforced. The caller must not go on then.
pub fn lower_bounds(seconds: u64, memory: u64) -> Result<(), String> {
    // At the hard limit the kernel sends SIGKILL, which gives no reason. The limit counts written
    // memory: an allocator reserves more than that.
    let time = Rlimit { current: Some(seconds.min(CPU_SECONDS - 1)), maximum: Some(CPU_SECONDS) };
    let memory = Rlimit { current: Some(memory), maximum: Some(memory) };
    for (resource, limit) in [(Resource::Cpu, time), (Resource::Data, memory)] {
        setrlimit(resource, limit).map_err(|errno| format!("bounding {resource:?}: {errno}"))?;
    }
    Ok(())
}

/// Whether the kernel accepts and enforces such a filter. Tried on a thread of its own, which ends
/// with it.
///
/// # Errors
///
/// The reason why it doesn't.
pub fn filter_works() -> Result<(), String> {
    let attempt = || {
        let filter = filter().map_err(|error| error.to_string())?;
        seccompiler::apply_filter(&filter).map_err(|error| error.to_string())?;
        match std::os::unix::net::UnixStream::pair() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
            _ => Err("the kernel took the filter and does not enforce it".to_owned()),
        }
    };
    let thread = std::thread::Builder::new()
        .name("filtered".to_owned())
        .spawn(attempt)
        .map_err(|error| error.to_string())?;
    thread.join().unwrap_or_else(|_| Err("the thread that tried it failed".to_owned()))
}

/// System calls that reach beyond the process. They fail as not permitted, which libraries that try
/// them accept.
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

fn filter() -> Result<BpfProgram, Box<dyn std::error::Error>> {
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(u32::try_from(libc::EPERM)?);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        refuse,
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}
