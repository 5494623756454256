//! The settings of wasmtime that compiled code depends on, and the engine that compiles.

use toolhold_contract::HostError;
use wasmtime::Config;

use crate::compiled;

/// Stack of the guest. The rest of [`ASYNC_STACK`] is for host functions.
const WASM_STACK: usize = 1 << 20;
const ASYNC_STACK: usize = 3 << 20;

/// Returns the settings that affect compiled code. They are the same in all processes, so that code
/// from one process runs in another.
pub fn settings() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        // Toolhold's interfaces don't use concurrency. The support would more than double the cost
        // of a call.
        .concurrency_support(false)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(ASYNC_STACK)
        // Tools don't need these proposals, and the proposals would increase the attack surface.
        .wasm_memory64(false)
        .wasm_multi_memory(true)
        .wasm_relaxed_simd(true)
        // WIT has maps, so functions of any component may use them. WIT also has lists of a fixed
        // length, but the engine's support for them is incomplete.
        .wasm_component_model_map(true)
        // Debuggers of the host need this information, backtraces of guests don't.
        .native_unwind_info(false)
        .cranelift_opt_level(wasmtime::OptLevel::Speed);
    config
}

/// Makes an engine that only compiles, for the baseline of processors or for this processor.
pub(crate) fn compiler(baseline: bool) -> Result<wasmtime::Engine, HostError> {
    let mut config = settings();
    if baseline {
        // Code that is carried in a program has no lines that a backtrace could name.
        config.generate_address_map(false);
        compiled::for_baseline(&mut config)
            .map_err(|error| HostError::Engine(format!("{error:#}")))?;
    }
    wasmtime::Engine::new(&config).map_err(|error| HostError::Engine(format!("{error:#}")))
}
