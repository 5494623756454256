//! Sends traces and metrics of calls to the OpenTelemetry receiver of `[telemetry]`.
//!
//! A call takes one lock, copies a few names, and adds an entry to a queue. A separate thread does
//! everything else. If the receiver is slow or unreachable, spans are dropped and counted, and
//! calls aren't delayed.

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

/// The most calls that wait for the thread. Further calls are left out.
const QUEUE: usize = 2048;

/// The states of the sending threads of this process.
static RUNNING: Mutex<Vec<Arc<State>>> = Mutex::new(Vec::new());

/// The signals that are sent.
#[derive(Clone, Copy, Debug)]
pub struct Signals {
    /// A span for each call.
    pub traces: bool,
    /// Counts of calls.
    pub metrics: bool,
    /// Time between two sendings.
    pub every: Duration,
}

/// Sends traces and metrics of the calls of a host. The sending ends when the host has ended, after
/// a last request.
pub struct Telemetry {
    state: Arc<State>,
    traces: bool,
}

/// The state that calls and the thread share.
struct State {
    counts: Mutex<Counts>,
    plugins: Mutex<Option<CountPlugins>>,
    dropped: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Wakes the thread. It isn't notified for each call, because that would take longer than all
    /// other work of a call.
    wakes: Condvar,
}

/// The items that wait for the thread.
#[derive(Default)]
struct Inbox {
    calls: Vec<Call>,
    /// The callers that wait until everything is sent.
    flushes: Vec<SyncSender<()>>,
    /// Whether no call comes any more.
    closed: bool,
    /// Whether the thread has ended.
    ended: bool,
}

impl Telemetry {
    /// Starts the telemetry that `[telemetry]` enables. Returns `None` if telemetry isn't enabled.
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

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] if the thread doesn't start.
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
            .map_err(HostError::io("starting the thread that sends telemetry"))?;
        let mut running = lock(&RUNNING);
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

/// Waits until the telemetry of this process has been sent or has failed once, but not longer than
/// `limit`. A program calls this function before it ends, because its threads end with it.
pub fn flush_telemetry(limit: Duration) {
    let deadline = Instant::now() + limit;
    for state in std::mem::take(&mut *lock(&RUNNING)) {
        let (done, flushed) = sync_channel(1);
        let mut inbox = lock(&state.inbox);
        if inbox.ended {
            continue;
        }
        inbox.flushes.push(done);
        drop(inbox);
        state.wakes.notify_all();
        // The program continues in any case: telemetry was sent, the thread has ended, or the time
        // is over.
        let _ = flushed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl CallObserver for Telemetry {
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
        let is_batch = inbox.calls.len() == BATCH;
        drop(inbox);
        if is_batch {
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
