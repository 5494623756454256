//! The first process of a namespace: it starts the program, watches over all of them, and takes
//! them along when it ends.

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, wait};

use super::spec::{Bound, Limits};
use crate::processes::{self, Process};

/// How often the bounds are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What became of the program.
pub(super) enum End {
    /// Its exit code; 128 and the signal where one ended it.
    Exited(i32),
    /// Together they reached a bound.
    Reached(Bound),
    /// Nobody waits any more.
    Alone,
}

/// Which processes are watched.
#[derive(Clone, Copy)]
pub(super) enum ProcessScope {
    /// All of this namespace.
    Namespace,
    /// Those that a process has started, and they in turn.
    Below(Pid),
}

/// Waits for the program, `child`, and looks at the bounds meanwhile. `waiting`: the processes
/// without which nobody waits for the answer.
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
        // An interruption is as good as a look.
        let _ = poll(&mut fds, Some(&timeout));
        if fds[..waiting.len()].iter().any(|fd| !fd.revents().is_empty()) {
            return End::Alone;
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == child {
                return End::Exited(
                    status
                        .exit_status()
                        .or(status.terminating_signal().map(|signal| 128 + signal))
                        .unwrap_or(1),
                );
            }
        }
        if Instant::now() >= next {
            if let Some(bound) = reached(limits, whose) {
                return End::Reached(bound);
            }
            next = Instant::now() + LOOK;
        }
    }
}

/// The bound that all of them have reached together.
fn reached(limits: &Limits, whose: ProcessScope) -> Option<Bound> {
    let processes = match whose {
        ProcessScope::Namespace => processes::all(),
        ProcessScope::Below(pid) => processes::below(pid),
    };
    let sum = |what: fn(&Process) -> u64| processes.iter().map(what).sum::<u64>();
    // What has ended and waits to be told still has its time, and takes its number, but no thread
    // and no memory.
    if sum(|process| process.threads) > limits.processes + 1 {
        return Some(Bound::Processes);
    }
    if sum(|process| process.ticks) / TICKS > limits.cpu {
        return Some(Bound::Processor);
    }
    // What several share was counted for each. Only where that is too much is it worth to look
    // closer.
    let much = sum(|process| process.pages).saturating_mul(page_size()) > limits.memory;
    (much && sum(|process| share(process.pid)) > limits.memory).then_some(Bound::Memory)
}

/// Ticks in a second, as `/proc` counts them for programs.
const TICKS: u64 = 100;

fn page_size() -> u64 {
    static SIZE: LazyLock<u64> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        kibibytes(&text, "KernelPageSize:").unwrap_or(4096)
    });
    *SIZE
}

/// Bytes of memory that a process has, where several have the same, its share of it.
fn share(pid: i32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .ok()
        .and_then(|text| kibibytes(&text, "Pss:"))
        .unwrap_or(0)
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Ends everything else in this namespace, of which this process is the first. Nothing is left when
/// it returns.
pub(super) fn end_all() {
    loop {
        // The group of that number stands for all processes that there are, but this one.
        let _ = kill_process_group(Pid::INIT, Signal::KILL);
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
