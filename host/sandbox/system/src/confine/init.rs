//! The first process of a namespace. It checks the limits of all processes, and kills them when the
//! program ends.

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, wait};

use super::spec::{Bound, Limits};
use crate::processes::{self, Process};

/// Time between two checks of the limits.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub(super) enum End {
    /// The program ended. Contains its exit code, or 128 plus the signal that ended it. Also
    /// contains the names of the processes that were still running.
    Exited(i32, Vec<String>),
    Reached(Bound),
    /// No process waits for the program any more.
    Alone,
}

#[derive(Clone, Copy)]
pub(super) enum ProcessScope {
    Namespace,
    /// The descendants of a process.
    Below(Pid),
}

/// Waits for the program `child` and checks the limits. `waiting` are the processes that wait for
/// the result. If one of them ends, the watch ends.
pub(super) fn watch(
    child: Pid,
    waiting: &[BorrowedFd<'_>],
    limits: &Limits,
    scope: ProcessScope,
) -> End {
    let Ok(program) = pidfd_open(child, PidfdFlags::empty()) else { return End::Alone };
    let mut next = Instant::now() + CHECK_INTERVAL;
    loop {
        let remaining = next.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(remaining).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds: Vec<PollFd<'_>> =
            waiting.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        fds.push(PollFd::new(&program, PollFlags::IN));
        // An interruption has the same effect as a timeout.
        let _ = poll(&mut fds, Some(&timeout));
        if fds[..waiting.len()].iter().any(|fd| !fd.revents().is_empty()) {
            return End::Alone;
        }

        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == child {
                let signal_code = status.terminating_signal().map(|signal| 128 + signal);
                let code = status.exit_status().or(signal_code).unwrap_or(1);
                // The kernel may have killed a process at the kernel's own limit since the last
                // check.
                if code != 0 && processor_time(&find(scope)) >= limits.cpu {
                    return End::Reached(Bound::Processor);
                }
                return End::Exited(code, left_behind(scope));
            }
        }

        if Instant::now() >= next {
            if let Some(bound) = reached_bound(limits, scope) {
                return End::Reached(bound);
            }
            next = Instant::now() + CHECK_INTERVAL;
        }
    }
}

/// Returns the limit that the processes have reached, or `None`.
fn reached_bound(limits: &Limits, scope: ProcessScope) -> Option<Bound> {
    let processes = find(scope);
    // A zombie still has its CPU time and its process ID, but no thread and no memory.
    let threads = sum(&processes, |process| process.threads);
    // The limit doesn't include the only thread of this process.
    if threads > limits.processes + 1 {
        return Some(Bound::Processes);
    }
    if processor_time(&processes) >= limits.cpu {
        return Some(Bound::Processor);
    }
    // The sum includes shared memory once for each process. Reading the exact memory takes longer,
    // so it is read only if the sum is too large.
    let resident = sum(&processes, |process| process.pages).saturating_mul(page_size());
    let not_resident = sum(&processes, |process| not_resident_memory(process.pid));
    if resident.saturating_add(not_resident) <= limits.memory {
        return None;
    }
    let exact = sum(&processes, |process| exact_memory(process.pid));
    if exact > limits.memory { Some(Bound::Memory) } else { None }
}

fn sum(processes: &[Process], amount: fn(&Process) -> u64) -> u64 {
    processes.iter().map(amount).sum()
}

fn find(scope: ProcessScope) -> Vec<Process> {
    match scope {
        ProcessScope::Namespace => processes::all(),
        ProcessScope::Below(pid) => processes::below(pid),
    }
}

/// Names of processes that are reported. Further names are dropped.
const MAX_NAMES: usize = 3;

/// Time for a process that is about to end by itself, such as a reader of a shell's output.
const MOMENT: Duration = Duration::from_millis(20);

/// Longest time for busy processes to finish their work.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits a little for the other processes to end. Returns the names of the processes that are still
/// running.
fn left_behind(scope: ProcessScope) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for Process { pid, .. } in wait_for_others(scope) {
        let Ok(name) = fs::read(format!("/proc/{pid}/comm")) else { continue };
        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
        if names.len() < MAX_NAMES && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Waits until the other processes have ended, or have nothing to do, or the time is over. Returns
/// the processes that are still running.
fn wait_for_others(scope: ProcessScope) -> Vec<Process> {
    let end = Instant::now() + PATIENCE;
    let mut remaining = running(scope);
    while !remaining.is_empty() {
        std::thread::sleep(MOMENT);
        let before: Vec<i32> = remaining.iter().map(|process| process.pid).collect();
        remaining = running(scope);
        // A shell that waits for a new child isn't busy itself, so a new process counts as work.
        let has_work =
            remaining.iter().any(|process| process.is_busy || !before.contains(&process.pid));
        let is_over = !has_work || Instant::now() >= end;
        remaining.retain(|process| before.contains(&process.pid));
        if is_over {
            break;
        }
    }
    remaining
}

fn running(scope: ProcessScope) -> Vec<Process> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut others = find(scope);
    others.retain(|process| process.pid != own && !process.ended);
    others
}

/// Returns the CPU time in seconds of these processes except for this process, and of processes
/// that this process has waited for.
fn processor_time(processes: &[Process]) -> u64 {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let others = processes.iter().filter(|process| process.pid != own);
    let ticks: u64 = others.map(|process| process.ticks).sum();
    (ticks + processes::waited_for()) / TICKS
}

/// Ticks per second in the values of `/proc`.
const TICKS: u64 = 100;

fn page_size() -> u64 {
    static SIZE: LazyLock<u64> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        kibibytes(&text, "KernelPageSize:").unwrap_or(4096)
    });
    *SIZE
}

/// Returns the memory of a process in bytes, with swapped-out memory and its share of shared
/// memory.
fn exact_memory(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kinds = ["Pss:", "SwapPss:", "Private_Hugetlb:", "Shared_Hugetlb:"];
    kinds.iter().filter_map(|kind| kibibytes(&text, kind)).sum()
}

/// Returns the bytes of a process's memory outside of its resident pages: swapped-out memory, and
/// huge pages that the machine reserves. Returns 0 at once if the machine has neither.
fn not_resident_memory(pid: i32) -> u64 {
    static HAS_SUCH_MEMORY: LazyLock<bool> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        ["SwapTotal:", "Hugetlb:"].iter().any(|kind| kibibytes(&text, kind) > Some(0))
    });
    if !*HAS_SUCH_MEMORY {
        return 0;
    }
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["VmSwap:", "HugetlbPages:"].iter().filter_map(|kind| kibibytes(&text, kind)).sum()
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Kills all other processes in this namespace, and returns after they have ended. This process
/// must be the first process of the namespace.
pub(super) fn end_all() {
    loop {
        // The group with this ID stands for all processes in the namespace except this process.
        let _ = kill_process_group(Pid::INIT, Signal::KILL);
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            // This process has no children any more.
            Err(_) => return,
        }
    }
}
