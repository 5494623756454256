//! Makes the engine that runs plugins.

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
use crate::limits::{KIB, MAX_INSTANCES, MIB};
use crate::session::SessionInstances;
use crate::warm_pool::{MEMORIES, SPARE, TABLES};

/// Bytes of a page of a linear memory.
const WASM_PAGE: usize = 64 * KIB;

/// Core instances, memories and tables that the pool reserves for a call. A component may have
/// several of each.
const CORE_INSTANCES_OF_CALL: u32 = 8;
const MEMORIES_OF_CALL: u32 = 2;
const TABLES_OF_CALL: u32 = 4;

/// Limits of one core module and its tables.
const MAX_TABLE_ELEMENTS: usize = 100_000;
const MAX_MEMORIES_OF_MODULE: u32 = 4;
const MAX_TABLES_OF_MODULE: u32 = 8;

/// Most bytes that the engine needs to describe an instance.
const MAX_INSTANCE_SIZE: usize = 10 * MIB;

/// Bytes that stay mapped in an unused slot.
const RESIDENT_MEMORY: usize = 256 * KIB;
const RESIDENT_TABLE: usize = 32 * KIB;

pub(crate) struct Engine {
    pub(crate) wasm: wasmtime::Engine,
    pub(crate) linker: Linker<CallState>,
    pub(crate) housekeeper: Housekeeper,
    ticker: Ticker,
    /// Why there is no memory pool. Calls start slower without a pool.
    pub(crate) no_pool: Option<String>,
}

impl Engine {
    /// Makes an engine for `concurrency` calls at a time, each with at most `memory` bytes. Warm
    /// instances live for `keep_ready`.
    pub(crate) fn new(
        concurrency: usize,
        memory: usize,
        keep_ready: Duration,
        sessions: Arc<SessionInstances>,
    ) -> Result<Self, HostError> {
        let mut config = settings();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(concurrency, memory)));
        let mut no_pool = None;
        let wasm = match wasmtime::Engine::new(&config) {
            Ok(wasm) => wasm,
            // The pool reserves much address space, which some containers limit. `toolhold doctor`
            // reports this.
            Err(error) => {
                let reason = format!("{error:#}");
                tracing::info!("no memory pool, so calls start slower: {reason}");
                no_pool = Some(reason);
                wasmtime::Engine::new(&settings()).map_err(|error| engine_error(&error))?
            }
        };

        let housekeeper = Housekeeper::new(keep_ready, sessions);
        let ticker = Ticker::start(wasm.weak(), housekeeper.shared())
            .map_err(HostError::io("the ticker's thread can't be started"))?;
        let linker = linking::linker(&wasm).map_err(|error| engine_error(&error))?;
        Ok(Self { wasm, linker, housekeeper, ticker, no_pool })
    }

    pub(crate) fn keep_ticking(&self) -> TickGuard {
        self.ticker.keep_ticking()
    }
}

fn engine_error(error: &wasmtime::Error) -> HostError {
    HostError::Engine(format!("{error:#}"))
}

/// Checks whether the kernel can report the memory that a call has touched. An engine that requires
/// such reports is made for the test.
pub(crate) fn finds_touched_memory() -> bool {
    // The smallest pool is enough: one call with one page of memory.
    let mut pooling = pool(1, WASM_PAGE);
    pooling.pagemap_scan(Enabled::Yes);
    let mut config = settings();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling));
    wasmtime::Engine::new(&config).is_ok()
}

/// Configures a pool with two slots for each concurrent call, because an abandoned call may occupy
/// its slot for a while. Warm instances use the spare slots.
fn pool(concurrency: usize, memory: usize) -> PoolingAllocationConfig {
    // More calls than `u32::MAX` don't fit into any machine.
    let calls = u32::try_from(concurrency).unwrap_or(u32::MAX);
    let slots = calls.saturating_mul(2);
    let spare = SPARE as u32;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots + spare)
        .total_core_instances(slots * CORE_INSTANCES_OF_CALL + spare * MAX_INSTANCES as u32)
        .total_memories(slots * MEMORIES_OF_CALL + spare * MEMORIES)
        .total_tables(slots * TABLES_OF_CALL + spare * TABLES)
        .total_stacks(slots + spare)
        .max_memory_size(memory)
        .table_elements(MAX_TABLE_ELEMENTS)
        .max_memories_per_module(MAX_MEMORIES_OF_MODULE)
        .max_tables_per_module(MAX_TABLES_OF_MODULE)
        .max_component_instance_size(MAX_INSTANCE_SIZE)
        .max_core_instance_size(MAX_INSTANCE_SIZE)
        // The memory of a small guest is cleared and stays mapped, because unmapping and faulting
        // in takes longer.
        .linear_memory_keep_resident(RESIDENT_MEMORY)
        .table_keep_resident(RESIDENT_TABLE)
        .max_unused_warm_slots(calls)
        .pagemap_scan(Enabled::Auto);
    pool
}
