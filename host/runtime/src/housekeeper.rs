//! Instances made before they are asked for, and used ones taken apart after the answer has left.
//!
//! What a plugin that is in use needs for its next call is made beside the calls: one thread, the
//! housekeeper, keeps a few fresh instances of the plugins that were called last, and drops the
//! stores of calls that are over. No call wakes it up, which would cost the call more than it
//! saves: the ticker looks whether there is work for it. Each instance serves one call and is never
//! put back.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use berth_contract::CancellationToken;
use tokio::runtime::Runtime as Reactor;
use wasmtime::Store;

use crate::clock::Chores;
use crate::guest::state::CallState;
use crate::limits::Limits;
use crate::outcome;
use crate::plugin::Loaded;
use crate::run;
use crate::warm_pool::{EACH, MEMORY, PLUGINS, USED, WarmInstance};
use crate::watch::Watch;

/// How long instantiating may take beside the calls, and how much of a processor. What takes longer
/// is made by the call that needs it.
const TIME: Duration = Duration::from_secs(5);
const CPU: Duration = Duration::from_secs(1);

/// The thread that readies and takes apart. It is started when there is work for the first time,
/// and ends with this value.
pub(crate) struct Housekeeper(Arc<Shared>);

/// What calls, the ticker and the housekeeper share.
pub(crate) struct Shared {
    /// How long instances wait for a call of their plugin. Zero: none is readied.
    keep: Duration,
    /// Whether there is something to do that the housekeeper was not told of.
    work: AtomicBool,
    todo: Mutex<Todo>,
    wake: Condvar,
}

/// What calls leave to the housekeeper.
#[derive(Default)]
struct Work {
    used: Vec<Store<CallState>>,
    /// Plugins that were called and that the housekeeper does not know.
    new: Vec<Weak<Loaded>>,
}

#[derive(Default)]
struct Todo {
    work: Work,
    /// Whether the thread was started.
    started: bool,
    told: bool,
    end: bool,
}

/// A plugin that has, or should have, instances waiting.
struct Tended {
    plugin: Weak<Loaded>,
    called: Instant,
}

