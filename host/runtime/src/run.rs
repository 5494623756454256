//! Running a call: admission, a fresh store, watching it, and telling what became of it.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use berth_contract::text::{cut, neutral};
use berth_contract::{Call, CancellationToken, Category, Failure, Outcome};
use berth_egress::{Requests, Scope};
use berth_system::files::FileView;
use tokio::time::{sleep_until, timeout};
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use crate::admission::Place;
use crate::clock::{TICK, TickGuard};
use crate::guest::bindings::exports::berth::tool::tools;
use crate::guest::bindings::{Plugin as Tools, PluginIndices};
use crate::guest::convert;
use crate::guest::state::{CallState, Emitted, Processes, Setup};
use crate::guest::wasi::Files;
use crate::limits::Limits;
use crate::outcome;
use crate::plugin::{Loaded, Tool};
use crate::stop::{self, Stop};
use crate::warm_pool::WarmInstance;
use crate::watch::Watch;

/// How long the host waits for a thread that should have seen by itself that its call is over: one
/// that hangs in a system call.
const STUCK: Duration = Duration::from_millis(250);

/// Handles beyond those of the host's table: a guest that has taken all of them still needs some to
/// call with, so that it gets an error from the function that would make one more, and no trap.
const HANDLE_SLACK: usize = 64;

/// A call as it goes through this module.
struct Job {
    plugin: Arc<Loaded>,
    tool: usize,
    call: Call,
    watch: Arc<Watch>,
    emitted: Emitted,
    /// Held until the guest is gone, not until the answer is: a thread that hangs keeps its place.
    place: Place,
    ticking: TickGuard,
}

/// Runs a call of a plugin's tool.
pub(crate) async fn call(plugin: &Arc<Loaded>, tool: usize, mut call: Call) -> Outcome {
    let limits = &plugin.policy.limits;
    // Cancelled with the caller's token, and when this future is dropped.
    call.cancel = call.cancel.child_token();
    let _cancelled_when_dropped = call.cancel.clone().drop_guard();
    let time = call.time.unwrap_or(limits.call).min(limits.max_call);
    let watch = Arc::new(Watch::new(time, limits, call.cancel.clone()));
    let place = plugin.runtime.admission.admit(&plugin.name, &watch).await?;
    let emitted = Emitted::default();
    let job = Job {
        plugin: Arc::clone(plugin),
        tool,
        call,
        watch: Arc::clone(&watch),
        emitted: Arc::clone(&emitted),
        place,
        ticking: plugin.runtime.engine.keep_ticking(),
    };
    let blocks = plugin.policy.files.is_some() || plugin.policy.process.is_some();
    let outcome = driven(watch, execute(job), blocks).await;
    outcome::with_emitted(outcome, &emitted)
}

/// Sees a guest through to its end, on a thread where what it does keeps nobody waiting. `blocks`:
/// whether it may block.
pub(crate) async fn driven<T: Send + 'static>(
    watch: Arc<Watch>,
    run: impl Future<Output = Result<T, Failure>> + Send + 'static,
    blocks: bool,
) -> Result<T, Failure> {
    let mut run: Run<T> = Box::pin(metered(Arc::clone(&watch), run));
    if !blocks {
        // Nothing that this guest can call blocks, so it may use the caller's thread, for a tick.
        // Most are done by then, and a hop to another thread costs more than they do.
        watch.set_borrowed(true);
        if let Poll::Ready(outcome) =
            poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await
        {
            return outcome;
        }
        watch.set_borrowed(false);
    }
    let reactor = tokio::runtime::Handle::current();
    let watched = Arc::clone(&watch);
    let running =
        tokio::task::spawn_blocking(move || reactor.block_on(until_stopped(run, watched)));
    match timeout(
        watch.end.saturating_duration_since(Instant::now()) + STUCK,
        given_up(running, &watch),
    )
    .await
    {
        Ok(outcome) => outcome,
        // The thread hangs. It is left behind, with its permit, and the answer goes out.
        Err(_) => Err(watch.stopped(Stop::Timeout)),
    }
}

