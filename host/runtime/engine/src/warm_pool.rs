//! Stores warm instances, which are made before a call needs them. Each serves one call.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use crate::guest::CallState;
use crate::guest::contract::{CallTool, FilterInstance};

/// Most warm instances of a plugin. Agents often make two calls at a time.
pub(crate) const MAX_INSTANCES_OF_PLUGIN: usize = 2;

pub(crate) const MAX_PLUGINS: usize = 8;

/// Most used stores in the housekeeper's queue. If the queue is full, a call drops its store
/// itself.
pub(crate) const MAX_USED_STORES: usize = 4;

/// Most instances of sessions, over all plugins.
pub(crate) const MAX_SESSION_INSTANCES: usize = 32;

/// Most stores in addition to those of running calls: warm instances, used stores in the queue,
/// used stores that are being dropped, an instance that is being made, and instances of sessions.
pub(crate) const SPARE: usize =
    MAX_INSTANCES_OF_PLUGIN * MAX_PLUGINS + 2 * MAX_USED_STORES + 1 + MAX_SESSION_INSTANCES;

/// Most memories and tables of a component with warm instances. The pool reserves as many for each
/// store of [`SPARE`], so that calls never lack them.
pub(crate) const MEMORIES: u32 = 1;
pub(crate) const TABLES: u32 = 4;

/// Most bytes of memory of an idle instance. A larger instance is dropped.
pub(crate) const MAX_IDLE_MEMORY: usize = 64 << 20;

pub(crate) enum Entry {
    /// An export of Toolhold's contract.
    Tool(CallTool),
    /// A component without Toolhold's interfaces.
    Foreign(Instance),
    Filter(FilterInstance),
}

pub(crate) struct WarmInstance {
    pub(crate) store: Store<CallState>,
    pub(crate) entry: Entry,
}

pub(crate) struct WarmPool {
    instances: Mutex<Vec<WarmInstance>>,
    /// Whether the plugin's stores fit into the pool's spare slots.
    pub(crate) fits_spare_slots: bool,
    /// Whether no further warm instances are made.
    pub(crate) disabled: AtomicBool,
    /// Whether the plugin was called since the housekeeper's last check.
    pub(crate) called: AtomicBool,
    /// Whether the housekeeper tracks the plugin, or will do so.
    pub(crate) tracked: AtomicBool,
}

fn fits_into_pool(plugin: &InstancePre<CallState>) -> bool {
    let Some(needs) = plugin.component().resources_required() else { return false };
    needs.num_memories <= MEMORIES && needs.num_tables <= TABLES
}

impl WarmPool {
    /// Makes an empty pool. A plugin whose stores don't fit into the spare slots gets no instances.
    pub(crate) fn new(plugin: &InstancePre<CallState>) -> Self {
        let fits_spare_slots = fits_into_pool(plugin);
        Self {
            instances: Mutex::default(),
            fits_spare_slots,
            disabled: AtomicBool::new(!fits_spare_slots),
            called: AtomicBool::default(),
            tracked: AtomicBool::default(),
        }
    }

    pub(crate) fn take(&self) -> Option<WarmInstance> {
        self.instances().pop()
    }

    pub(crate) fn put(&self, instance: WarmInstance) {
        self.instances().push(instance);
    }

    pub(crate) fn count(&self) -> usize {
        self.instances().len()
    }

    /// Drops all instances. The lock is released first, because dropping a store takes long.
    pub(crate) fn clear(&self) {
        let instances = std::mem::take(&mut *self.instances());
        drop(instances);
    }

    fn instances(&self) -> MutexGuard<'_, Vec<WarmInstance>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
