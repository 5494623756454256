//! The instances of a plugin that wait for its next calls. Each serves one call and is never put
//! back.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::guest::bindings::Plugin as Instance;
use crate::guest::state::CallState;

/// Instances that wait for calls of one plugin: as many as an agent often makes at once.
pub(crate) const EACH: usize = 2;

/// Plugins that have instances waiting.
pub(crate) const PLUGINS: usize = 8;

/// Used stores that wait to be taken apart. What comes on top of them is taken apart at once, by
/// the call itself.
pub(crate) const USED: usize = 4;

/// Instances of filters that are kept for their sessions, of all plugins together.
pub(crate) const FILTERS: usize = 16;

/// Stores that may be there beside those of running calls: those that wait, used ones that wait and
/// as many that are being taken apart, and the one that is being made; and those of filters that
/// are kept for the next output of their session.
pub(crate) const SPARE: usize = EACH * PLUGINS + 2 * USED + 1 + FILTERS;

/// Memories and tables of a component that is readied: the pool has so many more for each of
/// [`SPARE`], so that no call goes short of them.
pub(crate) const MEMORIES: u32 = 1;
pub(crate) const TABLES: u32 = 4;

/// Bytes of memory with which an instance may wait, before its call or after it.
pub(crate) const MEMORY: usize = 64 << 20;

/// An instance that no call has begun in.
pub(crate) struct WarmInstance {
    pub(crate) store: Store<CallState>,
    pub(crate) instance: Instance,
}

/// A plugin's instances that wait for a call. They go when the plugin does.
pub(crate) struct WarmPool {
    instances: Mutex<Vec<WarmInstance>>,
    /// Whether its stores are of the size that the pool has spare room for.
    pub(crate) fits: bool,
    /// Whether there is a reason to make no more.
    pub(crate) spoiled: AtomicBool,
    /// Whether it was called since the housekeeper last looked.
    pub(crate) called: AtomicBool,
    /// Whether the housekeeper knows it.
    pub(crate) known: AtomicBool,
}

/// Whether the stores of a plugin are of the size that the pool has spare room for.
pub(crate) fn fits(plugin: &InstancePre<CallState>) -> bool {
    let needs = plugin.component().resources_required();
    needs.is_some_and(|needs| needs.num_memories <= MEMORIES && needs.num_tables <= TABLES)
}

impl WarmPool {
    /// None of a plugin that was just loaded: nobody knows yet whether it is called at all.
    pub(crate) fn new(plugin: &InstancePre<CallState>) -> Self {
        let fits = fits(plugin);
        Self {
            instances: Mutex::default(),
            fits,
            spoiled: AtomicBool::new(!fits),
            called: AtomicBool::default(),
            known: AtomicBool::default(),
        }
    }

    /// An instance, for one call.
    pub(crate) fn take(&self) -> Option<WarmInstance> {
        self.instances().pop()
    }

    /// Adds one.
    pub(crate) fn put(&self, instance: WarmInstance) {
        self.instances().push(instance);
    }

    /// How many instances wait.
    pub(crate) fn count(&self) -> usize {
        self.instances().len()
    }

    pub(crate) fn clear(&self) {
        let instances = std::mem::take(&mut *self.instances());
        drop(instances);
    }

    fn instances(&self) -> MutexGuard<'_, Vec<WarmInstance>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