/// A guest on its way to its end.
type Run<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Asks a plugin for its tools, with nothing granted and little allowed.
pub(crate) async fn list_tools(
    plugin: &Loaded,
    exports: PluginIndices,
) -> Result<Vec<tools::Definition>, String> {
    let ask = async move |mut store: Store<CallState>, instance: Instance| {
        let listed = match exports.load(&mut store, &instance) {
            Ok(instance) => instance.berth_tool_tools().call_list_tools(&mut store).await,
            Err(error) => Err(error),
        };
        (store, listed.map(|listed| listed.map_err(|failure| failure.message)))
    };
    listed(plugin, "tools", ask).await
}

/// Asks a plugin what it offers, in an instance of its own.
pub(crate) async fn listed<T: Send + 'static, A>(
    plugin: &Loaded,
    what: &str,
    ask: impl FnOnce(Store<CallState>, Instance) -> A + Send + 'static,
) -> Result<T, String>
where
    A: Future<Output = (Store<CallState>, wasmtime::Result<Result<T, String>>)> + Send,
{
    let limits = plugin.policy.limits.for_listing();
    let cancel = CancellationToken::new();
    let _cancelled_when_dropped = cancel.clone().drop_guard();
    let watch = Arc::new(Watch::new(limits.call, &limits, cancel));
    let state =
        CallState::idle(&plugin.name, &limits, Files::new(None, 0), None, Arc::clone(&watch));
    let (pre, name, watched) = (plugin.pre.clone(), Arc::clone(&plugin.name), Arc::clone(&watch));
    let ticking = plugin.runtime.engine.keep_ticking();
    let list = async move {
        let _ticking = ticking;
        let (store, instance) = instantiate(&pre, state, &limits).await;
        let (store, listed) = match instance {
            Ok(instance) => ask(store, instance).await,
            Err(error) => (store, Err(error)),
        };
        match listed {
            Ok(Ok(listed)) => Ok(listed),
            Ok(Err(message)) => {
                Err(Failure::new(Category::PermanentFailure, neutral(cut(&message, 1024))))
            }
            Err(error) => Err(outcome::failure(&watched, &error, &store, &name)),
        }
    };
    let reason = match driven(watch, list, true).await {
        Ok(listed) => return Ok(listed),
        Err(failure) if failure.category == Category::Timeout => "it takes too long".into(),
        Err(failure) => failure.message,
    };
    Err(format!("it does not list its {what}: {reason}"))
}

/// One call in a store of its own, in an instance that waited for it or in a fresh one.
async fn execute(job: Job) -> Outcome {
    let Job { plugin, tool, call, watch, emitted, place, ticking } = job;
    // Dropped last, after the store or when it is in other hands.
    let _held = (place, ticking);
    let tool: &Tool = &plugin.tools[tool];
    let limits = &plugin.policy.limits;
    let (mut store, instance) = match plugin.warm_pool.take() {
        Some(WarmInstance { store, instance }) => (store, Ok(instance)),
        None => fresh(&plugin, &watch).await,
    };
    let answer = match instance {
        Ok(instance) => {
            let read_only =
                plugin.policy.read_only || tool.definition.annotations.read_only || call.read_only;
            // All that a call can look at beside its arguments goes through the path layer, which
            // tells. What was looked at before there was a call, nobody knows.
            call.report.tells_what_it_sees();
            if store.data().files.looked() {
                call.report.lost_sight();
            }
            let view = |grants| {
                FileView::new(Arc::clone(grants), read_only)
                    .reporting_to(&call.report)
                    .under(call.path_rules.as_ref(), &call.report)
            };
            let view = plugin.policy.files.as_ref().map(view);
            let files = Files::new(view, limits.written);
            let processes = plugin.policy.process.as_ref().map(|policy| Processes {
                policy: Arc::clone(policy),
                directory: plugin.policy.directory().map(Path::to_owned),
                commands: call.commands,
                path_rules: call.path_rules.clone(),
                network: call.network,
                read_only,
                running: Arc::new(()),
                report: Arc::clone(&call.report),
            });
            let requests = plugin.policy.egress.as_ref().map(|egress| {
                let scope =
                    Scope { report: Arc::clone(&call.report), read_only, origins: call.origins };
                Requests::new(Arc::clone(egress), scope)
            });
            let setup = Setup {
                id: call.id,
                watch: Arc::clone(&watch),
                events: call.events,
                emitted,
                files,
                processes,
                requests,
                limits,
            };
            store.data_mut().begin(setup);
            store.set_epoch_deadline(1);
            let invocation = tools::Invocation {
                tool: tool.guest_name.clone(),
                arguments: call.arguments.to_string(),
                attachments: call.attachments.into_iter().map(convert::content_for_guest).collect(),
                meta: None,
            };
            instance.berth_tool_tools().call_call_tool(&mut store, &invocation).await
        }
        Err(error) => {
            // It ended before the call began in it, and the log says nevertheless whose end that
            // was.
            store.data_mut().call.id = call.id;
            Err(error)
        }
    };
    let outcome = match answer {
        Ok(answer) => convert::outcome(answer, limits.result),
        Err(error) => Err(outcome::failure(&watch, &error, &store, &plugin.name)),
    };
    let outcome = outcome::without_secrets(outcome, store.data());
    let outcome = outcome::with_obstacle(outcome, store.data());
    let outcome = outcome::with_denial(
        outcome,
        store.data_mut(),
        &call.arguments,
        &tool.definition,
        &call.report,
    );
    plugin.runtime.engine.housekeeper.take_over(&plugin, store);
    outcome
}

