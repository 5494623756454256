//! Stores warm instances of a plugin, which are made before a call needs them. Each instance serves
//! one call and is never reused.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use crate::guest::CallState;
use crate::guest::contract::{CallTool, FilterInstance};

/// Most warm instances of one plugin. An agent often makes two calls at once.
pub(crate) const EACH: usize = 2;

/// Most plugins with warm instances.
pub(crate) const PLUGINS: usize = 8;

/// Most used stores in the housekeeper's queue. If the queue is full, a call drops its own store.
pub(crate) const USED: usize = 4;

/// Most instances of sessions, for all plugins together.
pub(crate) const KEPT: usize = 32;

/// Most stores in addition to those of running calls. These are warm instances, used stores in the
/// queue and as many that are being dropped, the instance that is being made, and the instances of
/// sessions.
pub(crate) const SPARE: usize = EACH * PLUGINS + 2 * USED + 1 + KEPT;

/// Most memories and tables of a component with warm instances. The pool reserves this many for
/// each store of [`SPARE`], so that calls always have enough.
pub(crate) const MEMORIES: u32 = 1;
pub(crate) const TABLES: u32 = 4;

/// Most bytes of memory of an idle instance, before or after its call.
pub(crate) const MEMORY: usize = 64 << 20;

/// How a call enters an instance.
pub(crate) enum Entry {
    /// By the contract.
    Tool(CallTool),
    /// By the exports of a component that doesn't know Toolhold.
    Foreign(Instance),
    /// The exports of a plugin with filters.
    Filter(FilterInstance),
}

/// An instance that is ready before a call needs it.
pub(crate) struct WarmInstance {
    pub(crate) store: Store<CallState>,
    pub(crate) entry: Entry,
}

/// The warm instances of a plugin. The plugin drops them with itself.
pub(crate) struct WarmPool {
    instances: Mutex<Vec<WarmInstance>>,
    /// Whether the plugin's stores fit into the spare slots of the pool.
    pub(crate) fits: bool,
    /// Whether the housekeeper makes no more warm instances of this plugin.
    pub(crate) disabled: AtomicBool,
    /// Whether the plugin was called since the housekeeper last checked.
    pub(crate) called: AtomicBool,
    /// Whether the housekeeper tracks the plugin.
    pub(crate) tracked: AtomicBool,
}

/// Checks whether the stores of a plugin fit into the spare slots of the pool.
fn fits_into_pool(plugin: &InstancePre<CallState>) -> bool {
    let Some(needs) = plugin.component().resources_required() else { return false };
    needs.num_memories <= MEMORIES && needs.num_tables <= TABLES
}

impl WarmPool {
    /// Makes an empty pool for a plugin that was just loaded. The plugin may never be called.
    pub(crate) fn new(plugin: &InstancePre<CallState>) -> Self {
        let fits = fits_into_pool(plugin);
        Self {
            instances: Mutex::default(),
            fits,
            disabled: AtomicBool::new(!fits),
            called: AtomicBool::default(),
            tracked: AtomicBool::default(),
        }
    }

    /// Takes an instance for one call.
    pub(crate) fn take(&self) -> Option<WarmInstance> {
        self.instances().pop()
    }

    /// Adds an instance.
    pub(crate) fn put(&self, instance: WarmInstance) {
        self.instances().push(instance);
    }

    /// Returns the number of warm instances.
    pub(crate) fn count(&self) -> usize {
        self.instances().len()
    }

    /// Drops all instances, after the lock was released.
    pub(crate) fn clear(&self) {
        let instances = std::mem::take(&mut *self.instances());
        drop(instances);
    }

    fn instances(&self) -> MutexGuard<'_, Vec<WarmInstance>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
