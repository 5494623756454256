//! Runs a call: admission, a store, the watch, and the outcome.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout};
use toolhold_contract::text::{cut, neutral};
use toolhold_contract::{Call, CancellationToken, Category, Failure, Outcome};
use toolhold_system::files::FileView;
use wasmtime::component::{Instance, InstancePre};
use wasmtime::{Store, UpdateDeadline};

use crate::clock::{TICK, TickGuard};
use crate::code::Code;
use crate::foreign::{Foreign, Input};
use crate::guest::bindings::exports::toolhold::tool::tools;
use crate::guest::bindings::toolhold::tool::types;
use crate::guest::capability::CallFacts;
use crate::guest::contract::ToolExports;
use crate::guest::convert;
use crate::guest::{CallState, Emitted};
use crate::limits::Limits;
use crate::outcome;
use crate::plugin::{LoadedPlugin, Tool};
use crate::session::{KeepError, Turn};
use crate::timing::{CallPlace, CallWatch, StopReason, WatchCheck};
use crate::warm_pool::{Entry, WarmInstance};
use crate::wasi::Files;

/// How long the host waits for a thread after the deadline of its call. The thread may hang in a
/// system call.
const STUCK: Duration = Duration::from_millis(250);

/// Extra handles beyond the host's limit. A guest that has reached the limit still needs some
/// handles to make calls. So the guest gets an error from the function that would add a handle, not
/// a trap.
const HANDLE_SLACK: usize = 64;

/// The data of one call.
struct Job {
    plugin: Arc<LoadedPlugin>,
    code: Arc<Code>,
    tool: usize,
    call: Call,
    watch: Arc<CallWatch>,
    emitted: Emitted,
    /// The place of the call. The guest occupies it until it ends, even after the answer. A hanging
    /// thread doesn't release its place.
    place: CallPlace,
    /// The call's turn with the session's instance, if the plugin has instances for sessions.
    turn: Option<Turn>,
    ticking: TickGuard,
}

/// Runs a call of a plugin's tool.
pub(crate) async fn call(plugin: &Arc<LoadedPlugin>, tool: usize, mut call: Call) -> Outcome {
    let limits = &plugin.policy.limits;
    // The call is cancelled with the caller's token, and when this future is dropped.
    call.cancel = call.cancel.child_token();
    let _cancelled_when_dropped = call.cancel.clone().drop_guard();
    let time = call.time.unwrap_or(limits.call).min(limits.max_call);
    let watch = Arc::new(CallWatch::new(time, limits.bounds(), call.cancel.clone()));
    let code = plugin.code_for(&watch).await?;
    // The call waits for its turn before it takes a place, so that waiting calls of one session
    // take no places from other calls.
    let turn = if plugin.policy.session {
        Some(plugin.instances.turn(&call, &watch).await?)
    } else {
        None
    };
    let place = plugin.runtime.admission.admit(&plugin.name, &watch).await?;
    let emitted = Emitted::default();
    let job = Job {
        plugin: Arc::clone(plugin),
        code,
        tool,
        call,
        watch: Arc::clone(&watch),
        emitted: Arc::clone(&emitted),
        place,
        turn,
        ticking: plugin.runtime.engine.keep_ticking(),
    };
    // Host functions for files run on a thread that may block. Host functions for processes don't
    // request such a thread.
    let blocks = plugin.policy.capabilities.process.is_some();
    // The future has its own allocation, so that moving it to its thread is cheap.
    let outcome = drive(watch, Box::pin(execute(job)), blocks).await;
    outcome::with_emitted(outcome, &emitted)
}

