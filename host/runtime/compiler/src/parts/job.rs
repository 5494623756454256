//! The inputs of a call, with their limits and used resources.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use toolhold_contract::CancellationToken;

/// Limit of processor time for an input.
const INPUT_TIME: Duration = Duration::from_secs(2);
/// The interval between checks of running parts.
const TICK: Duration = Duration::from_millis(5);

/// The limits of a call.
#[derive(Clone, Debug)]
pub struct PartBounds {
    /// The call's deadline.
    pub deadline: Instant,
    /// Cancels the call.
    pub cancel: CancellationToken,
    /// Processor time of all inputs.
    pub cpu: Duration,
    /// Bytes of all answers.
    pub output: usize,
}

/// The reason why an input has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartError {
    /// The kind of the error.
    pub kind: PartErrorKind,
    /// The error, the limit and the remedy.
    pub message: String,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartErrorKind {
    /// The plugin has no such part.
    Invalid,
    /// The part's file is missing or can't be used.
    Unavailable,
    /// The input reached a limit.
    Limit,
    /// The call ended before this input, or its processor time was used up.
    Budget,
    /// The part reported an error, or crashed.
    Failed,
}

pub(crate) type PartResult = Result<Vec<u8>, PartError>;

pub(crate) struct Job {
    pub(crate) inputs: Vec<Vec<u8>>,
    /// The index of the next input that no thread has taken.
    pub(crate) next: AtomicUsize,
    pub(crate) results: Mutex<Vec<Option<PartResult>>>,
    pub(crate) bounds: PartBounds,
    /// Nanoseconds of used processor time.
    pub(crate) cpu_nanos: AtomicU64,
    /// Bytes that remain for answers.
    pub(crate) output_left: AtomicUsize,
    /// The number of working threads.
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

    /// Interrupts the running parts at each tick, so that they check their limits. Returns when all
    /// threads have ended.
    pub(crate) fn tick(&self, engine: &wasmtime::Engine) {
        let mut working_threads = self.working();
        while *working_threads > 0 {
            let waited = self.ended.wait_timeout(working_threads, TICK);
            (working_threads, _) = waited.unwrap_or_else(PoisonError::into_inner);
            engine.increment_epoch();
        }
    }

    /// Returns the reason why no more inputs may run, if there is one.
    pub(crate) fn end_reason(&self) -> Option<PartError> {
        if self.bounds.cancel.is_cancelled() {
            let message = "the call was cancelled".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        if Instant::now() >= self.bounds.deadline {
            let message = "the call's time limit is reached".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        let cpu_used = Duration::from_nanos(self.cpu_nanos.load(Ordering::SeqCst));
        if cpu_used >= self.bounds.cpu {
            let message = "the call's modules have used up their CPU time".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        None
    }

    /// Subtracts the size of an answer from the bytes that remain for all answers.
    pub(crate) fn admit(&self, output: Vec<u8>) -> Result<Vec<u8>, PartError> {
        let size = output.len();
        let update =
            self.output_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| {
                remaining.checked_sub(size)
            });
        match update {
            Ok(_) => Ok(output),
            Err(remaining) => Err(limit(format!(
                "the module's answer is {size} bytes, but only {remaining} of the {} bytes for all \
                 answers are left; pass fewer inputs at once",
                self.bounds.output
            ))),
        }
    }
}

/// Measures the processor time of an input on its thread.
pub(crate) struct Meter {
    job: Arc<Job>,
    started: Duration,
    /// The thread's time at the last charge.
    charged: Duration,
    /// Set if the part was stopped.
    pub(crate) stopped: Option<PartError>,
}

impl Meter {
    pub(crate) fn start(job: &Arc<Job>) -> Self {
        let started = thread_time();
        Self { job: Arc::clone(job), started, charged: started, stopped: None }
    }

    /// Adds the processor time since the last charge to the time of the call. Returns the processor
    /// time of the input.
    pub(crate) fn charge(&mut self) -> Duration {
        let now = thread_time();
        let uncharged = now.saturating_sub(self.charged);
        // The fallback is never used, because `u64` can count the nanoseconds of centuries.
        let nanos = u64::try_from(uncharged.as_nanos()).unwrap_or(u64::MAX);
        self.job.cpu_nanos.fetch_add(nanos, Ordering::SeqCst);
        self.charged = now;
        now.saturating_sub(self.started)
    }

    /// Checks the limits of the running part. Returns `false` if the part must stop, and stores the
    /// reason.
    pub(crate) fn check(&mut self) -> bool {
        let input_time = self.charge();
        self.stopped = if input_time >= INPUT_TIME {
            let time = INPUT_TIME.as_secs();
            Some(limit(format!("the module takes more than {time} s of CPU time, the limit")))
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
