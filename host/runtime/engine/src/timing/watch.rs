//! Checks a running call. Stops the call at its deadline, at its limit of processor time or on
//! cancellation.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep_until;
use toolhold_contract::{CancellationToken, Failure};
use toolhold_policy::OwnTable;

use crate::timing::stop::{self, StopReason};

/// The bounds of a call, except its time.
#[derive(Clone, Debug)]
pub struct CallBounds {
    /// The grace period between the deadline of the call and its stop.
    pub grace: Duration,
    /// Processor time.
    pub cpu: Duration,
    /// The table of the configuration that raises the limits, for remedies.
    pub table: Arc<OwnTable>,
}

/// The result of a check of a running call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchCheck {
    /// The call goes on.
    Continue,
    /// The call must leave its thread before it continues.
    Yield,
    /// The call is stopped.
    Stop,
}

/// The pauses of a call. The call's time doesn't include them, since the call waits for a person.
#[derive(Clone, Copy, Debug, Default)]
struct Paused {
    /// The time of the pauses that are over.
    before: Duration,
    /// The start of the pause that lasts.
    since: Option<Instant>,
}

/// The state of a call, shared by the call's own thread and the waiting thread.
#[derive(Debug)]
pub struct CallWatch {
    /// The processor time of the call.
    pub meter: Meter,
    /// Ends the call.
    pub cancel: CancellationToken,
    /// The deadline of the tool, without pauses.
    deadline: Instant,
    /// The grace period between the deadline of the tool and its stop.
    grace: Duration,
    /// The pauses, which the tool's time doesn't include.
    paused: Mutex<Paused>,
    /// The reason why the guest was stopped, see [`StopReason`].
    stop: AtomicU8,
    /// Whether the guest runs on the caller's thread, which also does other work.
    borrowed: AtomicBool,
    /// The time of the tool.
    time: Duration,
    /// How many seconds of that time the call waited for its place.
    waited: AtomicU64,
    cpu: Duration,
    /// The table that raises the limits, for remedies.
    pub table: Arc<OwnTable>,
}

impl CallWatch {
    /// Begins the time of a call.
    pub fn new(time: Duration, bounds: CallBounds, cancel: CancellationToken) -> Self {
        let CallBounds { grace, cpu, table } = bounds;
        Self {
            meter: Meter::default(),
            cancel,
            deadline: Instant::now() + time,
            grace,
            paused: Mutex::default(),
            stop: AtomicU8::new(0),
            borrowed: AtomicBool::new(false),
            time,
            waited: AtomicU64::new(0),
            cpu,
            table,
        }
    }

    /// Returns the end of the tool's time. The end moves while the call waits for a person.
    pub fn deadline(&self) -> Instant {
        let Paused { before, since } = *self.paused();
        let current_pause = since.map_or(Duration::ZERO, |since| since.elapsed());
        self.deadline + before + current_pause
    }

    /// Returns the time when the guest is stopped: the deadline and the grace period.
    pub fn end(&self) -> Instant {
        self.deadline() + self.grace
    }

    /// Runs `wait`, and excludes its duration from the call's time, since it may wait for a person.
    pub fn paused_for<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.paused().since = Some(Instant::now());
        let answer = wait();
        let mut paused = self.paused();
        if let Some(since) = paused.since.take() {
            paused.before += since.elapsed();
        }
        answer
    }

    fn paused(&self) -> MutexGuard<'_, Paused> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether the guest runs on the caller's thread. The guest leaves such a thread at the
    /// next check.
    pub fn set_borrowed(&self, borrowed: bool) {
        self.borrowed.store(borrowed, Ordering::Relaxed);
    }

    /// Checks whether the guest runs on the caller's thread, which must not block.
    pub fn is_borrowed(&self) -> bool {
        self.borrowed.load(Ordering::Relaxed)
    }

    /// Moves the call to a thread that may block, unless it already runs on one. Host functions
    /// must await this before every operation that may block.
    pub async fn may_block(&self) {
        poll_fn(|context| {
            if !self.is_borrowed() {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Returns the remaining processor time. Call this only on the thread that polls the call.
    pub fn cpu_left(&self) -> Duration {
        self.cpu.saturating_sub(self.meter.used())
    }

    /// Returns the failure of a guest that was stopped, or `None` if it wasn't stopped.
    pub fn failure_if_stopped(&self) -> Option<Failure> {
        StopReason::load(&self.stop).map(|stop| self.stop_failure(stop))
    }

    /// Makes the failure of a call that the host stops.
    pub fn stop_failure(&self, stop: StopReason) -> Failure {
        let waited = Duration::from_secs(self.waited.load(Ordering::Relaxed));
        stop::failure(stop, self.time, waited, &self.table)
    }

    /// Adds a time that the call waited for other calls.
    pub fn add_waited(&self, waited: Duration) {
        self.waited.fetch_add(waited.as_secs(), Ordering::Relaxed);
    }

    /// Waits for a resource that a call needs before its guest runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the resource isn't available within the tool's time, or the call is
    /// cancelled.
    pub async fn in_time<F: Future>(&self, awaited: F) -> Result<F::Output, StopReason> {
        let mut awaited = pin!(awaited);
        let mut cancelled = pin!(self.cancel.cancelled());
        let mut late = pin!(sleep_until(self.deadline().into()));
        poll_fn(|context| {
            if cancelled.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(StopReason::Cancelled));
            }
            if let Poll::Ready(output) = awaited.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            late.as_mut().poll(context).map(|()| Err(StopReason::Timeout))
        })
        .await
    }

    /// Checks a running guest, on its thread. The ticks call this every few milliseconds.
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

/// The processor time of a call: the time of its polls, on any thread, and the time that host
/// functions used on other threads.
#[derive(Debug, Default)]
pub struct Meter {
    /// Nanoseconds of finished polls and of other threads.
    used: AtomicU64,
    /// The thread's clock at the start of the current poll.
    since: AtomicU64,
}

impl Meter {
    /// Notes that a poll of the call begins on this thread.
    pub fn start_poll(&self) {
        self.since.store(thread_nanos(), Ordering::Relaxed);
    }

    /// Adds the time of the poll that ends.
    pub fn end_poll(&self) {
        self.used.fetch_add(self.current(), Ordering::Relaxed);
    }

    /// Adds the time that other threads used for the call.
    pub fn charge(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.used.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the time that the call has used. Call this only on the thread that polls the call.
    pub fn used(&self) -> Duration {
        let finished = self.used.load(Ordering::Relaxed);
        Duration::from_nanos(finished.saturating_add(self.current()))
    }

    /// Returns the nanoseconds of the current poll.
    fn current(&self) -> u64 {
        thread_nanos().saturating_sub(self.since.load(Ordering::Relaxed))
    }
}

/// Returns the processor time that the current thread has used, in nanoseconds.
fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs * 1_000_000_000 + nanos
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