/// Runs a guest to its end, on a thread where it doesn't delay other work. `blocks`: whether the
/// guest's host functions may block without waiting for [`CallWatch::may_block`].
pub(crate) async fn drive<T: Send + 'static>(
    watch: Arc<CallWatch>,
    run: impl Future<Output = Result<T, Failure>> + Send + 'static,
    blocks: bool,
) -> Result<T, Failure> {
    let mut run: Run<T> = Box::pin(metered(Arc::clone(&watch), run));
    if !blocks {
        // The guest may use the caller's thread for one tick, or until it is about to block. Most
        // calls end within a tick, and a move to another thread costs more than such a call.
        watch.set_borrowed(true);
        let polled = poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await;
        if let Poll::Ready(outcome) = polled {
            return outcome;
        }
        watch.set_borrowed(false);
    }

    let reactor = tokio::runtime::Handle::current();
    let watched = Arc::clone(&watch);
    let running =
        tokio::task::spawn_blocking(move || reactor.block_on(until_stopped(run, watched)));
    let mut waiting = pin!(wait_for_thread(running, &watch));
    loop {
        let end = watch.end() + STUCK;
        let time_left = end.saturating_duration_since(Instant::now());
        if let Ok(outcome) = timeout(time_left, waiting.as_mut()).await {
            return outcome;
        }
        // The deadline moves while a call waits for a person's approval.
        let has_moved = watch.end() + STUCK > end;
        if !has_moved {
            // The thread hangs. The host abandons the thread and its place, and answers.
            return Err(watch.stop_failure(StopReason::Timeout));
        }
    }
}

/// A reason why a plugin doesn't list its tools or filters.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error("it does not list its {0}: it takes too long")]
    Timeout(&'static str),
    #[error("it does not list its {what}: {}", .failure.message)]
    Failed { what: &'static str, failure: Box<Failure> },
}

/// A running guest.
type Run<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Asks a plugin for its tools, without grants and under small limits.
pub(crate) async fn list_tools(
    plugin: &LoadedPlugin,
    code: &Code,
) -> Result<Vec<tools::Definition>, ListError> {
    let Some(tools) = code.tools.as_ref().map(ToolExports::list) else { return Ok(Vec::new()) };
    list(plugin, code, "tools", async move |mut store: Store<CallState>, instance| {
        let listed = tools.ask(&mut store, &instance).await;
        (store, listed)
    })
    .await
}

/// Asks a plugin for its tools or filters, in a separate instance. `what`: the plural of the listed
/// items, for errors. `ask`: calls the instance, and returns the store and the answer.
pub(crate) async fn list<T: Send + 'static, A>(
    plugin: &LoadedPlugin,
    code: &Code,
    what: &'static str,
    ask: impl FnOnce(Store<CallState>, Instance) -> A + Send + 'static,
) -> Result<T, ListError>
where
    A: Future<Output = (Store<CallState>, wasmtime::Result<Result<T, types::Failure>>)> + Send,
{
    let limits = plugin.policy.limits.for_listing();
    let cancel = CancellationToken::new();
    let _cancelled_when_dropped = cancel.clone().drop_guard();
    let watch = Arc::new(CallWatch::new(limits.call, limits.bounds(), cancel));
    let mut state = CallState::idle(
        &plugin.name,
        &plugin.policy,
        &limits,
        Files::new(None, 0),
        None,
        Arc::clone(&watch),
    );
    state.stand_still();
    let pre = code.pre.clone();
    let name = Arc::clone(&plugin.name);
    let watched = Arc::clone(&watch);
    let ticking = plugin.runtime.engine.keep_ticking();
    let run = async move {
        let _ticking = ticking;
        let (store, instance) = instantiate(&pre, state, &limits).await;
        let (store, listed) = match instance {
            Ok(instance) => ask(store, instance).await,
            Err(error) => (store, Err(error)),
        };
        match listed {
            Ok(Ok(listed)) => Ok(listed),
            Ok(Err(types::Failure { message, .. })) => {
                Err(Failure::new(Category::PermanentFailure, neutral(cut(&message, 1024))))
            }
            Err(error) => Err(outcome::failure(&watched, &error, &store, &name)),
        }
    };
    drive(watch, run, true).await.map_err(|failure| match failure.category {
        Category::Timeout => ListError::Timeout(what),
        _ => ListError::Failed { what, failure: Box::new(failure) },
    })
}

