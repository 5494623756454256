//! Instances made before they are asked for, and used ones taken apart after the answer has left.
//!
//! What a plugin that is in use needs for its next call is made beside the calls: one thread, the housekeeper, keeps a few fresh
//! instances of the plugins that were called last, and drops the stores of calls that are over. No call wakes it up, which would cost the
//! call more than it saves: the ticker looks whether there is work for it. Each instance serves one call and is never put back.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use berth_contract::CancellationToken;
use tokio::runtime::Runtime as Reactor;
use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::bindings::Plugin as Instance;
use crate::limits::Limits;
use crate::plugin::Loaded;
use crate::state::CallState;
use crate::watch::Watch;
use crate::{filter, run};

/// Instances that wait for calls of one plugin: as many as an agent often makes at once.
const EACH: usize = 2;

/// Plugins that have instances waiting.
const PLUGINS: usize = 8;

/// Used stores that wait to be taken apart. What comes on top of them is taken apart at once, by the call itself.
const USED: usize = 4;

/// Stores that may be there beside those of running calls: those that wait, used ones that wait and as many that are being taken apart,
/// and the one that is being made; and those of filters that are kept for the next output of their session.
pub(crate) const SPARE: usize = EACH * PLUGINS + 2 * USED + 1 + filter::KEPT;

/// Memories and tables of a component that is readied: the pool has so many more for each of [`SPARE`], so that no call goes short of them.
pub(crate) const MEMORIES: u32 = 1;
pub(crate) const TABLES: u32 = 4;

/// Bytes of memory with which an instance may wait, before its call or after it.
pub(crate) const MEMORY: usize = 64 << 20;

/// How long instantiating may take beside the calls, and how much of a processor. What takes longer is made by the call that needs it.
const TIME: Duration = Duration::from_secs(5);
const CPU: Duration = Duration::from_secs(1);

/// An instance that no call has begun in.
pub(crate) struct Ready {
    pub(crate) store: Store<CallState>,
    pub(crate) instance: Instance,
}

/// A plugin's instances that wait for a call. They go when the plugin does.
pub(crate) struct Waiting {
    ready: Mutex<Vec<Ready>>,
    /// Whether its stores are of the size that the pool has spare room for.
    fits: bool,
    /// Whether there is a reason to make no more.
    spoiled: AtomicBool,
    /// Whether it was called since the housekeeper last looked.
    called: AtomicBool,
    /// Whether the housekeeper knows it.
    known: AtomicBool,
}

/// Whether the stores of a plugin are of the size that the pool has spare room for.
pub(crate) fn fits(plugin: &InstancePre<CallState>) -> bool {
    let needs = plugin.component().resources_required();
    needs.is_some_and(|needs| needs.num_memories <= MEMORIES && needs.num_tables <= TABLES)
}

impl Waiting {
    /// None of a plugin that was just loaded: nobody knows yet whether it is called at all.
    pub(crate) fn new(plugin: &InstancePre<CallState>) -> Self {
        let fits = fits(plugin);
        Self { ready: Mutex::default(), fits, spoiled: AtomicBool::new(!fits), called: AtomicBool::default(), known: AtomicBool::default() }
    }

    /// An instance, for one call.
    pub(crate) fn take(&self) -> Option<Ready> {
        self.ready().pop()
    }

    /// How many instances wait.
    pub(crate) fn count(&self) -> usize {
        self.ready().len()
    }

    fn clear(&self) {
        let ready = std::mem::take(&mut *self.ready());
        drop(ready);
    }

    fn ready(&self) -> MutexGuard<'_, Vec<Ready>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that readies and takes apart. It is started when there is work for the first time, and ends with this value.
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
struct Kept {
    plugin: Weak<Loaded>,
    called: Instant,
}

impl Housekeeper {
    pub(crate) fn new(keep: Duration) -> Self {
        Self(Arc::new(Shared { keep, work: AtomicBool::default(), todo: Mutex::default(), wake: Condvar::new() }))
    }

