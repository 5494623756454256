//! Runs a part on the inputs of one call.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use berth_compiler::Compiler;
use berth_contract::CancellationToken;
use berth_contract::text::{cut, neutral};
use rustix::time::{ClockId, clock_gettime};
use wasmtime::component::Func;
use wasmtime::{Store, UpdateDeadline};

use crate::code::{Code, Parts};
use crate::engine::{MEMORY, PartEngine, PartState};

/// Most inputs of one call.
pub const MAX_INPUTS: usize = 4096;
/// Processor time of one input.
const INPUT_TIME: Duration = Duration::from_secs(2);
/// Most bytes of the answer to one input.
const MAX_OUTPUT: usize = 16 << 20;
/// Most bytes of a part's own error.
const MAX_ERROR: usize = 4096;
/// An instance with more memory isn't used for the next input.
const KEPT_MEMORY: usize = 64 << 20;
/// Stack of a thread: that of the guest, and as much for the host.
const STACK: usize = 4 << 20;
/// How often running parts are checked.
const TICK: Duration = Duration::from_millis(5);

/// What one call may use.
#[derive(Clone, Debug)]
pub struct PartBounds {
    /// When its time is over.
    pub deadline: Instant,
    /// Ends it.
    pub cancel: CancellationToken,
    /// Processor time of all inputs.
    pub cpu: Duration,
    /// Bytes of all answers.
    pub output: usize,
}

/// Why an input has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartError {
    /// What kind of failure it is.
    pub kind: PartErrorKind,
    /// What was wrong, the limit, and what to do.
    pub message: String,
}

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartErrorKind {
    /// The plugin has no such part.
    Invalid,
    /// Its file is missing, or can't be used.
    Unavailable,
    /// A limit of one input.
    Limit,
    /// The call ended before this input, or the processor time that the operator granted it.
    Budget,
    /// The part reported an error, or crashed.
    Failed,
}

/// The answer to one input.
type PartResult = Result<Vec<u8>, PartError>;

/// The inputs of a call, and what becomes of them.
struct Job {
    inputs: Vec<Vec<u8>>,
    /// The next input that nobody has.
    next: AtomicUsize,
    results: Mutex<Vec<Option<PartResult>>>,
    bounds: PartBounds,
    /// Nanoseconds of processor time that were used.
    used: AtomicU64,
    /// Bytes of answers that are left.
    output: AtomicUsize,
    /// The threads that still work.
    working: Mutex<usize>,
    ended: Condvar,
}

impl Parts {
    /// Runs a part on each of the inputs. Returns a result for each, and the processor time that
    /// they took. Blocks.
    pub fn run(
        &self,
        engine: &PartEngine,
        compiler: &Compiler,
        part: &str,
        inputs: Vec<Vec<u8>>,
        bounds: PartBounds,
    ) -> (Vec<Result<Vec<u8>, PartError>>, Duration) {
        let count = inputs.len();
        if count > MAX_INPUTS {
            let message = format!("{count} inputs; the limit is {MAX_INPUTS}");
            return (vec![Err(limit(message)); count], Duration::ZERO);
        }
        let code = match self.code(engine, compiler, part) {
            Ok(code) => code,
            Err(error) => return (vec![Err(error); count], Duration::ZERO),
        };
        let threads = engine.take_threads(count.saturating_sub(1));
        let job = Arc::new(Job {
            next: AtomicUsize::new(0),
            results: Mutex::new(vec![None; count]),
            output: AtomicUsize::new(bounds.output),
            bounds,
            used: AtomicU64::new(0),
            working: Mutex::new(0),
            ended: Condvar::new(),
            inputs,
        });
        thread::scope(|scope| {
            for _ in 0..=threads.taken.min(count) {
                let work = || {
                    work(&code, &job);
                    job.end();
                };
                *job.working() += 1;
                let name = "berth-part".to_owned();
                let builder = thread::Builder::new().name(name).stack_size(STACK);
                if builder.spawn_scoped(scope, work).is_err() {
                    job.end();
                    break;
                }
            }
            job.tick(engine);
        });
        let used = Duration::from_nanos(job.used.load(Ordering::SeqCst));
        let mut results = job.results.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || {
            Err(PartError {
                kind: PartErrorKind::Unavailable,
                message: "this machine starts no thread for it".to_owned(),
            })
        };
        (results.drain(..).map(|result| result.unwrap_or_else(missing)).collect(), used)
    }
}