/// Runs one call in its own store, in a warm instance or a fresh one.
async fn execute(job: Job) -> Outcome {
    let Job { plugin, code, tool, mut call, watch, emitted, place, turn, ticking } = job;
    // The place and the ticker are dropped last, after the store or its handover.
    let _held = (place, ticking);
    let tool: &Tool = &plugin.tools[tool];
    // The arguments are checked before any code of the component runs.
    let input = match &code.foreign {
        Some(foreign) => Some(foreign.check(&tool.guest_name, &call.arguments, &plugin.policy)?),
        None => None,
    };
    // All files that a call reads go through the path layer, which reports them.
    call.report.tracks_reads();
    if turn.is_some() {
        // The host doesn't know what the instance remembers of earlier calls.
        call.report.mark_incomplete();
    }

    let (mut store, entry) = match take_waiting(&code, turn.as_ref()) {
        Some((store, entry)) => (store, Ok(entry)),
        None => fresh(&plugin, &code, &watch, Some(&call)).await,
    };
    let (answer, entry) = match entry {
        Ok(entry) => {
            begin_call(&mut store, &plugin, tool, &call, &watch, emitted).await;
            let answer = match input {
                Some(input) => call_foreign(&mut store, &plugin, &code, &entry, tool, input).await,
                None => call_tool(&mut store, &plugin, &entry, tool, &mut call).await,
            };
            (answer, Some(entry))
        }
        Err(error) => {
            // The instance ended before the call started in it. The log still names the call.
            store.data_mut().call.id = call.id.clone();
            (Err(error), None)
        }
    };

    // A guest that has ended by itself can serve another call in its instance.
    let ended_by_itself = answer.is_ok();
    let outcome = match answer {
        Ok(outcome) => outcome,
        Err(error) => Err(outcome::failure(&watch, &error, &store, &plugin.name)),
    };
    let outcome = explain(outcome, &mut store, tool, &call);
    match (turn, entry) {
        (Some(turn), Some(entry)) if ended_by_itself => {
            keep_for_session(&plugin, &code, &turn, store, entry);
        }
        _ => plugin.runtime.engine.housekeeper.take_over(&plugin, &code, store),
    }
    outcome
}

/// Takes an instance that is ready for a call: the session's instance, or else a warm one.
fn take_waiting(code: &Code, turn: Option<&Turn>) -> Option<(Store<CallState>, Entry)> {
    if let Some(instance) = turn.and_then(Turn::take) {
        return Some(instance);
    }
    let WarmInstance { store, entry } = code.warm_pool.take()?;
    Some((store, entry))
}

/// Gives an instance its call.
async fn begin_call(
    store: &mut Store<CallState>,
    plugin: &LoadedPlugin,
    tool: &Tool,
    call: &Call,
    watch: &Arc<CallWatch>,
    emitted: Emitted,
) {
    // The host doesn't know which files the instance used before it got its arguments.
    if store.data().files.accessed() {
        call.report.mark_incomplete();
        // A warm instance opened files on a thread that may block. Reading or closing them may
        // block too.
        watch.may_block().await;
    }
    let only_reads = tool.definition.annotations.read_only || call.read_only;
    let facts = CallFacts {
        call,
        grants: &plugin.policy,
        parts: &plugin.parts,
        runtime: &plugin.runtime,
        only_reads,
    };
    let view = plugin.policy.files.as_ref().map(|grants| {
        FileView::new(Arc::clone(grants), facts.reads_files_only())
            .reporting_to(&call.report)
            .under(call.path_rules.as_ref(), &call.report)
            .recording(call.changes.as_ref())
    });
    let files = Files::new(view, plugin.policy.limits.written);
    store.data_mut().begin(&facts, files, Arc::clone(watch), emitted);
    store.set_epoch_deadline(1);
}

/// Calls a tool of a plugin. An error is a trap.
async fn call_tool(
    store: &mut Store<CallState>,
    plugin: &LoadedPlugin,
    entry: &Entry,
    tool: &Tool,
    call: &mut Call,
) -> wasmtime::Result<Outcome> {
    let Entry::Tool(exported) = entry else {
        return Err(wasmtime::Error::msg("it exports no tools"));
    };
    let attachments = std::mem::take(&mut call.attachments);
    let invocation = tools::Invocation {
        tool: tool.guest_name.clone(),
        // A value is always valid JSON. Its `to_string` takes longer.
        arguments: serde_json::to_string(&*call.arguments).unwrap_or_default(),
        attachments: attachments.into_iter().map(convert::content_for_guest).collect(),
        meta: call.meta.as_deref().and_then(|meta| serde_json::to_string(meta).ok()),
    };
    let answer = exported.call(&mut *store, invocation).await?;
    Ok(convert_answer(answer, store, &plugin.policy.limits))
}

