//! Facts about this machine that Toolhold depends on, for `toolhold doctor`. A feature is tried if
//! the trial changes nothing. Otherwise, the kernel's settings are read.

mod kernel;
mod resources;

pub use crate::confine::{FilterCheckError, filter_works, landlock_version};
pub use crate::files::{proc_works, resolving_works};
pub use crate::kernel::{bounds_namespaces, release, version};
pub use kernel::{Namespaces, WatchLimits, namespaces, watch_limits, watching_works};
pub use resources::{Bounds, address_space, bounds, memory, overcommits};

/// Returns the default number of parallel calls: eight for each processor, but at least 16.
pub fn automatic_concurrency() -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    (processors * 8).max(16)
}

fn number(path: &str) -> Option<u64> {
    read_text(path)?.parse().ok()
}

fn read_text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
