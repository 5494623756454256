//! Sends traces and metrics of calls to the receiver of `[telemetry]`.
//!
//! A call only adds an entry to a queue, and a separate thread sends the entry. With a slow
//! receiver, spans are dropped and counted, so that calls aren't delayed.

mod call;
mod counts;
mod worker;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolhold_core::config::{Config, Folders};
use toolhold_core::{CallObserver, CountPlugins, HostError, ObservedCall};

use self::call::Call;
use self::counts::Counts;
use self::worker::{BATCH, Worker};
use crate::collector::Collector;
use crate::send::Transport;

/// The most calls in the queue. Traces of other calls are dropped.
const QUEUE: usize = 2048;

/// The sending threads of this process.
static RUNNING: Mutex<Vec<Arc<State>>> = Mutex::new(Vec::new());

/// The signals that are sent.
#[derive(Clone, Copy, Debug)]
pub struct Signals {
    /// A span for each call.
    pub traces: bool,
    /// Counts of calls.
    pub metrics: bool,
    /// The time between two requests.
    pub every: Duration,
}

/// Sends traces and metrics of a host's calls. The last request is sent when the host ends.
pub struct Telemetry {
    state: Arc<State>,
    traces: bool,
}

struct State {
    counts: Mutex<Counts>,
    plugins: Mutex<Option<CountPlugins>>,
    dropped: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Wakes the thread. A call only does this if it completes a batch, because waking the thread
    /// takes longer than all other telemetry of the call.
    wakes: Condvar,
}

#[derive(Default)]
struct Inbox {
    calls: Vec<Call>,
    /// Waiting callers of [`flush_telemetry`].
    flushes: Vec<SyncSender<()>>,
    /// Whether the host has ended.
    closed: bool,
    /// Whether the thread has ended.
    ended: bool,
}

impl Telemetry {
    /// Starts telemetry, or returns `None` if `[telemetry]` doesn't enable telemetry.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if the endpoint can't be used.
    pub fn from_config(config: &Config, folders: &Folders) -> Result<Option<Arc<Self>>, HostError> {
        let settings = &config.values.telemetry;
        let has_signals = settings.traces || settings.metrics;
        if settings.endpoint.is_empty() || !has_signals {
            return Ok(None);
        }
        let signals = Signals {
            traces: settings.traces,
            metrics: settings.metrics,
            every: Duration::from_secs(settings.interval_secs.get()),
        };
        let collector = Collector::new(config, folders, &settings.endpoint)?;
        Self::start(signals, Box::new(collector)).map(Some)
    }

    /// Starts the thread that sends.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] if the thread can't be started.
    pub fn start(signals: Signals, transport: Box<dyn Transport>) -> Result<Arc<Self>, HostError> {
        let state = Arc::new(State {
            counts: Mutex::new(Counts::new()),
            plugins: Mutex::new(None),
            dropped: AtomicU64::new(0),
            inbox: Mutex::default(),
            wakes: Condvar::new(),
        });
        let worker = Worker::new(signals, transport, Arc::clone(&state));
        std::thread::Builder::new()
            .name("toolhold-telemetry".to_owned())
            .spawn(move || worker.run())
            .map_err(HostError::io("the thread that sends telemetry can't be started"))?;
        let mut running = lock(&RUNNING);
        // A thread that has ended has nothing to flush, so it is forgotten.
        running.retain(|state| !lock(&state.inbox).ended);
        running.push(Arc::clone(&state));
        Ok(Arc::new(Self { state, traces: signals.traces }))
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        lock(&self.state.inbox).closed = true;
        self.state.wakes.notify_all();
    }
}

/// Waits up to `limit` until all telemetry was sent or failed once. A program calls this function
/// before it ends, because the sending threads end with the program.
pub fn flush_telemetry(limit: Duration) {
    let deadline = Instant::now() + limit;
    for state in std::mem::take(&mut *lock(&RUNNING)) {
        let (sender, done) = sync_channel(1);
        let mut inbox = lock(&state.inbox);
        if inbox.ended {
            continue;
        }
        inbox.flushes.push(sender);
        drop(inbox);
        state.wakes.notify_all();
        // The program ends in any case, so the result doesn't matter.
        let _ = done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl CallObserver for Telemetry {
    /// Counts the call and, for traces, adds the call to the queue.
    fn called(&self, call: &ObservedCall<'_>) {
        lock(&self.state.counts).call(call);
        if !self.traces {
            return;
        }
        let call = Call::new(call);
        let mut inbox = lock(&self.state.inbox);
        if inbox.calls.len() >= QUEUE {
            drop(inbox);
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        inbox.calls.push(call);
        // Only the last call of a batch wakes the thread.
        let completes_batch = inbox.calls.len() == BATCH;
        drop(inbox);
        if completes_batch {
            self.state.wakes.notify_all();
        }
    }

    fn dropped(&self, tool: Option<&str>, took: Duration) {
        lock(&self.state.counts).dropped(tool, took);
    }

    fn built(&self, plugins: CountPlugins) {
        *lock(&self.state.plugins) = Some(plugins);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
