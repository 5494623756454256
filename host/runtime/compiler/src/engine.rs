//! The settings of wasmtime that compiled code depends on.

use toolhold_contract::HostError;
use wasmtime::Config;

use crate::compiled;

/// Stack of the guest. The rest of [`ASYNC_STACK`] is for host functions.
const WASM_STACK: usize = 1 << 20;
const ASYNC_STACK: usize = 3 << 20;

/// Returns the settings that affect compiled code. They must be the same in all processes that
/// share code.
pub fn settings() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        // Toolhold's interfaces don't use concurrency. Support for concurrency more than doubles
        // the cost of a call.
        .concurrency_support(false)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(ASYNC_STACK)
        // Tools don't need 64-bit memories, which increase the attack surface.
        .wasm_memory64(false)
        // Components may use several memories, relaxed SIMD and WIT maps. WIT lists of a fixed
        // length stay disabled, because the engine supports them only in part.
        .wasm_multi_memory(true)
        .wasm_relaxed_simd(true)
        .wasm_component_model_map(true)
        // Only debuggers of the host need this information. Backtraces of guests work without it.
        .native_unwind_info(false)
        .cranelift_opt_level(wasmtime::OptLevel::Speed);
    config
}

/// The processors that can run compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// All processors of the baseline.
    Baseline,
    ThisProcessor,
}

pub(crate) fn compiler(target: Target) -> Result<wasmtime::Engine, HostError> {
    let mut config = settings();
    if target == Target::Baseline {
        // Backtraces use the address map to name source lines, but built-in plugins have no
        // information about lines.
        config.generate_address_map(false);
        compiled::for_baseline(&mut config)
            .map_err(|error| HostError::Engine(format!("{error:#}")))?;
    }
    wasmtime::Engine::new(&config).map_err(|error| HostError::Engine(format!("{error:#}")))
}
