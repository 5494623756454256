//! Facts about this machine that Toolhold depends on, for `toolhold doctor`. A feature is tested
//! directly if the test changes nothing. Otherwise, the kernel's settings are read.

mod kernel;
mod resources;

pub use crate::confine::{FilterCheckError, filter_works, landlock_version};
pub use crate::files::{proc_works, resolving_works};
pub use crate::kernel::{bounds_namespaces, release, version};
pub use kernel::{Namespaces, WatchLimits, namespaces, watch_limits, watching_works};
pub use resources::{Bounds, address_space, bounds, memory, overcommits};

/// Returns the default number of parallel calls: eight for each processor, at least 16.
pub fn automatic_concurrency() -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    (processors * 8).max(16)
}

/// Reads a number from a file of the kernel.
fn number(path: &str) -> Option<u64> {
    read_text(path)?.parse().ok()
}

/// Reads a file of the kernel, and trims white space.
fn read_text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
