//! Makes warm instances, drops used stores after the answer was sent, and drops the instances of
//! idle sessions.
//!
//! One background thread, the housekeeper, maintains a few warm instances of the plugins with the
//! latest calls, and drops the stores of finished calls. If all places are occupied, a plugin gets
//! a place only if it is called again soon. Otherwise, many plugins that are called in turn would
//! lose their instances before the next call. A call doesn't wake the thread, since that would cost
//! more than it saves. The ticker checks whether the thread has work. Each instance serves one call
//! and is never reused.

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
use crate::warm_pool::{EACH, MEMORY, PLUGINS, USED, WarmInstance};

/// Time limit for making a warm instance, for elapsed time and processor time. If an instance needs
/// longer, the call that needs the instance makes it.
const TIME: Duration = Duration::from_secs(5);
const CPU: Duration = Duration::from_secs(1);

/// A reason why a plugin has no warm instances.
#[derive(Debug, thiserror::Error)]
enum WarmError {
    #[error("it waits for something while it is instantiated")]
    Waits,
    #[error("{}", .0.message)]
    Crashed(Box<Failure>),
    #[error("it reads files while it is instantiated, and they may change before the call")]
    ReadsFiles,
    #[error("it uses more than {} MiB of memory while it is instantiated", MEMORY >> 20)]
    Memory,
}

/// The housekeeper's thread. The thread starts with the first work, and ends when this value is
/// dropped.
pub(crate) struct Housekeeper(Arc<Shared>);

/// The state that calls, the ticker and the housekeeper share.
pub(crate) struct Shared {
    /// The lifetime of warm instances after a plugin's last call. Zero disables warm instances.
    keep: Duration,
    /// The instances that live as long as their sessions.
    sessions: Arc<SessionInstances>,
    /// Whether there is work that the housekeeper hasn't been notified of.
    work: AtomicBool,
    todo: Mutex<Todo>,
    wake: Condvar,
}

/// The work that calls leave to the housekeeper.
#[derive(Default)]
struct Work {
    used: Vec<Store<CallState>>,
    /// Plugins that were called and that the housekeeper doesn't track yet.
    new: Vec<Weak<LoadedPlugin>>,
}

#[derive(Default)]
struct Todo {
    work: Work,
    /// Whether the thread was started.
    started: bool,
    notified: bool,
    end: bool,
}

/// A plugin that was called, with the time of its last call.
struct TrackedPlugin {
    plugin: Weak<LoadedPlugin>,
    last_called: Instant,
}

