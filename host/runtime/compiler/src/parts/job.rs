//! The inputs of one call, their limits, and their use of resources.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use toolhold_contract::CancellationToken;

/// Time limit for one input, in processor time.
const INPUT_TIME: Duration = Duration::from_secs(2);
/// How often running parts are checked.
const TICK: Duration = Duration::from_millis(5);

/// The limits of one call.
#[derive(Clone, Debug)]
pub struct PartBounds {
    /// The end of the call's time.
    pub deadline: Instant,
    /// Ends the call.
    pub cancel: CancellationToken,
    /// Processor time of all inputs.
    pub cpu: Duration,
    /// Bytes of all answers.
    pub output: usize,
}

/// The reason why an input has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartError {
    /// The kind of the failure.
    pub kind: PartErrorKind,
    /// The fault, the limit and the remedy.
    pub message: String,
}

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartErrorKind {
    /// The plugin has no such part.
    Invalid,
    /// The part's file is missing, or can't be used.
    Unavailable,
    /// One input reached a limit.
    Limit,
    /// The call ended before this input, or has used its granted processor time.
    Budget,
    /// The part reported an error, or crashed.
    Failed,
}

/// The answer to one input.
pub(crate) type PartResult = Result<Vec<u8>, PartError>;

/// The inputs of a call, and their results.
pub(crate) struct Job {
    pub(crate) inputs: Vec<Vec<u8>>,
    /// The next input that no thread has taken.
    pub(crate) next: AtomicUsize,
    pub(crate) results: Mutex<Vec<Option<PartResult>>>,
    pub(crate) bounds: PartBounds,
    /// Nanoseconds of processor time that were used.
    pub(crate) used: AtomicU64,
    /// The number of bytes that answers may still have.
    pub(crate) output: AtomicUsize,
    /// The threads that still work.
    pub(crate) working: Mutex<usize>,
    pub(crate) ended: Condvar,
}

impl Job {
    fn working(&self) -> std::sync::MutexGuard<'_, usize> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self) {
        *self.working() += 1;
    }

    pub(crate) fn end(&self) {
        *self.working() -= 1;
        self.ended.notify_all();
    }

    /// Interrupts the parts periodically for checks until all threads have ended.
    pub(crate) fn tick(&self, engine: &wasmtime::Engine) {
        let mut working = self.working();
        while *working > 0 {
            let waited = self.ended.wait_timeout(working, TICK);
            working = waited.unwrap_or_else(PoisonError::into_inner).0;
            engine.increment_epoch();
        }
    }

    /// Returns the reason why no more inputs may run, or `None` if they may run.
    pub(crate) fn end_reason(&self) -> Option<PartError> {
        if self.bounds.cancel.is_cancelled() {
            let message = "the call was cancelled".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        if Instant::now() >= self.bounds.deadline {
            let message = "the time of the call is over".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        if Duration::from_nanos(self.used.load(Ordering::SeqCst)) >= self.bounds.cpu {
            let message = "the call's parts have used up their processor time".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        None
    }

    /// Subtracts the bytes of an answer from the budget for all answers.
    ///
    /// # Errors
    ///
    /// Returns an error if the budget has fewer bytes.
    pub(crate) fn admit(&self, output: Vec<u8>) -> Result<Vec<u8>, PartError> {
        let size = output.len();
        let update = self
            .output
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(size));
        match update {
            Ok(_) => Ok(output),
            Err(left) => Err(limit(format!(
                "its answer is {size} bytes; of the {} bytes for all answers, {left} are left: give fewer inputs at a time",
                self.bounds.output
            ))),
        }
    }
}

/// Measures the processor time of one input on its thread.
pub(crate) struct Meter {
    job: Arc<Job>,
    started: Duration,
    /// The part of the thread's time that was already added to the call's time.
    charged: Duration,
    /// The reason why the part was stopped.
    pub(crate) stopped: Option<PartError>,
}

impl Meter {
    pub(crate) fn start(job: &Arc<Job>) -> Self {
        let started = thread_time();
        Self { job: Arc::clone(job), started, charged: started, stopped: None }
    }

    /// Adds the time since the last charge to the time of the call. Returns the time of the input.
    pub(crate) fn charge(&mut self) -> Duration {
        let now = thread_time();
        let uncharged = now.saturating_sub(self.charged);
        let nanos = u64::try_from(uncharged.as_nanos()).unwrap_or(u64::MAX);
        self.job.used.fetch_add(nanos, Ordering::SeqCst);
        self.charged = now;
        now.saturating_sub(self.started)
    }

    /// Checks whether the part may continue.
    pub(crate) fn check(&mut self) -> bool {
        self.stopped = if self.charge() >= INPUT_TIME {
            let time = INPUT_TIME.as_secs();
            Some(limit(format!("it takes more than {time} s of processor time, the limit")))
        } else {
            self.job.end_reason()
        };
        self.stopped.is_none()
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let secs = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(secs, nanos)
}

pub(crate) fn limit(message: String) -> PartError {
    PartError { kind: PartErrorKind::Limit, message }
}

pub(crate) fn failed(message: String) -> PartError {
    PartError { kind: PartErrorKind::Failed, message }
}