/// A fresh instance of a plugin, which knows of no call yet.
pub(crate) async fn fresh(
    plugin: &Loaded,
    watch: &Arc<Watch>,
) -> (Store<CallState>, wasmtime::Result<Tools>) {
    let policy = &plugin.policy;
    let view = policy.files.as_ref().map(|grants| FileView::new(Arc::clone(grants), true));
    let directory = view.as_ref().and_then(|_| policy.directory()?.to_str());
    let state = CallState::idle(
        &plugin.name,
        &policy.limits,
        Files::new(view, 0),
        directory,
        Arc::clone(watch),
    );
    let (mut store, instance) = instantiate(&plugin.pre, state, &policy.limits).await;
    let exports =
        || plugin.exports.as_ref().ok_or_else(|| wasmtime::Error::msg("it exports no tools"));
    let tools = instance.and_then(|instance| exports()?.load(&mut store, &instance));
    (store, tools)
}

/// The one place that makes a store: everything that bounds a guest is set here.
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
    store.epoch_deadline_callback(|store| Ok(store.data().call.watch.look()));
    let instance = pre.instantiate_async(&mut store).await;
    (store, instance)
}

/// Counts the time of each poll as the call's.
pub(crate) async fn metered<F: Future>(watch: Arc<Watch>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        watch.meter.poll_begins();
        let polled = future.as_mut().poll(context);
        // Nobody asks what a call has used that is over.
        if polled.is_pending() {
            watch.meter.poll_ends();
        }
        polled
    })
    .await
}

/// Ends a guest that waits in the host for something that never comes: it does not run, so the
/// ticks don't reach it.
async fn until_stopped<T>(mut run: Run<T>, watch: Arc<Watch>) -> Result<T, Failure> {
    // A tick later than the guest would be stopped while it runs, so that it is the one to tell.
    let mut end = pin!(sleep_until((watch.end + TICK * 2).into()));
    let mut cancelled = pin!(watch.cancel.cancelled());
    poll_fn(|context| {
        // First: where the reactor has ended with its program, what the guest waits for must not be
        // looked at any more.
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(watch.stopped(Stop::Cancelled)));
        }
        if let Poll::Ready(outcome) = run.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        end.as_mut().poll(context).map(|()| Err(watch.stopped(Stop::Timeout)))
    })
    .await
}

/// Waits for the thread that runs the call, and a little after its cancellation.
async fn given_up<T>(
    running: tokio::task::JoinHandle<Result<T, Failure>>,
    watch: &Watch,
) -> Result<T, Failure> {
    let mut running = pin!(running);
    let mut late = pin!(async {
        watch.cancel.cancelled().await;
        tokio::time::sleep(STUCK).await;
    });
    poll_fn(|context| {
        if let Poll::Ready(joined) = running.as_mut().poll(context) {
            return Poll::Ready(joined.unwrap_or_else(|_| Err(stop::host_failed())));
        }
        late.as_mut().poll(context).map(|()| Err(watch.stopped(Stop::Cancelled)))
    })
    .await
}