    /// For the ticker.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// Takes over the store of a call that is over, and sees to it that the plugin's next call finds an instance.
    pub(crate) fn take_over(&self, plugin: &Arc<Loaded>, mut store: Store<CallState>) {
        store.data_mut().end();
        let waiting = &plugin.waiting;
        let mut todo = self.0.todo();
        if !self.0.keep.is_zero() && !waiting.spoiled.load(Ordering::Relaxed) {
            waiting.called.store(true, Ordering::Relaxed);
            if !waiting.known.swap(true, Ordering::Relaxed) {
                todo.work.new.push(Arc::downgrade(plugin));
            }
        }
        let small = waiting.fits && store.data().memory.used() <= MEMORY;
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

impl Shared {
    /// Whether there is work that the housekeeper was not told of.
    pub(crate) fn has_work(&self) -> bool {
        self.work.load(Ordering::Acquire)
    }

    /// Tells the housekeeper if there is work. The ticker asks, at each tick.
    pub(crate) fn tick(self: &Arc<Self>) {
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
        let started = std::thread::Builder::new().name("berth-housekeeper".into()).spawn(move || keep_house(&of_thread));
        if let Err(error) = started {
            tracing::warn!("calls find no instance waiting for them: starting the housekeeper's thread: {error}");
        }
    }

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
                Some(left) => self.wake.wait_timeout(todo, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(todo).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep_house(shared: &Shared) {
    // Of its own, since those of the program come and go. What a component may wait for while it is instantiated needs one to be there.
    let reactor = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(reactor) => reactor,
        Err(error) => {
            tracing::warn!("calls find no instance waiting for them: {error}");
            return;
        }
    };
    let mut kept: Vec<Kept> = Vec::new();
    let due = |kept: &[Kept]| kept.iter().map(|kept| kept.called + shared.keep).min();
    while let Some(Work { used, new }) = shared.wait(due(&kept)) {
        drop(used);
        let now = Instant::now();
        kept.extend(new.into_iter().map(|plugin| Kept { plugin, called: now }));
        keep(&mut kept, now, shared.keep);
        for plugin in kept.iter().filter_map(|kept| kept.plugin.upgrade()) {
            refill(&plugin, &reactor);
        }
    }
}

/// Keeps the plugins that were called last, and lets go what waits for calls of the others.
fn keep(kept: &mut Vec<Kept>, now: Instant, time: Duration) {
    for kept in kept.iter_mut() {
        if kept.plugin.upgrade().is_some_and(|plugin| plugin.waiting.called.swap(false, Ordering::Relaxed)) {
            kept.called = now;
        }
    }
    kept.sort_by_key(|kept| std::cmp::Reverse(kept.called));
    let mut place = 0;
    kept.retain(|kept| {
        let Some(plugin) = kept.plugin.upgrade() else { return false };
        let waiting = &plugin.waiting;
        place += 1;
        let stays = place <= PLUGINS && now < kept.called + time && !waiting.spoiled.load(Ordering::Relaxed);
        if !stays {
            // A call from here on makes it known again.
            waiting.known.store(false, Ordering::Relaxed);
            waiting.clear();
        }
        stays
    });
}

fn refill(plugin: &Arc<Loaded>, reactor: &Reactor) {
    while plugin.waiting.count() < EACH {
        match ready(plugin, reactor) {
            Ok(ready) => plugin.waiting.ready().push(ready),
            Err(reason) => {
                // The next one would be no better: its calls make their instances themselves.
                tracing::debug!(plugin = &*plugin.name, "none of its instances waits for a call: {reason}");
                plugin.waiting.spoiled.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Makes an instance that can wait.
fn ready(plugin: &Loaded, reactor: &Reactor) -> Result<Ready, String> {
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
        Err(error) => return Err(watch.failure(&error, &store, &plugin.name).message),
    };
    if store.data().files.looked() {
        return Err("it looks at files while it is instantiated, and what it saw would be old by the time of the call".into());
    }
    if store.data().memory.used() > MEMORY {
        return Err(format!("it takes more than {} MiB of memory while it is instantiated", MEMORY >> 20));
    }
    Ok(Ready { store, instance })
}
