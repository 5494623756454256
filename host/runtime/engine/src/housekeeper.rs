//! The housekeeper is a thread that makes warm instances, drops the stores of finished calls, and
//! drops the instances of idle sessions.
//!
//! A few plugins with the latest calls have places for warm instances. If all places are occupied,
//! a plugin gets a place only if it is called again soon, so that many plugins that are called in
//! turn don't drop each other's unused instances. The ticker wakes the thread, because waking it
//! takes a call more time than a warm instance saves. A warm instance serves one call.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime as Reactor;
use toolhold_contract::{CancellationToken, Failure};
use wasmtime::Store;

use crate::clock::Chores;
use crate::code::Code;
use crate::guest::CallState;
use crate::outcome;
use crate::plugin::LoadedPlugin;
use crate::run;
use crate::session::SessionInstances;
use crate::timing::{CallBounds, CallWatch};
use crate::warm_pool::{
    MAX_IDLE_MEMORY, MAX_INSTANCES_OF_PLUGIN, MAX_PLUGINS, MAX_USED_STORES, WarmInstance,
};

/// Limits of elapsed and processor time for making a warm instance. Calls of a slower plugin make
/// their own instances.
const MAX_TIME: Duration = Duration::from_secs(5);
const MAX_CPU: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum WarmError {
    #[error("the plugin waits for something during its instantiation")]
    Waits,
    #[error("{}", .0.message)]
    Crashed(Box<Failure>),
    #[error(
        "the plugin reads files during its instantiation, and the files may change before the call"
    )]
    ReadsFiles,
    #[error(
        "the plugin uses more than {} MiB of memory during its instantiation",
        MAX_IDLE_MEMORY >> 20
    )]
    Memory,
}

/// The housekeeper's thread. It starts with the first work and ends when this value is dropped.
pub(crate) struct Housekeeper(Arc<Shared>);

pub(crate) struct Shared {
    /// The lifetime of warm instances after a plugin's last call. Zero disables them.
    lifetime: Duration,
    sessions: Arc<SessionInstances>,
    /// Whether there is new work of which the thread wasn't notified yet.
    has_new_work: AtomicBool,
    todo: Mutex<Todo>,
    wake: Condvar,
}

/// Work that calls leave.
#[derive(Default)]
struct Work {
    used_stores: Vec<Store<CallState>>,
    /// Called plugins that the thread doesn't track yet.
    new_plugins: Vec<Weak<LoadedPlugin>>,
}

#[derive(Default)]
struct Todo {
    work: Work,
    /// Whether the thread was started.
    started: bool,
    notified: bool,
    end: bool,
}

struct TrackedPlugin {
    plugin: Weak<LoadedPlugin>,
    last_called: Instant,
}

