//! Checks a running guest: its deadline, its processor time and its cancellation.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use berth_contract::{CancellationToken, Failure};
use berth_policy::OwnTable;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep_until;
use wasmtime::UpdateDeadline;

use crate::limits::Limits;
use crate::stop::{self, Stop};

/// The state that the guest's thread and the waiting thread share.
pub(crate) struct Watch {
    pub(crate) meter: Meter,
    pub(crate) cancel: CancellationToken,
    /// The end of the tool's time.
    pub(crate) deadline: Instant,
    /// The time when the guest is stopped: the deadline and a grace.
    pub(crate) end: Instant,
    /// Why the guest was stopped, see [`Stop`].
    stop: AtomicU8,
    /// Whether the guest runs on the caller's thread, which has other work.
    borrowed: AtomicBool,
    /// The time of the tool.
    time: Duration,
    /// Seconds of that time that the call waited for its place.
    waited: AtomicU64,
    cpu: Duration,
    /// The table that raises the limits, for remedies.
    pub(crate) table: Arc<OwnTable>,
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
            table: Arc::clone(&limits.table),
        }
    }

    /// Sets whether the guest runs on the caller's thread. The guest leaves such a thread at the
    /// next check.
    pub(crate) fn set_borrowed(&self, borrowed: bool) {
        self.borrowed.store(borrowed, Ordering::Relaxed);
    }

    /// Whether the guest runs on the caller's thread, which must not block.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.borrowed.load(Ordering::Relaxed)
    }

    /// Moves the call to a thread that may block, if it isn't on one. Host functions wait for this
    /// before everything that may block.
    pub(crate) async fn may_block(&self) {
        poll_fn(|context| {
            if !self.is_borrowed() {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// The processor time that is left. Call it only on the thread that polls the call.
    pub(crate) fn cpu_left(&self) -> Duration {
        self.cpu.saturating_sub(self.meter.used())
    }

    /// The failure of a guest that was stopped. `None` if it wasn't.
    pub(crate) fn failure_if_stopped(&self) -> Option<Failure> {
        Stop::load(&self.stop).map(|stop| self.stop_failure(stop))
    }

    pub(crate) fn stop_failure(&self, stop: Stop) -> Failure {
        let waited = Duration::from_secs(self.waited.load(Ordering::Relaxed));
        stop::failure(stop, self.time, waited, &self.table)
    }

    /// Sets how long the call waited for its place.
    pub(crate) fn set_waited(&self, waited: Duration) {
        self.waited.store(waited.as_secs(), Ordering::Relaxed);
    }

    /// What a call waits for before its guest runs. `Err` if it doesn't come in the tool's time.
    pub(crate) async fn in_time<F: Future>(&self, awaited: F) -> Result<F::Output, Stop> {
        let mut awaited = pin!(awaited);
        let mut cancelled = pin!(self.cancel.cancelled());
        let mut late = pin!(sleep_until(self.deadline.into()));
        poll_fn(|context| {
            if cancelled.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Stop::Cancelled));
            }
            if let Poll::Ready(output) = awaited.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            late.as_mut().poll(context).map(|()| Err(Stop::Timeout))
        })
        .await
    }

    /// Checks a running guest at every [`TICK`](crate::clock::TICK), on the guest's thread.
    pub(crate) fn check(&self) -> UpdateDeadline {
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

/// The processor time of a call: the time of its polls, on any thread, and the time that host
/// functions used on other threads.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds of finished polls and of other threads.
    used: AtomicU64,
    /// The thread's clock at the start of the current poll.
    since: AtomicU64,
}

impl Meter {
    pub(crate) fn start_poll(&self) {
        self.since.store(thread_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn end_poll(&self) {
        self.used.fetch_add(self.current(), Ordering::Relaxed);
    }

    /// Adds the time that other threads used for the call.
    pub(crate) fn charge(&self, time: Duration) {
        self.used.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The time that the call has used. Call it only on the thread that polls the call.
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
