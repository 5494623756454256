//! The engine of parts.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use toolhold_contract::HostError;
use wasmtime::component::{Component, Linker};

use crate::parts::job::Meter;
use crate::parts::random::{self, Random};
use crate::{StoreBounds, StoreLimiter, settings};

/// Most bytes of all memories of an instance.
pub(crate) const MEMORY: usize = 256 << 20;

const BOUNDS: StoreBounds = StoreBounds {
    memory: MEMORY,
    table_elements: 100_000,
    instances: 16,
    memories: 16,
    tables: 16,
};

/// The engine of parts, which all plugins share.
pub struct PartEngine {
    pub(crate) wasm: wasmtime::Engine,
    /// Threads that calls may still take. Every call has one thread in addition to these.
    spare: AtomicUsize,
}

impl PartEngine {
    /// Starts the engine.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Engine`] if this machine can't run the engine.
    pub fn new() -> Result<Self, HostError> {
        let wasm = wasmtime::Engine::new(&settings())
            .map_err(|error| HostError::Engine(format!("{error:#}")))?;
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let spare = processors.saturating_sub(1);
        Ok(Self { wasm, spare: AtomicUsize::new(spare) })
    }

    /// Links random numbers. All other imports trap.
    pub(crate) fn linker(&self, component: &Component) -> wasmtime::Result<Linker<PartState>> {
        let mut linker = Linker::new(&self.wasm);
        for (import, _) in component.component_type().imports(&self.wasm) {
            random::link(&mut linker, import, |state: &mut PartState| &mut state.random)?;
        }
        linker.define_unknown_imports_as_traps(component)?;
        Ok(linker)
    }

    /// Takes at most `count` spare threads.
    pub(crate) fn take_threads(&self, count: usize) -> Threads<'_> {
        let update = self.spare.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |spare| {
            Some(spare.saturating_sub(count))
        });
        // The update never fails, because the closure always returns `Some`. It returns the number
        // before the update.
        let spare_before = update.unwrap_or_default();
        Threads { spare: &self.spare, taken: spare_before.min(count) }
    }
}

/// The engine of parts, which is started for the first part.
#[derive(Default)]
pub struct LazyPartEngine(OnceLock<Result<PartEngine, HostError>>);

impl LazyPartEngine {
    /// Returns the engine, and starts it at the first use.
    ///
    /// # Errors
    ///
    /// Returns an error if this machine can't run the engine.
    pub fn get(&self) -> Result<&PartEngine, &HostError> {
        self.0.get_or_init(PartEngine::new).as_ref()
    }
}

/// Spare threads of a call. Dropping releases them.
pub(crate) struct Threads<'e> {
    spare: &'e AtomicUsize,
    pub(crate) taken: usize,
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        self.spare.fetch_add(self.taken, Ordering::SeqCst);
    }
}

/// The host's state of an instance.
pub(crate) struct PartState {
    pub(crate) random: Random,
    pub(crate) limiter: StoreLimiter,
    pub(crate) meter: Meter,
}

impl PartState {
    pub(crate) fn new(meter: Meter) -> Self {
        Self { random: Random::default(), limiter: StoreLimiter::new(BOUNDS), meter }
    }

    /// Prepares the instance for another input. Every input gets the same random numbers.
    pub(crate) fn begin(&mut self, meter: Meter) {
        self.random = Random::default();
        self.meter = meter;
    }
}