impl Housekeeper {
    /// Makes a housekeeper that drops warm instances `lifetime` after their plugin's last call.
    pub(crate) fn new(lifetime: Duration, sessions: Arc<SessionInstances>) -> Self {
        Self(Arc::new(Shared {
            lifetime,
            sessions,
            has_new_work: AtomicBool::default(),
            todo: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// Notes that a session has an instance. The thread drops it when the session is idle.
    pub(crate) fn note_kept(&self) {
        self.0.has_new_work.store(true, Ordering::Release);
    }

    /// Ends a finished call, and takes its store. The thread drops a small store later, and makes
    /// warm instances for the next calls of the plugin.
    pub(crate) fn take_over(
        &self,
        plugin: &Arc<LoadedPlugin>,
        code: &Code,
        mut store: Store<CallState>,
    ) {
        store.data_mut().end();
        let pool = &code.warm_pool;
        let mut todo = self.0.todo();
        let uses_warm_pool = !self.0.lifetime.is_zero() && !pool.disabled.load(Ordering::Relaxed);
        if uses_warm_pool {
            pool.called.store(true, Ordering::Relaxed);
            let was_tracked = pool.tracked.swap(true, Ordering::Relaxed);
            if !was_tracked {
                todo.work.new_plugins.push(Arc::downgrade(plugin));
            }
        }

        let is_small = pool.fits_spare_slots && store.data().memory.used() <= MAX_IDLE_MEMORY;
        if is_small && todo.work.used_stores.len() < MAX_USED_STORES {
            todo.work.used_stores.push(store);
            drop(todo);
        } else {
            // Dropping a store takes long, so the lock is released first.
            drop(todo);
            drop(store);
        }
        // The next tick wakes the thread.
        self.0.has_new_work.store(true, Ordering::Release);
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.0.todo().end = true;
        self.0.wake.notify_all();
    }
}

impl Chores for Shared {
    fn has_work(&self) -> bool {
        self.has_new_work.load(Ordering::Acquire)
    }

    /// Notifies the thread if there is new work. Starts the thread at the first work.
    fn tick(self: &Arc<Self>) {
        let has_new_work = self.has_new_work.swap(false, Ordering::Acquire);
        if !has_new_work {
            return;
        }
        let mut todo = self.todo();
        todo.notified = true;
        if todo.started {
            self.wake.notify_all();
            return;
        }
        todo.started = true;
        drop(todo);

        let shared = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("toolhold-housekeeper".into())
            .spawn(move || run_housekeeper(&shared));
        if let Err(error) = started {
            tracing::warn!(
                "there are no warm instances: starting the housekeeper's thread failed: {error}"
            );
        }
    }
}

impl Shared {
    /// Waits for work until `until`, and takes the work. If `until` is `None`, waits without a
    /// limit. Returns `None` if the thread must end.
    fn wait(&self, until: Option<Instant>) -> Option<Work> {
        let mut todo = self.todo();
        loop {
            if todo.end {
                return None;
            }
            let time_left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_due = time_left == Some(Duration::ZERO);
            if todo.notified || is_due {
                todo.notified = false;
                return Some(std::mem::take(&mut todo.work));
            }
            todo = match time_left {
                Some(time_left) => {
                    let woken = self.wake.wait_timeout(todo, time_left);
                    let (todo, _timed_out) = woken.unwrap_or_else(PoisonError::into_inner);
                    todo
                }
                None => self.wake.wait(todo).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops used stores and idle instances, and makes warm instances, until the thread must end.
fn run_housekeeper(shared: &Shared) {
    // Some components wait for a timer while they are instantiated. The thread has its own reactor,
    // because another reactor of the program may end earlier.
    let reactor = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(reactor) => reactor,
        Err(error) => {
            tracing::warn!("there are no warm instances: {error}");
            return;
        }
    };
    let mut tracked: Vec<TrackedPlugin> = Vec::new();
    let mut without_place = Vec::new();
    let mut sessions_due = None;
    loop {
        let next_due = next_chore(&tracked, shared.lifetime, sessions_due);
        let Some(Work { used_stores, new_plugins }) = shared.wait(next_due) else { return };
        // Dropping a store takes long, so calls leave it to this thread.
        drop(used_stores);

        let now = Instant::now();
        sessions_due = shared.sessions.drop_idle(now);
        note_calls(&mut tracked, now);
        for plugin in new_plugins {
            if take_place(&plugin, now, &tracked, &mut without_place) {
                tracked.push(TrackedPlugin { plugin, last_called: now });
            }
        }
        drop_idle(&mut tracked, now, shared.lifetime);

        for plugin in tracked.iter().filter_map(|entry| entry.plugin.upgrade()) {
            if let Some(code) = plugin.code.get() {
                refill(&plugin, code, &reactor);
            }
        }
    }
}

/// Returns the time at which the next instance must be dropped. `sessions_due` is this time for the
/// instances of sessions.
fn next_chore(
    tracked: &[TrackedPlugin],
    lifetime: Duration,
    sessions_due: Option<Instant>,
) -> Option<Instant> {
    let plugins_due = tracked.iter().map(|entry| entry.last_called + lifetime);
    plugins_due.chain(sessions_due).min()
}

/// Checks whether a called plugin gets a place for warm instances.
///
/// If all places are occupied, the plugin gets a place at its second call, unless all plugins with
/// places were called between the two calls. `without_place` contains the called plugins without
/// places, in the order of their calls.
fn take_place(
    plugin: &Weak<LoadedPlugin>,
    now: Instant,
    tracked: &[TrackedPlugin],
    without_place: &mut Vec<TrackedPlugin>,
) -> bool {
    if tracked.len() < MAX_PLUGINS {
        return true;
    }
    let Some(oldest_call) = tracked.iter().map(|entry| entry.last_called).min() else {
        // This never happens, because `tracked` has entries.
        return true;
    };
    // Forget a call if every plugin with a place was called after it. The next call of its plugin
    // then counts as the first one.
    without_place.retain(|entry| entry.last_called > oldest_call);
    if let Some(index) = without_place.iter().position(|entry| entry.plugin.ptr_eq(plugin)) {
        without_place.remove(index);
        return true;
    }

    if without_place.len() == MAX_PLUGINS {
        let oldest_entry = 0;
        without_place.remove(oldest_entry);
    }
    without_place.push(TrackedPlugin { plugin: Weak::clone(plugin), last_called: now });
    if let Some(plugin) = plugin.upgrade()
        && let Some(code) = plugin.code.get()
    {
        // The next call adds the plugin to `Work::new_plugins` again.
        code.warm_pool.tracked.store(false, Ordering::Relaxed);
    }
    false
}

/// Updates `last_called` of the plugins that were called since the last update.
fn note_calls(tracked: &mut [TrackedPlugin], now: Instant) {
    for entry in tracked {
        let Some(plugin) = entry.plugin.upgrade() else { continue };
        let Some(code) = plugin.code.get() else { continue };
        if code.warm_pool.called.swap(false, Ordering::Relaxed) {
            entry.last_called = now;
        }
    }
}

/// Drops the warm instances of plugins without a call for `lifetime`, and of all plugins except the
/// [`MAX_PLUGINS`] with the latest calls.
fn drop_idle(tracked: &mut Vec<TrackedPlugin>, now: Instant, lifetime: Duration) {
    tracked.sort_by_key(|entry| std::cmp::Reverse(entry.last_called));
    // The plugin with the latest call has rank 1.
    let mut rank = 0;
    tracked.retain(|entry| {
        let Some(plugin) = entry.plugin.upgrade() else { return false };
        let Some(code) = plugin.code.get() else { return false };
        let pool = &code.warm_pool;
        rank += 1;
        let is_recent = now < entry.last_called + lifetime;
        let is_disabled = pool.disabled.load(Ordering::Relaxed);
        let stays = rank <= MAX_PLUGINS && is_recent && !is_disabled;
        if !stays {
            // The next call adds the plugin to `Work::new_plugins` again.
            pool.tracked.store(false, Ordering::Relaxed);
            pool.clear();
        }
        stays
    });
}

fn refill(plugin: &LoadedPlugin, code: &Code, reactor: &Reactor) {
    while code.warm_pool.count() < MAX_INSTANCES_OF_PLUGIN {
        match make_instance(plugin, code, reactor) {
            Ok(instance) => code.warm_pool.put(instance),
            Err(error) => {
                // Further instances would fail in the same way.
                tracing::debug!(
                    plugin = &*plugin.name,
                    "the plugin has no warm instances: {error}"
                );
                code.warm_pool.disabled.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Makes a warm instance. A plugin that waits, reads files or uses much memory while it is
/// instantiated gets no warm instance.
fn make_instance(
    plugin: &LoadedPlugin,
    code: &Code,
    reactor: &Reactor,
) -> Result<WarmInstance, WarmError> {
    let bounds =
        CallBounds { grace: Duration::ZERO, cpu: MAX_CPU, ..plugin.policy.limits.bounds() };
    let watch = Arc::new(CallWatch::new(MAX_TIME, bounds, CancellationToken::new()));
    let _ticking = plugin.runtime.engine.keep_ticking();
    let polled = reactor.block_on(async {
        let no_call = None;
        let creating = run::make_instance(plugin, code, &watch, no_call);
        let mut metered = pin!(run::metered(Arc::clone(&watch), creating));
        // The future is polled once, because the thread must not wait for a guest.
        poll_fn(|context| Poll::Ready(metered.as_mut().poll(context))).await
    });
    let Poll::Ready((store, created)) = polled else { return Err(WarmError::Waits) };
    let entry = match created {
        Ok(entry) => entry,
        Err(error) => {
            let failure = outcome::failure(&watch, &error, &store, &plugin.name);
            return Err(WarmError::Crashed(Box::new(failure)));
        }
    };
    if store.data().files.accessed() {
        return Err(WarmError::ReadsFiles);
    }
    if store.data().memory.used() > MAX_IDLE_MEMORY {
        return Err(WarmError::Memory);
    }
    Ok(WarmInstance { store, entry })
}
