//! Tests the engine, the compiler and the cache on this machine, for `toolhold doctor`.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use toolhold_compiler::{BuiltInCodeError, Cache, CacheError, HELPER, NO_HELPER, own_helper};
use toolhold_contract::HostError;
use toolhold_system::machine::address_space;
use toolhold_system::process::{HelperBounds, HelperError, run_helper};

use crate::engine::{self, Engine};
use crate::{Builtin, RuntimeConfig};

/// The reason why code can't be compiled, cached or mapped on this machine.
#[derive(Debug, thiserror::Error)]
pub enum ExaminationError {
    /// The program was built without compiled code of its components.
    #[error("this program was built without compiled code")]
    NotBuiltIn,
    /// Built-in code can't be mapped.
    #[error(transparent)]
    BuiltIn(#[from] BuiltInCodeError),
    /// The helper program for compiling is missing.
    #[error("{NO_HELPER}")]
    NoHelper,
    /// The helper failed.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// The helper's code can't be mapped.
    #[error("the compiled code can't be mapped: {0:#}")]
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
    /// The reason why there is no memory pool. Calls start slower without a pool.
    pub no_pool: Option<String>,
    /// Bytes of address space that the engine reserved, if the kernel reports them.
    pub reserved: Option<u64>,
    /// Whether the kernel can report the memory that a call has touched (`PAGEMAP_SCAN`, Linux
    /// 6.7). The host then clears less memory after a call.
    pub finds_touched_memory: bool,
    /// Processor features that built-in code uses and this processor lacks.
    pub missing_features: Vec<&'static str>,
    /// The built-in plugins. An error is the reason why built-in code isn't used.
    pub builtins: Vec<(&'static str, Result<(), ExaminationError>)>,
    /// The time for compiling and mapping a tiny component.
    pub compiled: Result<Duration, ExaminationError>,
    /// The result of storing and mapping code in the cache. `None` if there is no cache folder yet,
    /// or nothing was compiled.
    pub cached: Option<Result<(), ExaminationError>>,
}

/// Limits for compiling [`TINY`].
const BOUNDS: HelperBounds = HelperBounds { time: Duration::from_secs(20), output: 16 << 20 };

/// A component of one module with one empty function.
const TINY: &[u8] = b"\0asm\x0d\0\x01\0\x01\x18\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x04\x01\x02\0\x0b";

/// Tests all steps of loading a plugin. Doesn't create the cache folder, and leaves no file in the
/// folder. Blocks for at most 20 s.
///
/// # Errors
///
/// Returns [`HostError::Engine`] if this machine can't run the engine.
pub fn examine(
    config: RuntimeConfig,
    builtins: &[Builtin],
) -> Result<EngineExamination, HostError> {
    let places = config.places();
    let address_space_before = address_space();
    let no_sessions = Default::default();
    let engine = Engine::new(places, config.memory, config.keep_ready, no_sessions)?;
    let reserved = match (address_space_before, address_space()) {
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

fn map_built_in(builtin: &Builtin, engine: &Engine) -> Result<(), ExaminationError> {
    let code = builtin.compiled.ok_or(ExaminationError::NotBuiltIn)?;
    toolhold_compiler::map_built_in(&engine.wasm, code)?;
    Ok(())
}

fn compile_tiny(config: &RuntimeConfig, engine: &Engine) -> Result<Vec<u8>, ExaminationError> {
    let helper = config.helper.clone().or_else(own_helper).ok_or(ExaminationError::NoHelper)?;
    let code = run_helper(&helper, &[HELPER], TINY, BOUNDS)?;
    toolhold_compiler::map_from_helper(&engine.wasm, &code).map_err(ExaminationError::Map)?;
    Ok(code)
}

/// Tests whether the cache can store and map `code`. If `folder` doesn't exist, tests nothing,
/// because opening the cache creates the folder.
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
