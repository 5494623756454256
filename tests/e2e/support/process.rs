use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

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

const EPERM: u32 = 1;

/// A filter in which system calls fail with `EPERM`.
pub(crate) fn refusing(calls: &[i64]) -> BpfProgram {
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let architecture = std::env::consts::ARCH.try_into().expect("it is known");
    let refused = SeccompAction::Errno(EPERM);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture);
    filter.and_then(TryInto::try_into).expect("it is a filter")
}

/// Runs a program under filters of system calls. They are those of a thread, and of what it starts.
pub(crate) fn output_under(filters: &[BpfProgram], command: &mut Command) -> Output {
    std::thread::scope(|scope| {
        let output = scope.spawn(|| {
            for filter in filters {
                seccompiler::apply_filter(filter).expect("the filter is accepted");
            }
            command.output().expect("it starts")
        });
        output.join().expect("it ends")
    })
}
