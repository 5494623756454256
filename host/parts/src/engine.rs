//! The engine of parts, and what one instance may use.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use berth_compiler::settings;
use berth_contract::HostError;
use wasmtime::ResourceLimiter;

use crate::job::Meter;
use crate::random::Random;

/// Most bytes of all memories of an instance.
pub(crate) const MEMORY: usize = 256 << 20;
/// Most elements of all tables of an instance.
const TABLE_ELEMENTS: usize = 100_000;
/// Most core instances, memories and tables of one component.
const MAX_ITEMS: usize = 16;

/// The engine of parts. Plugins share it.
pub struct PartEngine {
    pub(crate) wasm: wasmtime::Engine,
    /// Threads that calls may have beside the first of each.
    spare: AtomicUsize,
}

impl PartEngine {
    /// Starts the engine.
    ///
    /// # Errors
    ///
    /// [`HostError::Engine`] if this machine can't run it.
    pub fn new() -> Result<Self, HostError> {
        let failed = |error: wasmtime::Error| HostError::Engine(format!("{error:#}"));
        let wasm = wasmtime::Engine::new(&settings()).map_err(failed)?;
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Self { wasm, spare: AtomicUsize::new(processors.saturating_sub(1)) })
    }

    /// Takes up to `wanted` of the threads that no other call has.
    pub(crate) fn take_threads(&self, wanted: usize) -> Threads<'_> {
        let mut taken = 0;
        let take = |spare: usize| {
            taken = spare.min(wanted);
            Some(spare - taken)
        };
        let _ = self.spare.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        Threads { spare: &self.spare, taken }
    }
}

/// The engine of parts, which is started with the first of them.
#[derive(Default)]
pub struct LazyPartEngine(OnceLock<Result<PartEngine, String>>);

impl LazyPartEngine {
    /// The engine.
    ///
    /// # Errors
    ///
    /// This machine can't run it.
    pub fn get(&self) -> Result<&PartEngine, String> {
        let start = || PartEngine::new().map_err(|error| error.to_string());
        self.0.get_or_init(start).as_ref().map_err(Clone::clone)
    }
}

/// Threads of a call, given back when it ends.
pub(crate) struct Threads<'e> {
    spare: &'e AtomicUsize,
    pub(crate) taken: usize,
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        self.spare.fetch_add(self.taken, Ordering::SeqCst);
    }
}

/// The host's side of one instance.
pub(crate) struct PartState {
    pub(crate) random: Random,
    pub(crate) limiter: PartLimiter,
    pub(crate) meter: Meter,
}

impl PartState {
    pub(crate) fn new(meter: Meter) -> Self {
        let limiter = PartLimiter { left: MEMORY, elements_left: TABLE_ELEMENTS, refused: false };
        Self { random: Random::default(), limiter, meter }
    }

    /// Prepares the instance for its next input, which finds everything as the first did.
    pub(crate) fn begin(&mut self, meter: Meter) {
        self.random = Random::default();
        self.meter = meter;
    }
}

/// Limits all memories of an instance together.
pub(crate) struct PartLimiter {
    left: usize,
    elements_left: usize,
    /// Whether the instance was refused memory. If it crashes after that, the limit is the reason.
    pub(crate) refused: bool,
}

impl PartLimiter {
    /// Bytes that the instance uses.
    pub(crate) fn used(&self) -> usize {
        MEMORY - self.left
    }
}

impl ResourceLimiter for PartLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        match self.left.checked_sub(more) {
            Some(left) => self.left = left,
            None => self.refused = true,
        }
        Ok(!self.refused)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        match self.elements_left.checked_sub(desired.saturating_sub(current)) {
            Some(left) => self.elements_left = left,
            None => self.refused = true,
        }
        Ok(!self.refused)
    }

    fn instances(&self) -> usize {
        MAX_ITEMS
    }

    fn tables(&self) -> usize {
        MAX_ITEMS
    }

    fn memories(&self) -> usize {
        MAX_ITEMS
    }
}
