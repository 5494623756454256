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

/// Time after a call's deadline for which the host waits for the call's thread. The thread may hang
/// in a system call.
const STUCK: Duration = Duration::from_millis(250);

/// Handles that wasmtime allows in addition to the limit. At the limit, host functions return an
/// error to the guest. Without the slack, the guest would trap instead, because calls need handles,
/// too.
const HANDLE_SLACK: usize = 64;

/// Most bytes of the message of a plugin that can't list its tools or filters.
const MAX_MESSAGE: usize = 1024;

/// Ticks until the host checks a running guest again.
pub(crate) const TICKS_TO_CHECK: u64 = 1;

struct Job {
    plugin: Arc<LoadedPlugin>,
    code: Arc<Code>,
    tool_index: usize,
    call: Call,
    watch: Arc<CallWatch>,
    emitted: Emitted,
    /// The slot of the call. The guest keeps the slot until it ends, even if it hangs after the
    /// answer.
    place: CallPlace,
    /// Set if the plugin has instances for sessions.
    turn: Option<Turn>,
    ticking: TickGuard,
}

/// Runs a call of the tool with the index `tool_index` in the plugin's tools.
pub(crate) async fn call(plugin: &Arc<LoadedPlugin>, tool_index: usize, mut call: Call) -> Outcome {
    let limits = &plugin.policy.limits;
    // The caller's token cancels the call, and dropping this future cancels it too.
    call.cancel = call.cancel.child_token();
    let _cancelled_when_dropped = call.cancel.clone().drop_guard();
    let time = call.time.unwrap_or(limits.call).min(limits.max_call);
    let watch = Arc::new(CallWatch::new(time, limits.bounds(), call.cancel.clone()));
    let code = plugin.code_for(&watch).await?;
    // The call waits for its turn before it takes a slot. A waiting call must not occupy a slot,
    // because calls of other sessions need it.
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
        tool_index,
        call,
        watch: Arc::clone(&watch),
        emitted: Arc::clone(&emitted),
        place,
        turn,
        ticking: plugin.runtime.engine.keep_ticking(),
    };

    // Host functions for processes block without moving to a blocking thread first.
    let blocks = plugin.policy.capabilities.process.is_some();
    // The future is boxed, because it is large and `drive` moves it to a thread.
    let outcome = drive(watch, Box::pin(execute(job)), blocks).await;
    outcome::with_emitted(outcome, &emitted)
}

/// Runs a guest to its end without delaying other work. `blocks` means that the guest starts on a
/// blocking thread, because it runs long or its host functions block without waiting for
/// [`CallWatch::may_block`].
pub(crate) async fn drive<T: Send + 'static>(
    watch: Arc<CallWatch>,
    guest: impl Future<Output = Result<T, Failure>> + Send + 'static,
    blocks: bool,
) -> Result<T, Failure> {
    let mut run: Run<T> = Box::pin(metered(Arc::clone(&watch), guest));
    if !blocks {
        // The guest uses the caller's thread for one tick, or until it would block. Most calls end
        // within a tick, and a move to another thread takes longer.
        watch.set_borrowed(true);
        let polled = poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await;
        if let Poll::Ready(outcome) = polled {
            return outcome;
        }
        watch.set_borrowed(false);
    }
    run_on_thread(run, watch).await
}

/// Runs a guest to its end on a blocking thread.
async fn run_on_thread<T: Send + 'static>(
    run: Run<T>,
    watch: Arc<CallWatch>,
) -> Result<T, Failure> {
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
        // The deadline moves while the call waits for the user's approval.
        let deadline_has_moved = watch.end() + STUCK > end;
        if !deadline_has_moved {
            // The thread hangs, so the host abandons the thread together with its slot.
            return Err(watch.stop_failure(StopReason::Timeout));
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error("the plugin does not list its {0} in time")]
    Timeout(&'static str),
    #[error("the plugin does not list its {what}: {}", .failure.message)]
    Failed { what: &'static str, failure: Box<Failure> },
}

type Run<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

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

/// Lists the tools or filters of a plugin in a separate instance. `what` names them in errors.
/// `ask` calls the instance, and returns the store and the answer.
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
    let no_files = Files::new(None, 0);
    let no_directory = None;
    let mut state = CallState::idle(
        &plugin.name,
        &plugin.policy,
        &limits,
        no_files,
        no_directory,
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
                let message = neutral(cut(&message, MAX_MESSAGE));
                Err(Failure::new(Category::PermanentFailure, message))
            }
            Err(error) => Err(outcome::failure(&watched, &error, &store, &name)),
        }
    };
    let blocks = true;
    drive(watch, run, blocks).await.map_err(|failure| match failure.category {
        Category::Timeout => ListError::Timeout(what),
        _ => ListError::Failed { what, failure: Box::new(failure) },
    })
}

