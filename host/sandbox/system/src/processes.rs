//! Finds and ends the descendants of a process, by `/proc`.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    parent: i32,
    /// Whether it has ended, and perhaps waits for its parent to notice.
    pub(crate) ended: bool,
    /// Whether it waits for nothing but a processor or a disk.
    pub(crate) is_busy: bool,
    pub(crate) threads: u64,
    /// Processor time of itself and of the children that it has waited for.
    pub(crate) ticks: u64,
    /// Pages of memory.
    pub(crate) pages: u64,
}

/// All visible processes.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(look_at)
        .collect()
}

/// Processor time of the descendants that this process, or a descendant, has waited for.
pub(crate) fn waited_for() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    field(&stat, 16) + field(&stat, 17)
}

/// A number in a `stat` file, by its position.
fn field(stat: &str, number: usize) -> u64 {
    // After the name, which may hold any character, come the fields from the third on.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = rest.split_ascii_whitespace().nth(number - 3);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn look_at(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = field(&stat, 14) + field(&stat, 15) + field(&stat, 16) + field(&stat, 17);
    let ended = matches!(fields.first(), Some(&("Z" | "X")));
    let is_busy = matches!(fields.first(), Some(&("R" | "D")));
    let (threads, pages) = if ended { (0, 0) } else { (field(&stat, 20), field(&stat, 24)) };
    Some(Process { pid, parent, ended, is_busy, threads, ticks, pages })
}

/// The descendants of a process.
pub fn below(pid: Pid) -> Vec<Process> {
    let mut left = all();
    let mut parents = HashSet::from([pid.as_raw_nonzero().get()]);
    let mut found = Vec::new();
    loop {
        let (next, rest): (Vec<Process>, Vec<Process>) =
            left.into_iter().partition(|process| parents.contains(&process.parent));
        if next.is_empty() {
            return found;
        }
        parents.extend(next.iter().map(|process| process.pid));
        found.extend(next);
        left = rest;
    }
}

/// How often the rest is searched: a program that multiplies is a little quicker than its end, but
/// not for ever.
const ROUNDS: usize = 1000;

/// Ends all descendants of a process. It must adopt orphans, or their descendants aren't found.
pub(crate) fn end_below(pid: Pid) {
    for _ in 0..ROUNDS {
        let found: Vec<Process> = below(pid).into_iter().filter(|process| !process.ended).collect();
        if found.is_empty() {
            return;
        }
        // They are stopped first, so that no new ones start meanwhile.
        for signal in [Signal::STOP, Signal::KILL] {
            for process in &found {
                let handle = Pid::from_raw(process.pid)
                    .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                // The number may belong to another process by now: only a process that still has
                // the same parent is ended.
                if let Some(handle) = handle
                    && look_at(process.pid).is_some_and(|now| now.parent == process.parent)
                {
                    let _ = pidfd_send_signal(&handle, signal);
                }
            }
        }
        std::thread::yield_now();
    }
}
