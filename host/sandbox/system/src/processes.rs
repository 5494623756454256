//! Finds and ends the descendants of a process, by `/proc`.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process.
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
    /// The processor time of the process and of the children that it has waited for.
    pub(crate) ticks: u64,
    /// Pages of memory.
    pub(crate) pages: u64,
}

/// Returns all visible processes.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(read_process)
        .collect()
}

/// Returns the processor time of the descendants that this process, or a descendant, has waited
/// for.
pub(crate) fn waited_for() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    field(&stat, 16) + field(&stat, 17)
}

/// Returns a number in a `stat` file, by its position in the kernel's documentation, where 1 is the
/// first position. Returns 0 if the number is missing.
fn field(stat: &str, position: usize) -> u64 {
    // The second field is the name, which may contain any character.
    let Some((_, after_name)) = stat.rsplit_once(')') else { return 0 };
    let field = after_name.split_ascii_whitespace().nth(position - 3);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn read_process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let ended = matches!(state, "Z" | "X");
    let is_busy = matches!(state, "R" | "D");
    let ticks = field(&stat, 14) + field(&stat, 15) + field(&stat, 16) + field(&stat, 17);
    let (threads, pages) = if ended { (0, 0) } else { (field(&stat, 20), field(&stat, 24)) };
    Some(Process { pid, parent, ended, is_busy, threads, ticks, pages })
}

/// Returns the descendants of a process.
pub fn below(pid: Pid) -> Vec<Process> {
    let mut others = all();
    let mut parents = HashSet::from([pid.as_raw_nonzero().get()]);
    let mut descendants = Vec::new();
    loop {
        let (children, rest): (Vec<Process>, Vec<Process>) =
            others.into_iter().partition(|process| parents.contains(&process.parent));
        if children.is_empty() {
            return descendants;
        }
        parents.extend(children.iter().map(|process| process.pid));
        descendants.extend(children);
        others = rest;
    }
}

/// How often the search for descendants is repeated. A program that forks constantly may be faster
/// than one round, but not in all rounds.
const ROUNDS: usize = 1000;

/// Ends all descendants of a process. The process must adopt orphans, since otherwise their
/// descendants aren't found.
pub(crate) fn end_below(pid: Pid) {
    for _ in 0..ROUNDS {
        let mut descendants = below(pid);
        descendants.retain(|process| !process.ended);
        if descendants.is_empty() {
            return;
        }
        // The processes are stopped first, so that they can't start new ones.
        for signal in [Signal::STOP, Signal::KILL] {
            for process in &descendants {
                send_signal(process, signal);
            }
        }
        std::thread::yield_now();
    }
}

/// Sends a signal to a process if its parent is still the same. Otherwise, another process may have
/// got its number.
fn send_signal(process: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if read_process(process.pid).is_some_and(|now| now.parent == process.parent) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}