/// Runs the call of a job: takes or makes an instance, calls the tool, and then keeps the instance
/// for the session or gives its store to the housekeeper.
async fn execute(job: Job) -> Outcome {
    let Job { plugin, code, tool_index, mut call, watch, emitted, place, turn, ticking } = job;
    // Locals are dropped in reverse order. The store is declared below, so it is dropped before the
    // call's slot and the tick guard.
    let _held = (place, ticking);
    let tool: &Tool = &plugin.tools[tool_index];
    // Arguments are checked before code of the component runs.
    let input = match &code.foreign {
        Some(foreign) => Some(foreign.check(&tool.guest_name, &call.arguments, &plugin.policy)?),
        None => None,
    };
    call.report.start_read_list();
    if turn.is_some() {
        // The instance may remember content from earlier calls, which the report lacks.
        call.report.mark_incomplete();
    }

    // There is a store even if no instance could be made. The store tells why the guest crashed.
    let (mut store, entry) = match take_instance(&code, turn.as_ref()) {
        Some((store, entry)) => (store, Ok(entry)),
        None => make_instance(&plugin, &code, &watch, Some(&call)).await,
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
            // The guest ended before it got the call, but the log must name the call.
            store.data_mut().call.id = call.id.clone();
            (Err(error), None)
        }
    };

    // An error means that the guest trapped. Its instance can't be used again.
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

/// Takes the session's instance, or else a warm instance.
fn take_instance(code: &Code, turn: Option<&Turn>) -> Option<(Store<CallState>, Entry)> {
    if let Some(instance) = turn.and_then(Turn::take) {
        return Some(instance);
    }
    let WarmInstance { store, entry } = code.warm_pool.take()?;
    Some((store, entry))
}

