//! Measures a running call, and stops it at a limit or on cancellation.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep_until;
use toolhold_contract::{CancellationToken, Failure, WaitClock};
use toolhold_policy::OwnTable;

use crate::timing::stop::{self, StopReason};

/// The limits of a call besides its time.
#[derive(Clone, Debug)]
pub struct CallBounds {
    /// Time for the guest to end by itself after its deadline.
    pub grace: Duration,
    /// Processor time.
    pub cpu: Duration,
    /// The table of the configuration with the limits, which error messages name.
    pub table: Arc<OwnTable>,
}

/// The result of checking a running call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchCheck {
    /// The call continues.
    Continue,
    /// The call must move to another thread.
    Yield,
    /// The call was stopped.
    Stop,
}

/// The time and state of a call. Its own thread and the waiting thread share this value.
#[derive(Debug)]
pub struct CallWatch {
    /// The processor time of the call.
    pub meter: Meter,
    /// Cancels the call.
    pub cancel: CancellationToken,
    /// The deadline if the call never waits for a person.
    deadline: Instant,
    grace: Duration,
    /// Measures the waits for a person, which don't count as time of the call.
    pub waits: Arc<WaitClock>,
    /// A [`StopReason`], or zero.
    stop: AtomicU8,
    /// Whether the guest runs on the caller's thread, which also does other work.
    borrowed: AtomicBool,
    time: Duration,
    /// Seconds of waiting for other calls.
    waited: AtomicU64,
    cpu: Duration,
    /// The table of the configuration with the limits, which error messages name.
    pub table: Arc<OwnTable>,
}

impl CallWatch {
    /// Starts the time of a call.
    pub fn new(time: Duration, bounds: CallBounds, cancel: CancellationToken) -> Self {
        let CallBounds { grace, cpu, table } = bounds;
        Self {
            meter: Meter::default(),
            cancel,
            deadline: Instant::now() + time,
            grace,
            waits: Arc::default(),
            stop: AtomicU8::new(0),
            borrowed: AtomicBool::new(false),
            time,
            waited: AtomicU64::new(0),
            cpu,
            table,
        }
    }

    /// Returns the deadline. The deadline moves while the call waits for a person.
    pub fn deadline(&self) -> Instant {
        self.deadline + self.waits.total()
    }

    /// Returns when the guest is stopped: the deadline and the grace period.
    pub fn end(&self) -> Instant {
        self.deadline() + self.grace
    }

    /// Runs `wait`, which waits for a person, while the call's time pauses.
    pub fn paused_for<T>(&self, wait: impl FnOnce() -> T) -> T {
        let _open = self.waits.start();
        wait()
    }

    /// Sets whether the guest runs on the caller's thread. If so, the guest leaves this thread at
    /// the next check.
    pub fn set_borrowed(&self, borrowed: bool) {
        self.borrowed.store(borrowed, Ordering::Relaxed);
    }

    /// Checks whether the guest runs on the caller's thread, which must not block.
    pub fn is_borrowed(&self) -> bool {
        self.borrowed.load(Ordering::Relaxed)
    }

