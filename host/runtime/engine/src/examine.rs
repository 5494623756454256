//! Starts an engine and compiles a tiny component, to test this machine for `toolhold doctor`.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use toolhold_compiler::{BuiltInCodeError, Cache, CacheError, HELPER, NO_HELPER, own_helper};
use toolhold_contract::HostError;
use toolhold_system::machine::address_space;
use toolhold_system::process::{HelperBounds, HelperError, run_helper};

use crate::engine::{self, Engine};
use crate::{Builtin, RuntimeConfig};

/// A reason why code can't be compiled, cached or mapped on this machine.
#[derive(Debug, thiserror::Error)]
pub enum ExaminationError {
    /// This program has built-in components without compiled code.
    #[error("this program was built without compiled code")]
    NotBuiltIn,
    /// Built-in code doesn't fit.
    #[error(transparent)]
    BuiltIn(#[from] BuiltInCodeError),
    /// The helper program that compiles components is missing.
    #[error("{NO_HELPER}")]
    NoHelper,
    /// The helper compiles nothing.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// The helper's code doesn't fit.
    #[error("its code can't be mapped: {0:#}")]
    Map(wasmtime::Error),
    /// The folder of the cache can't be used.
    #[error(transparent)]
    Folder(#[from] io::Error),
    /// The cache can't store or map code.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The state of the engine on this machine.
#[derive(Debug)]
pub struct EngineExamination {
    /// Most calls at a time.
    pub places: usize,
    /// The reason why there is no memory pool. Calls then start slower. `None` if there is a pool.
    pub no_pool: Option<String>,
    /// Bytes of address space that the engine reserved. `None` if the kernel doesn't report them.
    pub reserved: Option<u64>,
    /// Whether the kernel can report the memory that a call touched (`PAGEMAP_SCAN`, Linux 6.7).
    /// With these reports, the host clears less memory after a call.
    pub finds_touched_memory: bool,
    /// Features of the baseline for built-in code that this processor lacks.
    pub missing_features: Vec<&'static str>,
    /// The built-in plugins. `Err` is the reason why the code that was compiled ahead isn't used.
    pub builtins: Vec<(&'static str, Result<(), ExaminationError>)>,
    /// The time for compiling a tiny component in the helper and mapping its code, or the error.
    pub compiled: Result<Duration, ExaminationError>,
    /// Whether the cache can store and map code. `None` if the cache has no folder yet, or nothing
    /// was compiled.
    pub cached: Option<Result<(), ExaminationError>>,
}

/// The limits for compiling a tiny component. The limits are much larger than the need.
const BOUNDS: HelperBounds = HelperBounds { time: Duration::from_secs(20), output: 16 << 20 };

/// A component of one module with one empty function.
const TINY: &[u8] = b"\0asm\x0d\0\x01\0\x01\x18\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x04\x01\x02\0\x0b";

/// Starts an engine for `config` and tests all steps of loading. Creates no cache folder, and
/// leaves no file in an existing one. Blocks, at most 20 s.
///
/// # Errors
///
/// [`HostError::Engine`] if this machine can't run the engine.
pub fn examine(
    config: RuntimeConfig,
    builtins: &[Builtin],
) -> Result<EngineExamination, HostError> {
    let places = config.places();
    let before = address_space();
    let engine = Engine::new(places, config.memory, config.keep_ready, Default::default())?;
    let reserved = match (before, address_space()) {
        (Some(before), Some(after)) => Some(after.saturating_sub(before)),
        _ => None,
    };
    let builtins =
        builtins.iter().map(|builtin| (builtin.name, map_built_in(builtin, &engine))).collect();

    let started = Instant::now();
    let code = compile_tiny(&config, &engine);
    let time = started.elapsed();
    let cached = match (&config.cache, &code) {
        (Some(folder), Ok(code)) => test_cache(folder, code, &engine),
        _ => None,
    };
    Ok(EngineExamination {
        places,
        reserved,
        finds_touched_memory: engine::finds_touched_memory(),
        missing_features: toolhold_compiler::missing_features(),
        builtins,
        cached,
        compiled: code.map(|_| time),
        no_pool: engine.no_pool,
    })
}

/// Maps the code of a built-in plugin that was compiled ahead.
fn map_built_in(builtin: &Builtin, engine: &Engine) -> Result<(), ExaminationError> {
    let code = builtin.compiled.ok_or(ExaminationError::NotBuiltIn)?;
    toolhold_compiler::map_built_in(&engine.wasm, code)?;
    Ok(())
}

/// Compiles [`TINY`] in the helper, and maps its code.
fn compile_tiny(config: &RuntimeConfig, engine: &Engine) -> Result<Vec<u8>, ExaminationError> {
    let helper = config.helper.clone().or_else(own_helper).ok_or(ExaminationError::NoHelper)?;
    let code = run_helper(&helper, &[HELPER], TINY, BOUNDS)?;
    toolhold_compiler::map_from_helper(&engine.wasm, &code).map_err(ExaminationError::Map)?;
    Ok(code)
}

/// Tests the cache. Returns `None` if its folder doesn't exist, since opening the cache would
/// create the folder.
fn test_cache(folder: &Path, code: &[u8], engine: &Engine) -> Option<Result<(), ExaminationError>> {
    if rustix::fs::lstat(folder).is_err() {
        return None;
    }
    let cache = match Cache::open(folder) {
        Ok(cache) => cache,
        Err(error) => return Some(Err(error.into())),
    };
    Some(cache.test(&engine.wasm, code).map_err(ExaminationError::from))
}