impl Job {
    fn working(&self) -> std::sync::MutexGuard<'_, usize> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        *self.working() -= 1;
        self.ended.notify_all();
    }

    /// Interrupts the parts again and again, so that they are checked, until all threads have
    /// ended.
    fn tick(&self, engine: &PartEngine) {
        let mut working = self.working();
        while *working > 0 {
            let waited = self.ended.wait_timeout(working, TICK);
            working = waited.unwrap_or_else(PoisonError::into_inner).0;
            engine.wasm.increment_epoch();
        }
    }

    /// Why no more may run.
    fn over(&self) -> Option<PartError> {
        if self.bounds.cancel.is_cancelled() {
            let message = "the call was cancelled".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        if Instant::now() >= self.bounds.deadline {
            let message = "the time of the call is over".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        if Duration::from_nanos(self.used.load(Ordering::SeqCst)) >= self.bounds.cpu {
            let message = "the processor time that the call's parts may use is used up".to_owned();
            return Some(PartError { kind: PartErrorKind::Budget, message });
        }
        None
    }

    /// Takes the bytes of an answer out of those that are left.
    fn admit(&self, output: Vec<u8>) -> Result<Vec<u8>, PartError> {
        let size = output.len();
        let take = |left: usize| left.checked_sub(size);
        match self.output.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => Ok(output),
            Err(left) => Err(limit(format!(
                "its answer is {size} bytes; of {} for all answers together, {left} are left: give \
                 fewer inputs at a time",
                self.bounds.output
            ))),
        }
    }
}

/// Works on inputs until there are no more.
fn work(code: &Code, job: &Arc<Job>) {
    let mut instance = None;
    loop {
        let index = job.next.fetch_add(1, Ordering::SeqCst);
        let Some(input) = job.inputs.get(index) else { return };
        let result = match job.over() {
            Some(error) => Err(error),
            None => answer(code, job, &mut instance, input).and_then(|output| job.admit(output)),
        };
        let mut results = job.results.lock().unwrap_or_else(PoisonError::into_inner);
        results[index] = Some(result);
    }
}

/// An instance that may get another input.
type Kept = Option<(Store<PartState>, Func)>;

fn answer(
    code: &Code,
    job: &Arc<Job>,
    kept: &mut Kept,
    input: &[u8],
) -> Result<Vec<u8>, PartError> {
    let meter = Meter::start(job);
    let (mut store, function) = match kept.take() {
        Some((mut store, function)) => {
            store.data_mut().begin(meter);
            (store, Ok(function))
        }
        None => instantiate(code, meter),
    };
    store.set_epoch_deadline(1);
    store.set_hostcall_fuel(MAX_OUTPUT);
    let answer = function.and_then(|function| {
        let run = function.typed::<(&[u8],), (Result<Vec<u8>, String>,)>(&store)?;
        let (answer,) = run.call(&mut store, (input,))?;
        Ok((answer, function))
    });
    let state = store.data_mut();
    state.meter.charge();
    match answer {
        Ok((answer, function)) => {
            if state.limiter.used() <= KEPT_MEMORY && !state.limiter.refused {
                *kept = Some((store, function));
            }
            answer.map_err(|error| failed(neutral(cut(&error, MAX_ERROR)).into_owned()))
        }
        Err(error) => Err(match state.meter.stopped.take() {
            Some(stopped) => stopped,
            None if state.limiter.refused => {
                limit(format!("it needs more than {} MiB of memory, the limit", MEMORY >> 20))
            }
            None => {
                // The cause is at the end of the chain, behind a backtrace of the part.
                let cause = error.root_cause().to_string();
                failed(format!("the part crashed: {}", neutral(cut(&cause, MAX_ERROR))))
            }
        }),
    }
}

/// Makes a store and sets all its limits. No other place makes stores of parts.
fn instantiate(code: &Code, meter: Meter) -> (Store<PartState>, wasmtime::Result<Func>) {
    let mut store = Store::new(code.pre.engine(), PartState::new(meter));
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(MAX_OUTPUT);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        let go_on = store.data_mut().meter.check();
        Ok(if go_on { UpdateDeadline::Continue(1) } else { UpdateDeadline::Interrupt })
    });
    let function = code.pre.instantiate(&mut store).and_then(|instance| {
        let found = instance.get_func(&mut store, code.run);
        found.ok_or_else(|| wasmtime::Error::msg("it has no function `run`"))
    });
    (store, function)
}

/// The processor time of one input, on its thread.
pub(crate) struct Meter {
    job: Arc<Job>,
    started: Duration,
    /// Until when the time was added to that of the call.
    charged: Duration,
    /// Why it was stopped.
    stopped: Option<PartError>,
}

impl Meter {
    fn start(job: &Arc<Job>) -> Self {
        let started = thread_time();
        Self { job: Arc::clone(job), started, charged: started, stopped: None }
    }

    fn charge(&mut self) -> Duration {
        let now = thread_time();
        let more = now.saturating_sub(self.charged);
        let more = u64::try_from(more.as_nanos()).unwrap_or(u64::MAX);
        self.job.used.fetch_add(more, Ordering::SeqCst);
        self.charged = now;
        now.saturating_sub(self.started)
    }

    /// Whether the part may go on.
    fn check(&mut self) -> bool {
        self.stopped = if self.charge() >= INPUT_TIME {
            let time = INPUT_TIME.as_secs();
            Some(limit(format!("it takes more than {time} s of processor time, the limit")))
        } else {
            self.job.over()
        };
        self.stopped.is_none()
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

fn limit(message: String) -> PartError {
    PartError { kind: PartErrorKind::Limit, message }
}

fn failed(message: String) -> PartError {
    PartError { kind: PartErrorKind::Failed, message }
}
