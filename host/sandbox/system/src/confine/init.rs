//! The first process of a namespace. It starts the program, checks the limits of all processes, and
//! ends them when the program ends.

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
const LOOK: Duration = Duration::from_millis(50);

/// The end of the program.
pub(super) enum End {
    /// The program ended. The number is its exit code, or 128 plus the signal that ended it. The
    /// list has the names of the processes that were still running.
    Exited(i32, Vec<String>),
    /// All processes together reached a limit.
    Reached(Bound),
    /// No process waits for the program any more.
    Alone,
}

/// The processes that are watched.
#[derive(Clone, Copy)]
pub(super) enum ProcessScope {
    /// All processes of this namespace.
    Namespace,
    /// The descendants of a process.
    Below(Pid),
}

/// Waits for the program, `child`, and checks the limits meanwhile. `waiting`: the processes that
/// wait for the answer. If all of them are gone, the watch ends.
pub(super) fn watch(
    child: Pid,
    waiting: &[BorrowedFd<'_>],
    limits: &Limits,
    whose: ProcessScope,
) -> End {
    let Ok(program) = pidfd_open(child, PidfdFlags::empty()) else { return End::Alone };
    let mut next = Instant::now() + LOOK;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds: Vec<PollFd<'_>> =
            waiting.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        fds.push(PollFd::new(&program, PollFlags::IN));
        // An interruption is as good as a timeout.
        let _ = poll(&mut fds, Some(&timeout));
        if fds[..waiting.len()].iter().any(|fd| !fd.revents().is_empty()) {
            return End::Alone;
        }

        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == child {
                let signal_code = status.terminating_signal().map(|signal| 128 + signal);
                let code = status.exit_status().or(signal_code).unwrap_or(1);
                // The kernel may have ended a process at the kernel's own limit before this watcher
                // checked.
                if code != 0 && processor_time(&find(whose)) >= limits.cpu {
                    return End::Reached(Bound::Processor);
                }
                return End::Exited(code, left_behind(whose));
            }
        }

        if Instant::now() >= next {
            if let Some(bound) = reached_bound(limits, whose) {
                return End::Reached(bound);
            }
            next = Instant::now() + LOOK;
        }
    }
}

/// Returns the limit that all processes together have reached, if any.
fn reached_bound(limits: &Limits, whose: ProcessScope) -> Option<Bound> {
    let processes = find(whose);
    // A zombie still has its processor time and its process number, but no thread and no memory.
    if sum(&processes, |process| process.threads) > limits.processes + 1 {
        return Some(Bound::Processes);
    }
    if processor_time(&processes) >= limits.cpu {
        return Some(Bound::Processor);
    }
    // The sum includes shared memory once for each process. The exact number takes longer, so it is
    // only read if the sum is too large.
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

fn find(whose: ProcessScope) -> Vec<Process> {
    match whose {
        ProcessScope::Namespace => processes::all(),
        ProcessScope::Below(pid) => processes::below(pid),
    }
}

/// Most names of processes that are reported.
const MAX_NAMES: usize = 3;

/// The grace period for a process that is about to end by itself, such as a reader of a shell's
/// output.
const MOMENT: Duration = Duration::from_millis(20);

/// The longest time for busy processes to finish their work.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits a little for the other processes to end. Returns the names of the processes that go on
/// after the program.
fn left_behind(whose: ProcessScope) -> Vec<String> {
    let end = Instant::now() + PATIENCE;
    let mut left = running(whose);
    while !left.is_empty() {
        std::thread::sleep(MOMENT);
        let before: Vec<i32> = left.iter().map(|process| process.pid).collect();
        left = running(whose);
        // A shell that waits for a new child process isn't busy itself.
        let goes_on = left.iter().any(|process| process.is_busy || !before.contains(&process.pid));
        let is_over = !goes_on || Instant::now() >= end;
        left.retain(|process| before.contains(&process.pid));
        if is_over {
            break;
        }
    }
    let mut names: Vec<String> = Vec::new();
    for Process { pid, .. } in left {
        let Ok(name) = fs::read(format!("/proc/{pid}/comm")) else { continue };
        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
        if names.len() < MAX_NAMES && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the other processes that haven't ended.
fn running(whose: ProcessScope) -> Vec<Process> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut others = find(whose);
    others.retain(|process| process.pid != own && !process.ended);
    others
}

/// Returns the processor time in seconds of these processes, and of the processes that this process
/// has waited for.
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

/// Returns the memory of a process in bytes, including swapped-out memory and its part of shared
/// memory.
fn exact_memory(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kinds = ["Pss:", "SwapPss:", "Private_Hugetlb:", "Shared_Hugetlb:"];
    kinds.iter().filter_map(|kind| kibibytes(&text, kind)).sum()
}

/// Returns a process's memory outside of its resident pages, in bytes. This is swapped-out memory,
/// and huge pages that the machine reserves. Most machines have neither, and then nothing is read.
fn not_resident_memory(pid: i32) -> u64 {
    static EXISTS: LazyLock<bool> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        ["SwapTotal:", "Hugetlb:"].iter().any(|kind| kibibytes(&text, kind) > Some(0))
    });
    if !*EXISTS {
        return 0;
    }
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["VmSwap:", "HugetlbPages:"].iter().filter_map(|kind| kibibytes(&text, kind)).sum()
}

/// Reads the value with this name, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Ends all other processes in this namespace. This process must be the first one of the namespace.
/// When the function returns, all of them have ended.
pub(super) fn end_all() {
    loop {
        // This number addresses all processes except this one.
        let _ = kill_process_group(Pid::INIT, Signal::KILL);
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
