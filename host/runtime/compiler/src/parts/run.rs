//! Runs a part on the inputs of one call.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use toolhold_contract::text::{cut, neutral};
use wasmtime::component::Func;
use wasmtime::{Store, UpdateDeadline};

use crate::Compiler;
use crate::parts::code::{Code, Parts};
use crate::parts::engine::{MEMORY, PartEngine, PartState};
use crate::parts::job::{Job, Meter, PartBounds, PartError, PartErrorKind, failed, limit};

/// Most inputs of one call.
pub const MAX_INPUTS: usize = 4096;
/// Most bytes of the answer to one input.
const MAX_OUTPUT: usize = 16 << 20;
/// Most bytes of a part's own error.
const MAX_ERROR: usize = 4096;
/// An instance with more memory isn't used for the next input.
const KEPT_MEMORY: usize = 64 << 20;
/// wasmtime's message about an answer that is too large. Its error has no public type.
const TOO_LARGE: &str = "fuel allocated for hostcalls has been exhausted";
/// Stack of a thread: the guest's stack, and the same size for the host.
const STACK: usize = 4 << 20;

impl Parts {
    /// Runs a part on each of the inputs. Blocks. Returns a result for each input, and the
    /// processor time of all inputs.
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

        // A call always has one thread.
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
                job.begin();
                let name = "toolhold-part".to_owned();
                let builder = thread::Builder::new().name(name).stack_size(STACK);
                let thread = builder.spawn_scoped(scope, || {
                    work(&code, &job);
                    job.end();
                });
                if thread.is_err() {
                    job.end();
                    break;
                }
            }
            job.tick(&engine.wasm);
        });

        let used = Duration::from_nanos(job.used.load(Ordering::SeqCst));
        let mut slots = job.results.lock().unwrap_or_else(PoisonError::into_inner);
        let results = slots.drain(..).map(|result| result.unwrap_or_else(without_thread));
        (results.collect(), used)
    }
}

/// Makes the result for an input that no thread has taken.
fn without_thread() -> Result<Vec<u8>, PartError> {
    Err(PartError {
        kind: PartErrorKind::Unavailable,
        message: "this machine starts no thread for it".to_owned(),
    })
}

/// Processes inputs until there are no more.
fn work(code: &Code, job: &Arc<Job>) {
    let mut instance = None;
    loop {
        let index = job.next.fetch_add(1, Ordering::SeqCst);
        let Some(input) = job.inputs.get(index) else { return };
        let result = match job.end_reason() {
            Some(error) => Err(error),
            None => answer(code, job, &mut instance, input).and_then(|output| job.admit(output)),
        };
        let mut results = job.results.lock().unwrap_or_else(PoisonError::into_inner);
        results[index] = Some(result);
    }
}

/// An instance that can process another input.
type IdleInstance = Option<(Store<PartState>, Func)>;

/// Runs a part on one input, in the idle instance or in a new instance. Stores the instance in
/// `idle` if it can process another input.
fn answer(
    code: &Code,
    job: &Arc<Job>,
    idle: &mut IdleInstance,
    input: &[u8],
) -> Result<Vec<u8>, PartError> {
    let meter = Meter::start(job);
    let (mut store, function) = match idle.take() {
        Some((mut store, function)) => {
            store.data_mut().begin(meter);
            (store, Ok(function))
        }
        None => instantiate(code, meter),
    };
    store.set_epoch_deadline(1);
    store.set_hostcall_fuel(MAX_OUTPUT);
    let result = function.and_then(|function| {
        let run = function.typed::<(&[u8],), (Result<Vec<u8>, String>,)>(&store)?;
        let (answer,) = run.call(&mut store, (input,))?;
        Ok((answer, function))
    });

    let state = store.data_mut();
    state.meter.charge();
    match result {
        Ok((answer, function)) => {
            if state.limiter.used() <= KEPT_MEMORY && !state.limiter.refused() {
                *idle = Some((store, function));
            }
            answer.map_err(|error| failed(neutral(cut(&error, MAX_ERROR)).into_owned()))
        }
        Err(error) => Err(trap_error(&error, state)),
    }
}

/// Makes the error for a part that was stopped, reached a limit or crashed.
fn trap_error(error: &wasmtime::Error, state: &mut PartState) -> PartError {
    if let Some(reason) = state.meter.stopped.take() {
        return reason;
    }
    if state.limiter.refused() {
        return limit(format!("it needs more than {} MiB of memory, the limit", MEMORY >> 20));
    }
    // The cause is at the end of the chain, behind a backtrace of the part.
    let cause = error.root_cause().to_string();
    if cause.contains(TOO_LARGE) {
        return limit(format!("its answer has more than {} MiB, the limit", MAX_OUTPUT >> 20));
    }
    failed(format!("the part crashed: {}", neutral(cut(&cause, MAX_ERROR))))
}

/// Makes a store and sets all its limits. Only this function makes stores of parts.
fn instantiate(code: &Code, meter: Meter) -> (Store<PartState>, wasmtime::Result<Func>) {
    let mut store = Store::new(code.pre.engine(), PartState::new(meter));
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(MAX_OUTPUT);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        let may_go_on = store.data_mut().meter.check();
        Ok(if may_go_on { UpdateDeadline::Continue(1) } else { UpdateDeadline::Interrupt })
    });
    let function = code.pre.instantiate(&mut store).and_then(|instance| {
        let run = instance.get_func(&mut store, code.run);
        run.ok_or_else(|| wasmtime::Error::msg("it has no function `run`"))
    });
    (store, function)
}