impl Housekeeper {
    pub(crate) fn new(keep: Duration, sessions: Arc<SessionInstances>) -> Self {
        Self(Arc::new(Shared {
            keep,
            sessions,
            work: AtomicBool::default(),
            todo: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    /// Returns the shared state, for the ticker.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// Notes that a session has an instance, so that the housekeeper drops the instance in time.
    pub(crate) fn note_kept(&self) {
        self.0.work.store(true, Ordering::Release);
    }

    /// Takes the store of a finished call, and requests a warm instance for the plugin's next call.
    pub(crate) fn take_over(
        &self,
        plugin: &Arc<LoadedPlugin>,
        code: &Code,
        mut store: Store<CallState>,
    ) {
        store.data_mut().end();
        let pool = &code.warm_pool;
        let mut todo = self.0.todo();
        if !self.0.keep.is_zero() && !pool.disabled.load(Ordering::Relaxed) {
            pool.called.store(true, Ordering::Relaxed);
            if !pool.tracked.swap(true, Ordering::Relaxed) {
                todo.work.new.push(Arc::downgrade(plugin));
            }
        }
        let is_small = pool.fits && store.data().memory.used() <= MEMORY;
        if is_small && todo.work.used.len() < USED {
            todo.work.used.push(store);
            drop(todo);
        } else {
            // Dropping a store takes long, so the lock is released first.
            drop(todo);
            drop(store);
        }
        self.0.work.store(true, Ordering::Release);
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.0.todo().end = true;
        self.0.wake.notify_all();
    }
}

impl Chores for Shared {
    /// Checks whether there is work that the housekeeper hasn't been notified of.
    fn has_work(&self) -> bool {
        self.work.load(Ordering::Acquire)
    }

    /// Notifies the housekeeper if there is work. The ticker calls it at each tick.
    fn tick(self: &Arc<Self>) {
        if !self.work.swap(false, Ordering::Acquire) {
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
    /// Waits for work, at most until a time. Returns `None` if the thread must end.
    fn wait(&self, until: Option<Instant>) -> Option<Work> {
        let mut todo = self.todo();
        loop {
            if todo.end {
                return None;
            }
            let time_left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if todo.notified || time_left == Some(Duration::ZERO) {
                todo.notified = false;
                return Some(std::mem::take(&mut todo.work));
            }
            todo = match time_left {
                Some(time) => {
                    self.wake.wait_timeout(todo, time).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(todo).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does the work that calls leave, until the engine ends.
fn run_housekeeper(shared: &Shared) {
    // The thread has its own reactor, since a reactor of the program may end. A component that
    // waits during its instantiation needs a reactor.
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
        let due = next_chore(&tracked, shared.keep, sessions_due);
        let Some(Work { used, new }) = shared.wait(due) else { return };
        drop(used);

        let now = Instant::now();
        sessions_due = shared.sessions.drop_idle(now);
        note_calls(&mut tracked, now);
        for plugin in new {
            if take_place(&plugin, now, &tracked, &mut without_place) {
                tracked.push(TrackedPlugin { plugin, last_called: now });
            }
        }
        drop_idle(&mut tracked, now, shared.keep);

        for plugin in tracked.iter().filter_map(|entry| entry.plugin.upgrade()) {
            if let Some(code) = plugin.code.get() {
                refill(&plugin, code, &reactor);
            }
        }
    }
}

/// Returns the next time at which instances of a plugin or a session have been idle too long.
/// `sessions_due`: this time for the instances of sessions.
fn next_chore(
    tracked: &[TrackedPlugin],
    keep: Duration,
    sessions_due: Option<Instant>,
) -> Option<Instant> {
    tracked.iter().map(|entry| entry.last_called + keep).chain(sessions_due).min()
}

/// Decides whether a plugin that was called gets a place. If all places are occupied, only its
/// second call gets a place, and only if some plugin with a place had no call in between.
/// `without_place`: the plugins without a place, each with the time of its call.
fn take_place(
    plugin: &Weak<LoadedPlugin>,
    now: Instant,
    tracked: &[TrackedPlugin],
    without_place: &mut Vec<TrackedPlugin>,
) -> bool {
    if tracked.len() < PLUGINS {
        return true;
    }
    let Some(oldest) = tracked.iter().map(|entry| entry.last_called).min() else { return true };
    without_place.retain(|entry| entry.last_called > oldest);
    if let Some(index) = without_place.iter().position(|entry| entry.plugin.ptr_eq(plugin)) {
        without_place.remove(index);
        return true;
    }

    if without_place.len() == PLUGINS {
        without_place.remove(0);
    }
    without_place.push(TrackedPlugin { plugin: Weak::clone(plugin), last_called: now });
    if let Some(plugin) = plugin.upgrade()
        && let Some(code) = plugin.code.get()
    {
        // The plugin's next call is reported again.
        code.warm_pool.tracked.store(false, Ordering::Relaxed);
    }
    false
}

/// Notes which plugins were called since the last check.
fn note_calls(tracked: &mut [TrackedPlugin], now: Instant) {
    for entry in tracked {
        let Some(plugin) = entry.plugin.upgrade() else { continue };
        let Some(code) = plugin.code.get() else { continue };
        if code.warm_pool.called.swap(false, Ordering::Relaxed) {
            entry.last_called = now;
        }
    }
}

/// Drops the warm instances of all plugins except those with the latest calls. `keep`: the lifetime
/// of instances after a plugin's last call.
fn drop_idle(tracked: &mut Vec<TrackedPlugin>, now: Instant, keep: Duration) {
    tracked.sort_by_key(|entry| std::cmp::Reverse(entry.last_called));
    let mut place = 0;
    tracked.retain(|entry| {
        let Some(plugin) = entry.plugin.upgrade() else { return false };
        let Some(code) = plugin.code.get() else { return false };
        let pool = &code.warm_pool;
        place += 1;
        let is_recent = now < entry.last_called + keep;
        let stays = place <= PLUGINS && is_recent && !pool.disabled.load(Ordering::Relaxed);
        if !stays {
            // The plugin's next call makes it tracked again.
            pool.tracked.store(false, Ordering::Relaxed);
            pool.clear();
        }
        stays
    });
}

fn refill(plugin: &LoadedPlugin, code: &Code, reactor: &Reactor) {
    while code.warm_pool.count() < EACH {
        match make_instance(plugin, code, reactor) {
            Ok(instance) => code.warm_pool.put(instance),
            Err(error) => {
                // The next instance would fail in the same way, so calls make their own instances.
                tracing::debug!(plugin = &*plugin.name, "it has no warm instances: {error}");
                code.warm_pool.disabled.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Makes a warm instance.
fn make_instance(
    plugin: &LoadedPlugin,
    code: &Code,
    reactor: &Reactor,
) -> Result<WarmInstance, WarmError> {
    let bounds = CallBounds { grace: Duration::ZERO, cpu: CPU, ..plugin.policy.limits.bounds() };
    let watch = Arc::new(CallWatch::new(TIME, bounds, CancellationToken::new()));
    let _ticking = plugin.runtime.engine.keep_ticking();
    let polled = reactor.block_on(async {
        let mut creating =
            pin!(run::metered(Arc::clone(&watch), run::fresh(plugin, code, &watch, None)));
        // The future is polled once: the thread doesn't wait for an instance that waits for
        // something.
        poll_fn(|context| Poll::Ready(creating.as_mut().poll(context))).await
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
    if store.data().memory.used() > MEMORY {
        return Err(WarmError::Memory);
    }
    Ok(WarmInstance { store, entry })
}