    /// Moves the call to a thread that may block. Host functions must await this before they block.
    pub async fn may_block(&self) {
        poll_fn(|context| {
            if !self.is_borrowed() {
                return Poll::Ready(());
            }
            // `run::drive` sees that the guest waits, and moves the call to a thread that may
            // block.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Returns the remaining processor time. Valid only on the thread that polls the call.
    pub fn cpu_left(&self) -> Duration {
        self.cpu.saturating_sub(self.meter.used())
    }

    /// Returns the failure of a stopped guest. Returns `None` if it wasn't stopped.
    pub fn failure_if_stopped(&self) -> Option<Failure> {
        StopReason::load(&self.stop).map(|stop| self.stop_failure(stop))
    }

    /// Makes the failure for a stop.
    pub fn stop_failure(&self, stop: StopReason) -> Failure {
        let waited = Duration::from_secs(self.waited.load(Ordering::Relaxed));
        stop::failure(stop, self.time, waited, &self.table)
    }

    /// Adds time that the call waited for other calls.
    pub fn add_waited(&self, waited: Duration) {
        self.waited.fetch_add(waited.as_secs(), Ordering::Relaxed);
    }

    /// Waits for `awaited` until the call's deadline.
    ///
    /// # Errors
    ///
    /// Returns the reason if the deadline has passed or the call is cancelled.
    pub async fn in_time<F: Future>(&self, awaited: F) -> Result<F::Output, StopReason> {
        let mut awaited = pin!(awaited);
        let mut cancelled = pin!(self.cancel.cancelled());
        let mut late = pin!(sleep_until(self.deadline().into()));
        // This is a `select!` with a fixed order.
        poll_fn(|context| {
            if cancelled.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(StopReason::Cancelled));
            }
            if let Poll::Ready(output) = awaited.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            if late.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(StopReason::Timeout));
            }
            Poll::Pending
        })
        .await
    }

    /// Checks a running guest. Each tick calls this on the guest's thread.
    pub fn check(&self) -> WatchCheck {
        let stop = if self.cancel.is_cancelled() {
            StopReason::Cancelled
        } else if Instant::now() >= self.end() {
            StopReason::Timeout
        } else if self.cpu_left().is_zero() {
            StopReason::Cpu
        } else if self.borrowed.load(Ordering::Relaxed) {
            return WatchCheck::Yield;
        } else {
            return WatchCheck::Continue;
        };
        stop.store(&self.stop);
        WatchCheck::Stop
    }
}

/// The processor time of a call: of its polls, and of other threads that work for its host
/// functions.
#[derive(Debug, Default)]
pub struct Meter {
    used: AtomicU64,
    /// The thread's processor time at the start of the current poll.
    since: AtomicU64,
}

impl Meter {
    /// Starts measuring a poll on this thread.
    pub fn start_poll(&self) {
        self.since.store(thread_nanos(), Ordering::Relaxed);
    }

    /// Adds the time of the current poll.
    pub fn end_poll(&self) {
        self.used.fetch_add(self.current(), Ordering::Relaxed);
    }

    /// Adds time that other threads used for the call.
    pub fn charge(&self, time: Duration) {
        // The fallback is never used, because `u64` can count the nanoseconds of centuries.
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.used.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the used time. Valid only on the thread that polls the call.
    pub fn used(&self) -> Duration {
        let finished = self.used.load(Ordering::Relaxed);
        Duration::from_nanos(finished.saturating_add(self.current()))
    }

    fn current(&self) -> u64 {
        thread_nanos().saturating_sub(self.since.load(Ordering::Relaxed))
    }
}

/// Returns the processor time of the current thread in nanoseconds.
fn thread_nanos() -> u64 {
    const NANOS_A_SECOND: u64 = 1_000_000_000;
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Processor times are never negative, so the fallbacks are never used.
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs * NANOS_A_SECOND + nanos
}

#[cfg(test)]
mod tests {
    use toolhold_contract::CancellationToken;

    use super::*;

    #[test]
    fn pause_moves_the_deadline() {
        let bounds = CallBounds {
            grace: Duration::from_secs(5),
            cpu: Duration::from_secs(1),
            table: Arc::new(OwnTable::default()),
        };
        let watch = CallWatch::new(Duration::from_secs(1), bounds, CancellationToken::new());
        let (deadline, end) = (watch.deadline(), watch.end());
        assert_eq!(end, deadline + Duration::from_secs(5));
        let started = Instant::now();
        let during = watch.paused_for(|| {
            while started.elapsed() < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
            watch.deadline()
        });
        assert!(during >= deadline + Duration::from_millis(1), "it moves while the pause lasts");
        let after = watch.deadline();
        assert!(after >= during && watch.deadline() == after, "and stays then");
    }
}