/// Calls a component that doesn't know Toolhold. An error is a trap.
async fn call_foreign(
    store: &mut Store<CallState>,
    plugin: &LoadedPlugin,
    code: &Code,
    entry: &Entry,
    tool: &Tool,
    input: Input,
) -> wasmtime::Result<Outcome> {
    let (Some(foreign), Entry::Foreign(instance)) = (&code.foreign, entry) else {
        return Err(wasmtime::Error::msg("it exports no tools"));
    };
    foreign.call(store, instance, &tool.guest_name, input, plugin.policy.limits.result).await
}

/// Adds the denial or obstacle that may have caused a failed outcome, and redacts secrets.
fn explain(outcome: Outcome, store: &mut Store<CallState>, tool: &Tool, call: &Call) -> Outcome {
    let running = &store.data().call;
    call.report.entries().printed = running.stdout.written() + running.stderr.written();
    let redacted = outcome::without_secrets(outcome, store.data());
    let explained = outcome::with_obstacle(redacted, store.data());
    let state = store.data_mut();
    outcome::with_denial(explained, state, &call.arguments, &tool.definition, &call.report)
}

/// Stores an instance for the next call of its session, if it can serve another call.
fn keep_for_session(
    plugin: &Arc<LoadedPlugin>,
    code: &Code,
    turn: &Turn,
    mut store: Store<CallState>,
    entry: Entry,
) {
    let housekeeper = &plugin.runtime.engine.housekeeper;
    let kept = match end_call(code, &mut store) {
        Ok(()) => turn.keep(store, entry),
        Err(reason) => {
            housekeeper.take_over(plugin, code, store);
            Err(reason)
        }
    };
    match kept {
        Ok(()) => housekeeper.note_kept(),
        Err(reason) => tracing::warn!(
            plugin = &*plugin.name,
            "its instance isn't kept for the session's next call: {reason}"
        ),
    }
}

/// Ends the call of an instance that will serve another call.
///
/// # Errors
///
/// Returns the reason why the instance can't serve another call.
fn end_call(code: &Code, store: &mut Store<CallState>) -> Result<(), KeepError> {
    if matches!(code.foreign, Some(Foreign::Command(_))) {
        return Err(KeepError::Command);
    }
    if !code.warm_pool.fits {
        return Err(KeepError::Parts);
    }
    if !store.data_mut().end_and_stay() {
        return Err(KeepError::LeftOpen);
    }
    Ok(())
}

/// Converts a guest's answer into the host's outcome.
fn convert_answer(
    answer: Result<types::Output, types::Failure>,
    store: &Store<CallState>,
    limits: &Limits,
) -> Outcome {
    match answer {
        Ok(output) if output.after_emitted => {
            // The emitted parts and the answer together are within the limit for an answer.
            let outcome = convert::outcome(Ok(output), store.data().call.emit_budget);
            outcome::after_emitted(outcome, &store.data().call.emitted)
        }
        answer => convert::outcome(answer, limits.result),
    }
}

/// Makes a fresh instance of a plugin, without a call. `waiting`: the call that needs the instance.
///
/// The component's code can store data that it reads during its instantiation, so the rules of the
/// waiting call apply to it. Without a waiting call, the caller drops the instance if it has read
/// files.
pub(crate) async fn fresh(
    plugin: &LoadedPlugin,
    code: &Code,
    watch: &Arc<CallWatch>,
    waiting: Option<&Call>,
) -> (Store<CallState>, wasmtime::Result<Entry>) {
    let policy = &plugin.policy;
    let view = policy.files.as_ref().map(|grants| {
        let view = FileView::new(Arc::clone(grants), true);
        match waiting {
            Some(call) => {
                view.reporting_to(&call.report).under(call.path_rules.as_ref(), &call.report)
            }
            None => view,
        }
    });
    let directory = match &view {
        Some(_) => policy.directory().and_then(Path::to_str),
        None => None,
    };
    let state = CallState::idle(
        &plugin.name,
        policy,
        &policy.limits,
        Files::new(view, 0),
        directory,
        Arc::clone(watch),
    );
    let (mut store, instance) = instantiate(&code.pre, state, &policy.limits).await;
    let entry = match instance {
        Ok(instance) => find_entry(code, &mut store, instance),
        Err(error) => Err(error),
    };
    (store, entry)
}

