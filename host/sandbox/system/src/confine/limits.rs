//! Sets the kernel's limits for a command's processes, and gives up all capabilities.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::error::ConfineError;
use super::spec::Limits;
use crate::kernel;

/// Process IDs that the kernel doesn't reuse. They count towards the limit of a namespace, so they
/// are added to it.
const RESERVED: u64 = 300;

/// Bytes of memory that a process can lock, so that the kernel doesn't swap them out.
const LOCKED_MEMORY: u64 = 64 << 20;

/// Limits this process and its descendants, except for their memory. The watcher limits the memory,
/// because the kernel's limits include reserved memory, and sanitizers reserve terabytes that they
/// never use. The error is the first limit that the kernel doesn't accept.
pub(super) fn bound(limits: &Limits) -> Result<(), ConfineError> {
    let bounds = [
        // One second more than the watcher's limit, because only the watcher can name the limit.
        (Resource::Cpu, limits.cpu.saturating_add(1)),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
        (Resource::Core, 0),
        (Resource::Memlock, LOCKED_MEMORY),
        // The kernel counts the user's processes in this user namespace. The limit doesn't apply to
        // root.
        (Resource::Nproc, limits.processes),
    ];
    for (resource, bound) in bounds {
        // A process can only lower its limits.
        let lower = match rustix::process::getrlimit(resource).maximum {
            Some(current) => current.min(bound),
            None => bound,
        };
        let limit = Rlimit { current: Some(lower), maximum: Some(lower) };
        setrlimit(resource, limit).map_err(|errno| ConfineError::Bound(resource, errno))?;
    }
    Ok(())
}

/// Limits the processes of this namespace, including the processes of root. On an older kernel, the
/// setting affects the whole machine, and root in a namespace may change it, so it isn't changed.
pub(super) fn bound_processes(limits: &Limits) {
    if !kernel::bounds_namespaces() {
        return;
    }
    let _ = std::fs::write("/proc/sys/kernel/pid_max", (limits.processes + RESERVED).to_string());
}

/// Bytes of a memory page, which is the unit of shared memory. Some machines have larger pages, and
/// so a higher limit.
const SMALLEST_PAGE: u64 = 4096;

/// Limits the System V shared memory of this namespace. It doesn't count as memory of any process.
pub(super) fn bound_shared_memory(limits: &Limits) {
    let pages = limits.memory / SMALLEST_PAGE;
    let _ = std::fs::write("/proc/sys/kernel/shmall", pages.to_string());
}

/// Makes the kernel kill these processes first when memory runs out.
pub(super) fn go_first() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
}

/// Gives up all capabilities, and the right to get new ones.
pub(super) fn drop_capabilities() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        // The kernel numbers capabilities without gaps, so the first unknown number ends the loop.
        if rustix::thread::remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(())
}