impl Housekeeper {
    pub(crate) fn new(keep: Duration) -> Self {
        Self(Arc::new(Shared {
            keep,
            work: AtomicBool::default(),
            todo: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    /// For the ticker.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// Takes over the store of a call that is over, and sees to it that the plugin's next call
    /// finds an instance.
    pub(crate) fn take_over(&self, plugin: &Arc<Loaded>, mut store: Store<CallState>) {
        store.data_mut().end();
        let pool = &plugin.warm_pool;
        let mut todo = self.0.todo();
        if !self.0.keep.is_zero() && !pool.spoiled.load(Ordering::Relaxed) {
            pool.called.store(true, Ordering::Relaxed);
            if !pool.known.swap(true, Ordering::Relaxed) {
                todo.work.new.push(Arc::downgrade(plugin));
            }
        }
        let small = pool.fits && store.data().memory.used() <= MEMORY;
        let mut too_many = None;
        if small && todo.work.used.len() < USED {
            todo.work.used.push(store);
        } else {
            too_many = Some(store);
        }
        drop(todo);
        drop(too_many);
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
    /// Whether there is work that the housekeeper was not told of.
    fn has_work(&self) -> bool {
        self.work.load(Ordering::Acquire)
    }

    /// Tells the housekeeper if there is work. The ticker asks, at each tick.
    fn tick(self: &Arc<Self>) {
        if !self.work.swap(false, Ordering::Acquire) {
            return;
        }
        let mut todo = self.todo();
        todo.told = true;
        if std::mem::replace(&mut todo.started, true) {
            self.wake.notify_all();
            return;
        }
        drop(todo);
        let of_thread = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("berth-housekeeper".into())
            .spawn(move || keep_house(&of_thread));
        if let Err(error) = started {
            tracing::warn!(
                "calls find no instance waiting for them: starting the housekeeper's thread: {error}"
            );
        }
    }
}

impl Shared {
    /// Waits for work, or until it is time to look again. None at the end.
    fn wait(&self, until: Option<Instant>) -> Option<Work> {
        let mut todo = self.todo();
        loop {
            if todo.end {
                return None;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if std::mem::take(&mut todo.told) || left.is_some_and(|left| left.is_zero()) {
                return Some(std::mem::take(&mut todo.work));
            }
            todo = match left {
                Some(left) => {
                    self.wake.wait_timeout(todo, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(todo).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep_house(shared: &Shared) {
    // Of its own, since those of the program come and go. What a component may wait for while it is
    // instantiated needs one to be there.
    let reactor = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(reactor) => reactor,
        Err(error) => {
            tracing::warn!("calls find no instance waiting for them: {error}");
            return;
        }
    };
    let mut kept: Vec<Tended> = Vec::new();
    let due = |kept: &[Tended]| kept.iter().map(|kept| kept.called + shared.keep).min();
    while let Some(Work { used, new }) = shared.wait(due(&kept)) {
        drop(used);
        let now = Instant::now();
        kept.extend(new.into_iter().map(|plugin| Tended { plugin, called: now }));
        keep(&mut kept, now, shared.keep);
        for plugin in kept.iter().filter_map(|kept| kept.plugin.upgrade()) {
            refill(&plugin, &reactor);
        }
    }
}

/// Keeps the plugins that were called last, and lets go what waits for calls of the others.
fn keep(kept: &mut Vec<Tended>, now: Instant, time: Duration) {
    for kept in kept.iter_mut() {
        if kept
            .plugin
            .upgrade()
            .is_some_and(|plugin| plugin.warm_pool.called.swap(false, Ordering::Relaxed))
        {
            kept.called = now;
        }
    }
    kept.sort_by_key(|kept| std::cmp::Reverse(kept.called));
    let mut place = 0;
    kept.retain(|kept| {
        let Some(plugin) = kept.plugin.upgrade() else { return false };
        let pool = &plugin.warm_pool;
        place += 1;
        let stays =
            place <= PLUGINS && now < kept.called + time && !pool.spoiled.load(Ordering::Relaxed);
        if !stays {
            // A call from here on makes it known again.
            pool.known.store(false, Ordering::Relaxed);
            pool.clear();
        }
        stays
    });
}

fn refill(plugin: &Arc<Loaded>, reactor: &Reactor) {
    while plugin.warm_pool.count() < EACH {
        match make(plugin, reactor) {
            Ok(instance) => plugin.warm_pool.put(instance),
            Err(reason) => {
                // The next one would be no better: its calls make their instances themselves.
                tracing::debug!(
                    plugin = &*plugin.name,
                    "none of its instances waits for a call: {reason}"
                );
                plugin.warm_pool.spoiled.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Makes an instance that can wait.
fn make(plugin: &Loaded, reactor: &Reactor) -> Result<WarmInstance, String> {
    let bounds = Limits { grace: Duration::ZERO, cpu: CPU, ..plugin.policy.limits.clone() };
    let watch = Arc::new(Watch::new(TIME, &bounds, CancellationToken::new()));
    let _ticking = plugin.runtime.engine.keep_ticking();
    let made = reactor.block_on(async {
        let mut made = pin!(run::metered(Arc::clone(&watch), run::fresh(plugin, &watch)));
        poll_fn(|context| match made.as_mut().poll(context) {
            Poll::Ready(made) => Poll::Ready(Some(made)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    });
    let (store, instance) = made.ok_or("it waits for something while it is instantiated")?;
    let instance = match instance {
        Ok(instance) => instance,
        Err(error) => return Err(outcome::failure(&watch, &error, &store, &plugin.name).message),
    };
    if store.data().files.looked() {
        return Err("it reads files while it is instantiated, which could be outdated at the time of the call".into());
    }
    if store.data().memory.used() > MEMORY {
        return Err(format!(
            "it takes more than {} MiB of memory while it is instantiated",
            MEMORY >> 20
        ));
    }
    Ok(WarmInstance { store, instance })
}