/// Finds the exports by which a call enters an instance.
fn find_entry(
    code: &Code,
    store: &mut Store<CallState>,
    instance: Instance,
) -> wasmtime::Result<Entry> {
    if code.foreign.is_some() {
        return Ok(Entry::Foreign(instance));
    }
    let Some(tools) = &code.tools else {
        return Err(wasmtime::Error::msg("it exports no tools"));
    };
    tools.call_tool(store, &instance).map(Entry::Tool)
}

/// Makes a store and sets all its limits. Stores are made only here.
pub(crate) async fn instantiate(
    pre: &InstancePre<CallState>,
    state: CallState,
    limits: &Limits,
) -> (Store<CallState>, wasmtime::Result<Instance>) {
    let mut store = Store::new(pre.engine(), state);
    store.limiter(|state| &mut state.memory);
    store.set_hostcall_fuel(limits.host_allocation);
    store.set_max_component_handles(limits.handles.saturating_add(HANDLE_SLACK));
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        Ok(match store.data().call.watch.check() {
            WatchCheck::Continue => UpdateDeadline::Continue(1),
            WatchCheck::Yield => UpdateDeadline::Yield(1),
            WatchCheck::Stop => UpdateDeadline::Interrupt,
        })
    });
    let instance = pre.instantiate_async(&mut store).await;
    (store, instance)
}

/// Adds the time of each poll to the processor time of the call.
pub(crate) async fn metered<F: Future>(watch: Arc<CallWatch>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        watch.meter.start_poll();
        let polled = future.as_mut().poll(context);
        // The time of a finished call isn't needed.
        if polled.is_pending() {
            watch.meter.end_poll();
        }
        polled
    })
    .await
}

/// Ends a guest that waits in a host function for too long. No guest code runs during the wait, so
/// the ticks can't stop the guest.
async fn until_stopped<T>(mut run: Run<T>, watch: Arc<CallWatch>) -> Result<T, Failure> {
    let mut end = pin!(sleep_until(late_end(&watch)));
    let mut cancelled = pin!(watch.cancel.cancelled());
    poll_fn(|context| {
        // The cancellation is polled first. When the program shuts its reactor down, the guest must
        // not be polled again.
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(watch.stop_failure(StopReason::Cancelled)));
        }
        if let Poll::Ready(outcome) = run.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        while end.as_mut().poll(context).is_ready() {
            let late = late_end(&watch);
            if late <= end.deadline() {
                return Poll::Ready(Err(watch.stop_failure(StopReason::Timeout)));
            }
            // A person was asked meanwhile.
            end.as_mut().reset(late);
        }
        Poll::Pending
    })
    .await
}

/// Returns the time when a waiting guest is stopped. The ticks stop a running guest earlier, so
/// that the stop of the guest itself is reported.
fn late_end(watch: &CallWatch) -> tokio::time::Instant {
    (watch.end() + TICK * 2).into()
}

/// Waits for the thread that runs the call. After a cancellation, waits at most [`STUCK`].
async fn wait_for_thread<T>(
    running: tokio::task::JoinHandle<Result<T, Failure>>,
    watch: &CallWatch,
) -> Result<T, Failure> {
    let mut running = pin!(running);
    let mut late = pin!(async {
        watch.cancel.cancelled().await;
        tokio::time::sleep(STUCK).await;
    });
    poll_fn(|context| {
        if let Poll::Ready(joined) = running.as_mut().poll(context) {
            return Poll::Ready(joined.unwrap_or_else(|_| Err(crate::timing::host_failed())));
        }
        late.as_mut().poll(context).map(|()| Err(watch.stop_failure(StopReason::Cancelled)))
    })
    .await
}
