//! Finds and kills the descendants of a process, with `/proc`.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, as described in `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// The process ID.
    pub pid: i32,
    parent: i32,
    /// Whether the process has ended. Its parent may not have noticed this yet.
    pub(crate) ended: bool,
    /// Whether the process runs, or waits only for a processor or a disk.
    pub(crate) is_busy: bool,
    pub(crate) threads: u64,
    /// CPU time of the process, and of the children that it has waited for.
    pub(crate) ticks: u64,
    /// Pages of memory.
    pub(crate) pages: u64,
}

/// Returns all processes in `/proc`.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut processes = Vec::new();
    for entry in entries.flatten() {
        // Only the directories of processes have numbers as names.
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        processes.extend(read_process(pid));
    }
    processes
}

/// Positions of numbers in a `stat` file.
const USER_TIME: usize = 14;
const KERNEL_TIME: usize = 15;
const USER_TIME_OF_CHILDREN: usize = 16;
const KERNEL_TIME_OF_CHILDREN: usize = 17;
const THREADS: usize = 20;
const RESIDENT_PAGES: usize = 24;

/// The position of the first field after the name.
const AFTER_NAME: usize = 3;

/// Returns the CPU time of the descendants that this process or a descendant has waited for.
pub(crate) fn waited_for() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    field(&stat, USER_TIME_OF_CHILDREN) + field(&stat, KERNEL_TIME_OF_CHILDREN)
}

/// Returns a number in a `stat` file, or 0 if the number is missing. `position` is the number of
/// the field in the kernel's documentation, and is at least `AFTER_NAME`.
fn field(stat: &str, position: usize) -> u64 {
    // The second field is the name, which may contain any character.
    let Some((_, after_name)) = stat.rsplit_once(')') else { return 0 };
    let field = after_name.split_ascii_whitespace().nth(position - AFTER_NAME);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Reads a process from its `stat` file. Returns `None` if the process is gone.
fn read_process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // Z: zombie, X: dead, R: running, D: waiting for a disk.
    let ended = matches!(state, "Z" | "X");
    let is_busy = matches!(state, "R" | "D");
    let ticks = field(&stat, USER_TIME)
        + field(&stat, KERNEL_TIME)
        + field(&stat, USER_TIME_OF_CHILDREN)
        + field(&stat, KERNEL_TIME_OF_CHILDREN);
    // An ended process has no threads and no memory.
    let threads = if ended { 0 } else { field(&stat, THREADS) };
    let pages = if ended { 0 } else { field(&stat, RESIDENT_PAGES) };
    Some(Process { pid, parent, ended, is_busy, threads, ticks, pages })
}

/// Returns the descendants of a process, generation by generation.
pub fn below(pid: Pid) -> Vec<Process> {
    let mut unrelated = all();
    let mut parents = HashSet::from([pid.as_raw_nonzero().get()]);
    let mut descendants = Vec::new();
    loop {
        let (children, rest): (Vec<Process>, Vec<Process>) =
            unrelated.into_iter().partition(|process| parents.contains(&process.parent));
        if children.is_empty() {
            return descendants;
        }
        parents.extend(children.iter().map(|process| process.pid));
        descendants.extend(children);
        unrelated = rest;
    }
}

/// Maximum number of searches for descendants. A program that forks constantly may escape one
/// search, but not so many.
const MAX_ROUNDS: usize = 1000;

/// Kills all descendants of a process. The process must adopt orphans, because otherwise the
/// descendants of ended processes aren't found.
pub(crate) fn end_below(pid: Pid) {
    for _ in 0..MAX_ROUNDS {
        let mut descendants = below(pid);
        descendants.retain(|process| !process.ended);
        if descendants.is_empty() {
            return;
        }
        // The processes are stopped first, so they can't start new processes.
        for signal in [Signal::STOP, Signal::KILL] {
            for process in &descendants {
                send_signal(process, signal);
            }
        }
        std::thread::yield_now();
    }
}

/// Sends a signal to a process if its parent is still the same. If not, another process may have
/// got its ID.
fn send_signal(process: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if read_process(process.pid).is_some_and(|now| now.parent == process.parent) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}
