//! Sets the kernel's limits of a command's processes, and gives up every capability.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::error::ConfineError;
use super::spec::Limits;
use crate::kernel;

/// The number of process numbers that the kernel doesn't reuse. The limit of a namespace includes
/// them.
const RESERVED: u64 = 300;

/// Limits this process and its descendants. The watcher limits their memory, because the limits of
/// the kernel include reserved memory, and sanitizers reserve terabytes that they never use.
///
/// # Errors
///
/// Returns the first limit that the kernel doesn't accept.
pub(super) fn bound(limits: &Limits) -> Result<(), ConfineError> {
    let bounds = [
        // The kernel's limit is a second higher than the watcher's, because the watcher can name
        // the limit.
        (Resource::Cpu, limits.cpu.saturating_add(1)),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
        (Resource::Core, 0),
        (Resource::Memlock, 64 << 20),
        // The kernel counts the user's processes in this user namespace. The limit doesn't apply to
        // root.
        (Resource::Nproc, limits.processes),
    ];
    for (resource, bound) in bounds {
        // The limit of this process can only be lowered.
        let current = rustix::process::getrlimit(resource).maximum;
        let lower = current.map_or(bound, |current| current.min(bound));
        let limit = Rlimit { current: Some(lower), maximum: Some(lower) };
        setrlimit(resource, limit).map_err(|errno| ConfineError::Bound(resource, errno))?;
    }
    Ok(())
}

/// Limits the processes of this namespace, including root's, if the kernel supports this. On an
/// older kernel, the setting affects the whole machine, and root in a namespace may change it.
pub(super) fn bound_processes(limits: &Limits) {
    if !kernel::bounds_namespaces() {
        return;
    }
    let _ = std::fs::write("/proc/sys/kernel/pid_max", (limits.processes + RESERVED).to_string());
}

/// Limits the memory that processes of this namespace share by a key, because it isn't included in
/// the memory of any process.
pub(super) fn bound_shared_memory(limits: &Limits) {
    // In pages of the smallest size.
    let _ = std::fs::write("/proc/sys/kernel/shmall", (limits.memory / 4096).to_string());
}

/// Makes the kernel end these processes first when memory runs out.
pub(super) fn go_first() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
}

/// Gives up every capability, for good.
///
/// # Errors
///
/// The kernel's.
pub(super) fn drop_capabilities() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        // The kernel's capabilities are numbered without gaps, so the first unknown number ends the
        // loop.
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
