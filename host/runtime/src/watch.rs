//! What is looked at while a guest runs: whether its time is up, its processor time used, or nobody
//! waits any more.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use berth_contract::{CancellationToken, Failure};
use rustix::time::{ClockId, clock_gettime};
use wasmtime::UpdateDeadline;

use crate::limits::Limits;
use crate::stop::{self, Stop};

/// What the thread that runs a guest and the one that waits for it share.
pub(crate) struct Watch {
    pub(crate) meter: Meter,
    pub(crate) cancel: CancellationToken,
    /// When the tool's own time is over.
    pub(crate) deadline: Instant,
    /// When the guest is stopped: a grace after its own time.
    pub(crate) end: Instant,
    /// Why the guest was stopped, see [`Stop`].
    stop: AtomicU8,
    /// Whether the guest runs on a thread that others wait for.
    borrowed: AtomicBool,
    /// The tool's own time.
    time: Duration,
    /// Seconds of it that the call waited for its place.
    waited: AtomicU64,
    cpu: Duration,
}

impl Watch {
    pub(crate) fn new(time: Duration, limits: &Limits, cancel: CancellationToken) -> Self {
        let deadline = Instant::now() + time;
        let (stop, borrowed, waited) =
            (AtomicU8::new(0), AtomicBool::new(false), AtomicU64::new(0));
        Self {
            meter: Meter::default(),
            cancel,
            deadline,
            end: deadline + limits.grace,
            stop,
            borrowed,
            time,
            waited,
            cpu: limits.cpu,
        }
    }

    /// Says whether the guest runs on a thread that others wait for. It gives such a thread back at
    /// the next look.
    pub(crate) fn set_borrowed(&self, borrowed: bool) {
        self.borrowed.store(borrowed, Ordering::Relaxed);
    }

    /// Processor time that may still be used. Only to be asked on the thread that polls the call.
    pub(crate) fn cpu_left(&self) -> Duration {
        self.cpu.saturating_sub(self.meter.used())
    }

    /// What the guest is told to have failed with, where it was stopped.
    pub(crate) fn stopped_by(&self) -> Option<Failure> {
        Stop::load(&self.stop).map(|stop| self.stopped(stop))
    }

    pub(crate) fn stopped(&self, stop: Stop) -> Failure {
        stop::stopped(stop, self.time, Duration::from_secs(self.waited.load(Ordering::Relaxed)))
    }

    /// Says how long the call waited for its place.
    pub(crate) fn set_waited(&self, waited: Duration) {
        self.waited.store(waited.as_secs(), Ordering::Relaxed);
    }

    /// Looks at a running guest, every [`TICK`](crate::clock::TICK), from the thread that runs it.
    pub(crate) fn look(&self) -> UpdateDeadline {
        let stop = if self.cancel.is_cancelled() {
            Stop::Cancelled
        } else if Instant::now() >= self.end {
            Stop::Timeout
        } else if self.cpu_left().is_zero() {
            Stop::Cpu
        } else if self.borrowed.load(Ordering::Relaxed) {
            return UpdateDeadline::Yield(1);
        } else {
            return UpdateDeadline::Continue(1);
        };
        stop.store(&self.stop);
        UpdateDeadline::Interrupt
    }
}

/// What a call has used of a processor: the time of whatever thread polled it, while it did, and
/// what host functions used on others.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds of polls that are over, and of helping threads.
    used: AtomicU64,
    /// The thread's clock when the poll began that is running now.
    since: AtomicU64,
}

impl Meter {
    pub(crate) fn poll_begins(&self) {
        self.since.store(thread_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn poll_ends(&self) {
        self.used.fetch_add(self.current(), Ordering::Relaxed);
    }

    /// Adds what other threads worked for the call.
    pub(crate) fn charge(&self, time: Duration) {
        self.used.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What the call has used. Only to be asked on the thread that polls it.
    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Ordering::Relaxed).saturating_add(self.current()))
    }

    fn current(&self) -> u64 {
        thread_nanos().saturating_sub(self.since.load(Ordering::Relaxed))
    }
}

fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
