use std::fs;
use std::path::Path;

/// The most memory that this process has held.
pub(crate) fn peak_memory_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("the kernel tells the peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("the peak is a number") / 1024
}

/// How many descriptors this process has open on `folder` and what lies below it.
pub(crate) fn descriptors_below(folder: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    open.flatten()
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(folder)))
        .count()
}
