//! Makes the engine that runs plugins: its pool of memories, and the linker that all plugins share.

use std::sync::Arc;
use std::time::Duration;

use toolhold_compiler::settings;
use toolhold_contract::HostError;
use wasmtime::component::Linker;
use wasmtime::{Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::clock::{TickGuard, Ticker};
use crate::guest::CallState;
use crate::guest::linking;
use crate::housekeeper::Housekeeper;
use crate::limits::MAX_INSTANCES;
use crate::session::SessionInstances;
use crate::warm_pool::{MEMORIES, SPARE, TABLES};

/// Runs components.
pub(crate) struct Engine {
    pub(crate) wasm: wasmtime::Engine,
    pub(crate) linker: Linker<CallState>,
    pub(crate) housekeeper: Housekeeper,
    ticker: Ticker,
    /// Why there is no memory pool. Without a pool, calls start slower. Nothing else changes.
    pub(crate) no_pool: Option<String>,
}

impl Engine {
    /// Makes an engine for at most `concurrency` calls at a time, each with at most `memory` bytes.
    /// `keep_ready` is the lifetime of warm instances. The housekeeper drops idle instances of
    /// `sessions`.
    pub(crate) fn new(
        concurrency: usize,
        memory: usize,
        keep_ready: Duration,
        sessions: Arc<SessionInstances>,
    ) -> Result<Self, HostError> {
        let mut config = settings();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(concurrency, memory)));
        // The pool reserves address space. Containers and small machines may not have enough, which
        // `toolhold doctor` reports.
        let (wasm, no_pool) = match wasmtime::Engine::new(&config) {
            Ok(wasm) => (wasm, None),
            Err(error) => {
                let reason = format!("{error:#}");
                tracing::info!("no memory pool, so calls start slower: {reason}");
                let wasm =
                    wasmtime::Engine::new(&settings()).map_err(|error| engine_error(&error))?;
                (wasm, Some(reason))
            }
        };

        let housekeeper = Housekeeper::new(keep_ready, sessions);
        let ticker = Ticker::start(wasm.weak(), housekeeper.shared())
            .map_err(HostError::io("starting the ticker's thread"))?;
        let linker = linking::linker(&wasm).map_err(|error| engine_error(&error))?;
        Ok(Self { wasm, linker, housekeeper, ticker, no_pool })
    }

    /// Keeps the ticker running during a call, so that deadlines and budgets are checked.
    pub(crate) fn keep_ticking(&self) -> TickGuard {
        self.ticker.keep_ticking()
    }
}

fn engine_error(error: &wasmtime::Error) -> HostError {
    HostError::Engine(format!("{error:#}"))
}

/// Checks whether the kernel can report which memory a call has touched. The check starts an engine
/// that requires these reports.
pub(crate) fn finds_touched_memory() -> bool {
    let mut pooling = pool(1, 1 << 16);
    pooling.pagemap_scan(Enabled::Yes);
    let mut config = settings();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling));
    wasmtime::Engine::new(&config).is_ok()
}

/// Configures a pool with two slots for each call that may run at a time. Two are needed because an
/// abandoned call may occupy its slot for a while. Spare slots are for warm instances.
fn pool(concurrency: usize, memory: usize) -> PoolingAllocationConfig {
    let slots = u32::try_from(concurrency * 2).unwrap_or(u32::MAX);
    let spare = SPARE as u32;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots + spare)
        .total_core_instances(slots * 8 + spare * MAX_INSTANCES as u32)
        .total_memories(slots * 2 + spare * MEMORIES)
        .total_tables(slots * 4 + spare * TABLES)
        .total_stacks(slots + spare)
        // The limiter enforces the limits of a call. The limits of the pool must not be smaller.
        .max_memory_size(memory)
        .table_elements(100_000)
        .max_memories_per_module(4)
        .max_tables_per_module(8)
        .max_component_instance_size(10 << 20)
        .max_core_instance_size(10 << 20)
        // The memory that a small guest touches stays mapped and is cleared. This is cheaper than
        // unmapping it and faulting it in again.
        .linear_memory_keep_resident(256 << 10)
        .table_keep_resident(32 << 10)
        .max_unused_warm_slots(u32::try_from(concurrency).unwrap_or(u32::MAX))
        .pagemap_scan(Enabled::Auto);
    pool
}
