//! Whether this machine can run and compile components, found out by doing it; for `berth doctor`.

use std::path::Path;
use std::time::{Duration, Instant};

use berth_contract::HostError;
use berth_system::machine::address_space;
use berth_system::process::{HelperBounds, run_helper};

use crate::cache::Cache;
use crate::compile::{self, HELPER};
use crate::engine::{self, Engine};
use crate::{Builtin, RuntimeConfig, compiled};

/// How the engine fares on this machine.
#[derive(Clone, Debug)]
pub struct EngineExamination {
    /// Calls that run at a time.
    pub places: usize,
    /// Why there is no memory pool, so that calls start slower. `None`: there is one.
    pub no_pool: Option<String>,
    /// Bytes of address space that the engine reserved, where the kernel tells.
    pub reserved: Option<u64>,
    /// Whether the kernel finds the memory that a call touched (`PAGEMAP_SCAN`, Linux 6.7), so that
    /// less has to be cleared after it.
    pub finds_touched_memory: bool,
    /// What this processor lacks of the baseline that built-in code is made for.
    pub missing_features: Vec<&'static str>,
    /// Each built-in plugin, and why its code that was compiled ahead is not used.
    pub builtins: Vec<(&'static str, Result<(), String>)>,
    /// How long the helper took to compile a tiny component that was then mapped, or what went
    /// wrong.
    pub compiled: Result<Duration, String>,
    /// Whether code is kept in the cache's folder and mapped from there. `None` where there is no
    /// folder yet, or nothing was compiled.
    pub cached: Option<Result<(), String>>,
}

/// What compiling a tiny component may take: much more than it does.
const BOUNDS: HelperBounds = HelperBounds { time: Duration::from_secs(20), output: 16 << 20 };

/// A component of one module with one function, which does nothing.
const TINY: &[u8] = b"\0asm\x0d\0\x01\0\x01\x18\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x04\x01\x02\0\x0b";

/// Starts an engine for `config` and tries what loading takes. Makes no cache folder, and leaves
/// nothing in one. Blocks, 20 s at most.
///
/// # Errors
///
/// [`HostError::Engine`] where this machine can't run the engine at all.
pub fn examine(
    config: RuntimeConfig,
    builtins: &[Builtin],
) -> Result<EngineExamination, HostError> {
    let places = config.places();
    let before = address_space();
    let engine = Engine::new(places, config.memory, config.keep_ready)?;
    let reserved = address_space().zip(before).map(|(after, before)| after.saturating_sub(before));
    let ahead = |builtin: &Builtin| match builtin.compiled {
        Some(code) => compiled::of_this_program(&engine.wasm, code)
            .map(drop)
            .map_err(|error| format!("{error:#}")),
        None => Err("this program was built without it".to_owned()),
    };
    let builtins = builtins.iter().map(|builtin| (builtin.name, ahead(builtin))).collect();
    let begun = Instant::now();
    let code = helped(&config, &engine);
    Ok(EngineExamination {
        places,
        reserved,
        finds_touched_memory: engine::finds_touched_memory(),
        missing_features: compiled::missing_features(),
        builtins,
        cached: config
            .cache
            .as_deref()
            .zip(code.as_ref().ok())
            .and_then(|(folder, code)| cached(folder, code, &engine)),
        compiled: code.map(|_| begun.elapsed()),
        no_pool: engine.no_pool,
    })
}

/// The code of [`TINY`], made by the helper and mapped.
fn helped(config: &RuntimeConfig, engine: &Engine) -> Result<Vec<u8>, String> {
    let helper = config.helper.clone().or_else(compile::own_helper).ok_or(compile::NO_HELPER)?;
    let code = run_helper(&helper, &[HELPER], TINY, BOUNDS).map_err(|error| error.to_string())?;
    compiled::of_the_helper(&engine.wasm, &code)
        .map_err(|error| format!("its code can't be mapped: {error:#}"))?;
    Ok(code)
}

fn cached(folder: &Path, code: &[u8], engine: &Engine) -> Option<Result<(), String>> {
    // Opening the cache would make it.
    let _there = rustix::fs::lstat(folder).ok()?;
    Some(
        Cache::open(folder)
            .map_err(|error| error.to_string())
            .and_then(|cache| cache.tried(&engine.wasm, code)),
    )
}
