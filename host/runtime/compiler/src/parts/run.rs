//! Runs a part on the inputs of a call.

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

/// Most inputs of a call. A call with more is refused.
pub const MAX_INPUTS: usize = 4096;
/// Most bytes of an answer. A larger answer is refused.
const MAX_OUTPUT: usize = 16 << 20;
/// Most bytes of a part's error. Longer errors are cut.
const MAX_ERROR: usize = 4096;
/// An instance with more memory isn't used for another input.
const KEPT_MEMORY: usize = 64 << 20;
/// wasmtime's message for an answer that is too large. The error has no public type, so only its
/// message identifies it.
const TOO_LARGE: &str = "fuel allocated for hostcalls has been exhausted";
/// Stack of a thread, for the guest and the host.
const STACK: usize = 4 << 20;
/// Ticks until the host checks the limits of a running part again.
const TICKS_TO_CHECK: u64 = 1;
const MIB: usize = 1 << 20;

impl Parts {
    /// Runs a part on each input. Blocks. Returns a result for each input, and the used processor
    /// time.
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
            let message = format!("the call has {count} inputs; the limit is {MAX_INPUTS}");
            return (vec![Err(limit(message)); count], Duration::ZERO);
        }
        let code = match self.code(engine, compiler, part) {
            Ok(code) => code,
            Err(error) => return (vec![Err(error); count], Duration::ZERO),
        };

        // Every call has one thread anyway, so spare threads are only for its other inputs.
        let spare_threads = engine.take_threads(count.saturating_sub(1));
        let thread_count = 1 + spare_threads.taken;
        let job = Arc::new(Job {
            next: AtomicUsize::new(0),
            results: Mutex::new(vec![None; count]),
            output_left: AtomicUsize::new(bounds.output),
            bounds,
            cpu_nanos: AtomicU64::new(0),
            working: Mutex::new(0),
            ended: Condvar::new(),
            inputs,
        });
        thread::scope(|scope| {
            for _ in 0..thread_count {
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

        let cpu_used = Duration::from_nanos(job.cpu_nanos.load(Ordering::SeqCst));
        let mut slots = job.results.lock().unwrap_or_else(PoisonError::into_inner);
        let results = slots.drain(..).map(|result| result.unwrap_or_else(without_thread));
        (results.collect(), cpu_used)
    }
}

/// Makes the result of an input that no thread has taken.
fn without_thread() -> Result<Vec<u8>, PartError> {
    Err(PartError {
        kind: PartErrorKind::Unavailable,
        message: "no thread can be started for this input".to_owned(),
    })
}

/// Takes inputs and stores their results until no input is left.
fn work(code: &Code, job: &Arc<Job>) {
    let mut idle_instance = None;
    loop {
        let index = job.next.fetch_add(1, Ordering::SeqCst);
        let Some(input) = job.inputs.get(index) else { return };
        let result = match job.end_reason() {
            Some(error) => Err(error),
            None => match answer(code, job, &mut idle_instance, input) {
                Ok(output) => job.admit(output),
                Err(error) => Err(error),
            },
        };
        let mut results = job.results.lock().unwrap_or_else(PoisonError::into_inner);
        results[index] = Some(result);
    }
}

type IdleInstance = Option<(Store<PartState>, Func)>;

/// Runs a part on an input, in the idle instance or in a new instance. Stores an instance that can
/// be used again in `idle`.
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
    store.set_epoch_deadline(TICKS_TO_CHECK);
    // The fuel bounds the size of the answer.
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
            let is_small = state.limiter.used() <= KEPT_MEMORY;
            if is_small && !state.limiter.refused() {
                *idle = Some((store, function));
            }
            answer.map_err(|error| failed(neutral(cut(&error, MAX_ERROR)).into_owned()))
        }
        Err(error) => Err(trap_error(&error, state)),
    }
}

/// Makes the error of a part that was stopped, reached a limit or crashed.
fn trap_error(error: &wasmtime::Error, state: &mut PartState) -> PartError {
    if let Some(reason) = state.meter.stopped.take() {
        return reason;
    }
    if state.limiter.refused() {
        return limit(format!(
            "the module needs more than {} MiB of memory, the limit",
            MEMORY / MIB
        ));
    }
    // The whole error begins with a backtrace of the part, so only its root cause is used.
    let cause = error.root_cause().to_string();
    if cause.contains(TOO_LARGE) {
        return limit(format!(
            "the module's answer has more than {} MiB, the limit",
            MAX_OUTPUT / MIB
        ));
    }
    failed(format!("the module crashed: {}", neutral(cut(&cause, MAX_ERROR))))
}

/// Makes a store with all its limits, and an instance in it. Returns the store and the part's
/// function. The store is returned after a failure, too, because its state contains the reason.
/// Only this function may make stores of parts, so that each store has the limits.
fn instantiate(code: &Code, meter: Meter) -> (Store<PartState>, wasmtime::Result<Func>) {
    let mut store = Store::new(code.pre.engine(), PartState::new(meter));
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(MAX_OUTPUT);
    store.set_epoch_deadline(TICKS_TO_CHECK);
    store.epoch_deadline_callback(|mut store| {
        let may_go_on = store.data_mut().meter.check();
        Ok(if may_go_on {
            UpdateDeadline::Continue(TICKS_TO_CHECK)
        } else {
            UpdateDeadline::Interrupt
        })
    });
    let function = code.pre.instantiate(&mut store).and_then(|instance| {
        let run = instance.get_func(&mut store, code.run);
        run.ok_or_else(|| wasmtime::Error::msg("the module has no function `run`"))
    });
    (store, function)
}