async fn begin_call(
    store: &mut Store<CallState>,
    plugin: &LoadedPlugin,
    tool: &Tool,
    call: &Call,
    watch: &Arc<CallWatch>,
    emitted: Emitted,
) {
    if store.data().files.accessed() {
        // The report lacks files that the guest read during its instantiation.
        call.report.mark_incomplete();
        // Reading or closing these files may block.
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
    let view = file_view(plugin, call, only_reads);
    let files = Files::new(view, plugin.policy.limits.written);
    store.data_mut().begin(&facts, files, Arc::clone(watch), emitted);
    store.set_epoch_deadline(TICKS_TO_CHECK);
}

/// Makes a call's view of the files. Returns `None` if the plugin has no granted directories.
fn file_view(plugin: &LoadedPlugin, call: &Call, only_reads: bool) -> Option<FileView> {
    let grants = plugin.policy.files.as_ref()?;
    let mut view = FileView::new(Arc::clone(grants), only_reads);
    if plugin.policy.read_only && !only_reads {
        // The manifest requests files only to read them.
        view = view.of_reading_plugin();
    }
    let restricted_view = view
        .reporting_to(&call.report)
        .under(call.path_rules.as_ref(), &call.report)
        .recording(call.changes.as_ref());
    Some(restricted_view)
}

/// Calls a tool of a plugin. An error means a trap.
async fn call_tool(
    store: &mut Store<CallState>,
    plugin: &LoadedPlugin,
    entry: &Entry,
    tool: &Tool,
    call: &mut Call,
) -> wasmtime::Result<Outcome> {
    let Entry::Tool(call_tool) = entry else {
        return Err(wasmtime::Error::msg("the component exports no tools"));
    };
    let attachments = std::mem::take(&mut call.attachments);
    let invocation = tools::Invocation {
        tool: tool.guest_name.clone(),
        // `serde_json::to_string` never fails for a JSON value, and is faster than
        // `Value::to_string`.
        arguments: serde_json::to_string(&*call.arguments).unwrap_or_default(),
        attachments: attachments.into_iter().map(convert::content_for_guest).collect(),
        meta: call.meta.as_deref().and_then(|meta| serde_json::to_string(meta).ok()),
    };
    let answer = call_tool.call(&mut *store, invocation).await?;
    Ok(convert_answer(answer, store, &plugin.policy.limits))
}

/// Calls a component without Toolhold's interfaces. An error means a trap.
async fn call_foreign(
    store: &mut Store<CallState>,
    plugin: &LoadedPlugin,
    code: &Code,
    entry: &Entry,
    tool: &Tool,
    input: Input,
) -> wasmtime::Result<Outcome> {
    let (Some(foreign), Entry::Foreign(instance)) = (&code.foreign, entry) else {
        return Err(wasmtime::Error::msg("the component exports no tools"));
    };
    foreign.call(store, instance, &tool.guest_name, input, plugin.policy.limits.result).await
}

/// Redacts secrets, and adds the denial or obstacle that may have caused a failure. Also reports
/// how much the guest has printed.
fn explain(outcome: Outcome, store: &mut Store<CallState>, tool: &Tool, call: &Call) -> Outcome {
    let running_call = &store.data().call;
    let printed = running_call.stdout.written() + running_call.stderr.written();
    call.report.entries().printed = printed;
    let redacted = outcome::without_secrets(outcome, store.data());
    let explained = outcome::with_obstacle(redacted, store.data());
    let state = store.data_mut();
    outcome::with_denial(explained, state, &call.arguments, &tool.definition, &call.report)
}

/// Ends the call, and stores its instance for the session's next call.
fn keep_for_session(
    plugin: &Arc<LoadedPlugin>,
    code: &Code,
    turn: &Turn,
    mut store: Store<CallState>,
    entry: Entry,
) {
    let housekeeper = &plugin.runtime.engine.housekeeper;
    let result = match end_call(code, &mut store) {
        Ok(()) => turn.keep(store, entry),
        Err(reason) => {
            // The housekeeper drops the store.
            housekeeper.take_over(plugin, code, store);
            Err(reason)
        }
    };
    match result {
        Ok(()) => housekeeper.note_kept(),
        Err(reason) => tracing::warn!(
            plugin = &*plugin.name,
            "the plugin's instance isn't kept for the session's next call: {reason}"
        ),
    }
}

fn end_call(code: &Code, store: &mut Store<CallState>) -> Result<(), KeepError> {
    if matches!(code.foreign, Some(Foreign::Command(_))) {
        return Err(KeepError::Command);
    }
    if !code.warm_pool.fits_spare_slots {
        return Err(KeepError::Parts);
    }
    if !store.data_mut().end_and_stay() {
        return Err(KeepError::LeftOpen);
    }
    Ok(())
}

/// Converts the answer of a tool. The answer may continue the parts that the tool has emitted.
fn convert_answer(
    answer: Result<types::Output, types::Failure>,
    store: &Store<CallState>,
    limits: &Limits,
) -> Outcome {
    match answer {
        Ok(output) if output.after_emitted => {
            // The limit applies to the emitted parts and the answer together.
            let outcome = convert::outcome(Ok(output), store.data().call.emit_budget);
            outcome::after_emitted(outcome, &store.data().call.emitted)
        }
        answer => convert::outcome(answer, limits.result),
    }
}

/// Makes an instance. `call` is the call that needs the instance.
///
/// The guest can read files while it is instantiated, and remember them. The call's rules apply to
/// these reads. If there is no call, the caller must drop an instance that has read files.
pub(crate) async fn make_instance(
    plugin: &LoadedPlugin,
    code: &Code,
    watch: &Arc<CallWatch>,
    call: Option<&Call>,
) -> (Store<CallState>, wasmtime::Result<Entry>) {
    let policy = &plugin.policy;
    let view = policy.files.as_ref().map(|grants| {
        let only_reads = true;
        let view = FileView::new(Arc::clone(grants), only_reads);
        match call {
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

fn find_entry(
    code: &Code,
    store: &mut Store<CallState>,
    instance: Instance,
) -> wasmtime::Result<Entry> {
    if code.foreign.is_some() {
        return Ok(Entry::Foreign(instance));
    }
    let Some(tools) = &code.tools else {
        return Err(wasmtime::Error::msg("the component exports no tools"));
    };
    tools.call_tool(store, &instance).map(Entry::Tool)
}

/// Makes a store with all its limits, and an instance in it. Only this function may make stores, so
/// that each store has the limits.
pub(crate) async fn instantiate(
    pre: &InstancePre<CallState>,
    state: CallState,
    limits: &Limits,
) -> (Store<CallState>, wasmtime::Result<Instance>) {
    let mut store = Store::new(pre.engine(), state);
    store.limiter(|state| &mut state.memory);
    store.set_hostcall_fuel(limits.host_allocation);
    store.set_max_component_handles(limits.handles.saturating_add(HANDLE_SLACK));
    store.set_epoch_deadline(TICKS_TO_CHECK);
    store.epoch_deadline_callback(|store| {
        Ok(match store.data().call.watch.check() {
            WatchCheck::Continue => UpdateDeadline::Continue(TICKS_TO_CHECK),
            WatchCheck::Yield => UpdateDeadline::Yield(TICKS_TO_CHECK),
            WatchCheck::Stop => UpdateDeadline::Interrupt,
        })
    });
    let instance = pre.instantiate_async(&mut store).await;
    (store, instance)
}

/// Adds the time of each poll to the call's processor time.
pub(crate) async fn metered<F: Future>(watch: Arc<CallWatch>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        watch.meter.start_poll();
        let polled = future.as_mut().poll(context);
        // The time of the last poll isn't added, because nothing reads the meter afterwards.
        if polled.is_pending() {
            watch.meter.end_poll();
        }
        polled
    })
    .await
}

/// Runs a guest until it ends, the call is cancelled, or its time ends. Ticks can stop only running
/// guest code, but this function also stops a guest that waits in a host function.
async fn until_stopped<T>(mut run: Run<T>, watch: Arc<CallWatch>) -> Result<T, Failure> {
    let mut end = pin!(sleep_until(late_end(&watch)));
    let mut cancelled = pin!(watch.cancel.cancelled());
    // This is a `select!` with a fixed order.
    poll_fn(|context| {
        // The cancellation is polled first. After a shutdown of the reactor has cancelled the call,
        // the guest must not be polled again.
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(watch.stop_failure(StopReason::Cancelled)));
        }
        if let Poll::Ready(outcome) = run.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        while end.as_mut().poll(context).is_ready() {
            let new_end = late_end(&watch);
            if new_end <= end.deadline() {
                return Poll::Ready(Err(watch.stop_failure(StopReason::Timeout)));
            }
            // The deadline has moved, because the call waited for the user's approval.
            end.as_mut().reset(new_end);
        }
        Poll::Pending
    })
    .await
}

/// Returns when a waiting guest is stopped. Ticks stop a running guest up to two ticks earlier, so
/// that the guest's own failure is reported.
fn late_end(watch: &CallWatch) -> tokio::time::Instant {
    let two_ticks = TICK * 2;
    (watch.end() + two_ticks).into()
}

/// Waits for the call's thread. After a cancellation, waits at most [`STUCK`].
async fn wait_for_thread<T>(
    running: tokio::task::JoinHandle<Result<T, Failure>>,
    watch: &CallWatch,
) -> Result<T, Failure> {
    let mut running = pin!(running);
    let mut stuck = pin!(async {
        watch.cancel.cancelled().await;
        tokio::time::sleep(STUCK).await;
    });
    // This is a `select!` with a fixed order.
    poll_fn(|context| {
        if let Poll::Ready(joined) = running.as_mut().poll(context) {
            // A missing outcome means that the thread panicked.
            return Poll::Ready(joined.unwrap_or_else(|_| Err(crate::timing::host_failed())));
        }
        if stuck.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(watch.stop_failure(StopReason::Cancelled)));
        }
        Poll::Pending
    })
    .await
}
