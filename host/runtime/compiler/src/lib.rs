//! Gets the code of a component: built in, from the cache, or from a confined child process.
//!
//! The child process is this program, started with `__compile`. It confines itself, reads a
//! component, and writes its code. Code is stored in a folder that only this user can change.
//!
//! [`typed`] has the types of components without Toolhold's interfaces. [`parts`] runs the pure
//! components of plugins.

mod cache;
mod compiled;
mod engine;
mod limiter;
pub mod parts;
pub mod typed;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toolhold_component::check_shape;
use toolhold_component::file::MAX_COMPONENT;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_system::confine;
use toolhold_system::process::{HelperBounds, HelperError, INPUT_AT_FAULT, run_helper};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wasmparser::Parser;
use wasmtime::component::Component;
use wit_component::ComponentEncoder;

use crate::engine::Target;
use crate::typed::asynchronous_functions;

pub use cache::{Cache, CacheError};
pub use compiled::{
    BuiltInCodeError, Precompiled, map_built_in, map_from_helper, missing_features,
};
pub use engine::settings;
pub use limiter::{StoreBounds, StoreLimiter};

use crate::cache::{MAX_OFFER, failure_name};

/// The helper's subcommand.
pub const HELPER: &str = "__compile";

/// The error if there is no helper, with its remedy.
pub const NO_HELPER: &str = "no helper program is set to compile components in a separate process: \
                             call `toolhold_core::helper_hook()` first in `main`, or name a \
                             program that does so with `Host::builder().helper(…)`";

/// Most bytes of compiled code. A component with more code isn't compiled.
const MAX_CODE: usize = 512 << 20;

/// The helper's exit code for a failure that the component doesn't cause.
const HELPER_AT_FAULT: i32 = 1;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Most bytes of a function's name in an error. Longer names are cut.
const MAX_NAME_IN_ERROR: usize = 120;

/// Returns the limit of processor seconds for compiling `size` bytes, over all threads. Real
/// components take about a second for each MiB.
const fn max_processor_seconds(size: usize) -> u64 {
    10 + (4 * size as u64).div_ceil(1 << 20)
}

/// Returns the limit of memory for compiling `size` bytes. Real components take 40 bytes for each
/// byte, the compiler about ten MiB, and an allocator may reserve a GiB.
const fn max_memory(size: usize) -> u64 {
    (2 << 30) + 64 * size as u64
}

/// Returns the limits for compiling `size` bytes. The time limit stops a helper that hangs. The
/// limit is long, because the helper gets only a part of the processors of a busy machine.
const fn bounds(size: usize) -> HelperBounds {
    HelperBounds {
        time: Duration::from_secs(60 + 4 * max_processor_seconds(size)),
        output: MAX_CODE,
    }
}

/// The reason why there is no code of a component. `R` is the error of reading the component.
#[derive(Debug, thiserror::Error)]
pub enum CompileError<R> {
    /// The component can't be read.
    #[error("{0}")]
    Read(R),
    /// There is no helper.
    #[error("{NO_HELPER}")]
    NoHelper,
    /// The helper fails, or failed for the same component before.
    #[error("compiling the component failed: {reason}{}", retry_hint(.remembered.as_deref()))]
    Failed {
        /// The helper's error, or the limit.
        reason: String,
        /// The file with the failure.
        remembered: Option<PathBuf>,
    },
    /// The code can't be written to the cache.
    #[error("storing the compiled code failed: {0}")]
    Store(#[source] io::Error),
    /// The code can't be mapped from the cache.
    #[error("the compiled code can't be mapped; see the log for the reason")]
    Cached,
    /// The helper is another version of this program.
    #[error("{0:#}")]
    Map(wasmtime::Error),
}

fn retry_hint(file: Option<&Path>) -> String {
    match file {
        Some(path) => {
            format!("; this failure is cached. To try again, delete {}", path.display())
        }
        None => String::new(),
    }
}

/// Compiles components.
pub struct Compiler {
    cache: Option<Cache>,
    helper: Option<PathBuf>,
}

impl Compiler {
    /// Makes a compiler that stores code in the folder `cache`. `helper` is the program that
    /// compiles (see [`helper_hook`]).
    pub fn new(cache: Option<&Path>, helper: Option<PathBuf>) -> Self {
        Self { cache: cache.and_then(open_cache), helper }
    }

    /// Reads the bytes that were stored under a name. Blocks.
    pub fn read_kept(&self, name: &str) -> Option<Vec<u8>> {
        self.cache.as_ref()?.bytes(name)
    }

    /// Stores bytes in the cache under a name. Blocks. Does nothing without a cache, or if there
    /// are too many bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes can't be written.
    pub fn keep(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        match &self.cache {
            Some(cache) if bytes.len() as u64 <= MAX_OFFER => cache.put(name, bytes),
            _ => Ok(()),
        }
    }

    /// Removes the bytes under a name. Blocks.
    pub fn forget(&self, name: &str) {
        if let Some(cache) = &self.cache {
            cache.remove(name);
        }
    }

    /// Returns the code of a component. `read_wasm` reads the component if it must be compiled.
    /// `digest` is its SHA-256. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no code and the component can't be read or compiled.
    pub fn component<'w, R>(
        &self,
        engine: &wasmtime::Engine,
        read_wasm: impl FnOnce() -> Result<Cow<'w, [u8]>, R>,
        digest: &str,
        built_in: Option<Precompiled>,
    ) -> Result<Component, CompileError<R>> {
        let cache_key = key(engine, digest);
        if let Some(cache) = &self.cache
            && let Some(component) = cache.get(engine, &cache_key)
        {
            return Ok(component);
        }
        if let Some(code) = built_in {
            match self.unpack(engine, &cache_key, code) {
                Ok(component) => return Ok(component),
                Err(error) => tracing::warn!(
                    "the built-in code doesn't run on this machine, so it is compiled again: {error}"
                ),
            }
        }
        if let Some(cache) = &self.cache
            && let Some(reason) = cache.failure(&cache_key)
        {
            let remembered = Some(cache.path(&failure_name(&cache_key)));
            return Err(CompileError::Failed { reason, remembered });
        }

        let helper = self.helper.as_ref().ok_or(CompileError::NoHelper)?;
        let bytes = read_wasm().map_err(CompileError::Read)?;
        let code = run_helper(helper, &[HELPER], &bytes, bounds(bytes.len()))
            .map_err(|error| self.failure(&cache_key, bytes.len(), &error))?;
        let Some(cache) = &self.cache else {
            return compiled::map_from_helper(engine, &code).map_err(CompileError::Map);
        };
        cache.put(&cache_key, &code).map_err(CompileError::Store)?;
        cache.get(engine, &cache_key).ok_or(CompileError::Cached)
    }

    /// Makes the error for a failure to compile `size` bytes. Stores the failure only if the
    /// component is the cause.
    fn failure<R>(&self, key: &str, size: usize, error: &HelperError) -> CompileError<R> {
        let reason = match error {
            HelperError::ProcessorTime => {
                format!(
                    "compiling takes more than {} s of CPU time, the limit for {size} bytes",
                    max_processor_seconds(size)
                )
            }
            // Rust prints this message when an allocation fails.
            HelperError::Crashed(output) if output.starts_with("memory allocation of ") => {
                format!(
                    "compiling takes more than {} MiB of memory, the limit for {size} bytes",
                    max_memory(size) / MIB
                )
            }
            other => other.to_string(),
        };
        // A failure with another cause may not happen again, so it isn't stored.
        let remembered = match &self.cache {
            Some(cache) if error.is_of_input() => cache.put_failure(key, &reason).ok(),
            _ => None,
        };
        CompileError::Failed { reason, remembered }
    }

    /// Unpacks built-in code into the cache and maps it. Without a usable cache, copies the code to
    /// memory.
    fn unpack(
        &self,
        engine: &wasmtime::Engine,
        key: &str,
        code: Precompiled,
    ) -> Result<Component, BuiltInCodeError> {
        if let Some(cache) = &self.cache {
            let stored = cache.put(key, &code.0.read()?);
            if stored.is_ok()
                && let Some(component) = cache.get(engine, key)
            {
                return Ok(component);
            }
        }
        compiled::map_built_in(engine, code)
    }
}

/// Opens a cache. Logs the reason if its folder can't be used.
fn open_cache(folder: &Path) -> Option<Cache> {
    match Cache::open(folder) {
        Ok(cache) => Some(cache),
        Err(reason) => {
            tracing::warn!("no compile cache in {}: {reason}", folder.display());
            None
        }
    }
}

/// Returns the name of a component's code in the cache.
pub fn key(engine: &wasmtime::Engine, digest: &str) -> String {
    format!("{digest}-{}.cwasm", compatibility(engine))
}

/// Returns a name for an engine. Engines that can run the same code have the same name.
fn compatibility(engine: &wasmtime::Engine) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    // The hasher's keys are fixed, so an engine has the same name in every process.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// If the first argument of this process is `__compile` or `__confine`, runs the helper and doesn't
/// return. Otherwise, records that this program can be a helper, and returns.
///
/// Must be the first call in `main`: the helper confines only its current thread, so the process
/// must have no other threads.
pub fn helper_hook() {
    HOOKED.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    let Some(first) = arguments.next() else { return };
    if first == confine::HELPER {
        confine::run();
    }
    if first != HELPER {
        return;
    }
    let option = arguments.next().map(|option| option.to_string_lossy().into_owned());
    let exit_code = match run(option.as_deref()) {
        Ok(()) => 0,
        Err(Fault::Own(reason)) => {
            eprintln!("{reason}");
            HELPER_AT_FAULT
        }
        Err(Fault::Input(reason)) => {
            eprintln!("{reason}");
            INPUT_AT_FAULT
        }
    };
    std::process::exit(exit_code);
}

static HOOKED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Returns the path of this program. Returns `None` if its `main` didn't call [`helper_hook`].
pub fn own_helper() -> Option<PathBuf> {
    if !HOOKED.load(std::sync::atomic::Ordering::Relaxed) {
        return None;
    }
    Some(PathBuf::from("/proc/self/exe"))
}

/// The error of the helper.
enum Fault {
    /// The helper or this machine is the cause.
    Own(String),
    /// The component is the cause.
    Input(String),
}

impl Fault {
    fn own(error: impl Display) -> Self {
        Self::Own(error.to_string())
    }

    fn input(error: impl Display) -> Self {
        Self::Input(error.to_string())
    }
}

/// Runs the helper. Without an option, compiles standard input to standard output for this
/// processor. `--baseline` compiles for the baseline. `--key` prints the name of the baseline's
/// code.
fn run(option: Option<&str>) -> Result<(), Fault> {
    confine::close_inherited()
        .map_err(|error| Fault::Own(format!("closing inherited descriptors failed: {error}")))?;
    let mut stdout = std::io::stdout().lock();
    match option {
        None => {
            let engine = engine::compiler(Target::ThisProcessor).map_err(Fault::own)?;
            compile_confined(&engine, &mut stdout)
        }
        Some("--baseline") => {
            let engine = engine::compiler(Target::Baseline).map_err(Fault::own)?;
            compile_confined(&engine, &mut stdout)
        }
        Some("--key") => {
            let engine = engine::compiler(Target::Baseline).map_err(Fault::own)?;
            writeln!(stdout, "{}", compatibility(&engine)).map_err(Fault::own)
        }
        Some(other) => Err(Fault::Own(format!("{HELPER} has no option {other}"))),
    }
}

/// Describes why a component isn't compiled. For a component for WASI 0.3, the compiler's error
/// names no remedy, so this function writes another error.
fn refusal(wasm: &[u8], error: &wasmtime::Error) -> String {
    let functions = asynchronous_functions(wasm);
    if functions.is_empty() {
        return format!("{error:#}");
    }
    let names: Vec<String> =
        functions.iter().map(|name| neutral_line(cut(name, MAX_NAME_IN_ERROR))).collect();
    format!(
        "the component was built for WASI 0.3, which this version of Toolhold doesn't run: these \
         functions are async, or use streams or futures: {}. Build the component for wasm32-wasip2 \
         without such functions",
        names.join(", ")
    )
}

/// Combines a command for WASI preview 1 with the adapter to WASI 0.2, which then runs in the same
/// sandbox as the module.
fn make_component(module: &[u8]) -> Result<Vec<u8>, Fault> {
    let with_module = ComponentEncoder::default().module(module);
    let with_adapter = with_module.and_then(|encoder| {
        encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
    });
    let component = with_adapter.and_then(|mut encoder| encoder.encode());
    component.map_err(|error| {
        Fault::Input(format!("the module can't be converted to a component: {error:#}"))
    })
}

/// Confines this process, compiles standard input, and writes the code to `output`.
fn compile_confined(engine: &wasmtime::Engine, output: &mut impl Write) -> Result<(), Fault> {
    confine::to_computing().map_err(Fault::own)?;
    let mut wasm = Vec::new();
    // One byte above the limit shows that the component is too large.
    let read_limit = MAX_COMPONENT as u64 + 1;
    std::io::stdin().lock().take(read_limit).read_to_end(&mut wasm).map_err(Fault::own)?;
    if wasm.len() > MAX_COMPONENT {
        return Err(Fault::Input(format!(
            "the component is larger than {MAX_COMPONENT} bytes, the limit"
        )));
    }
    confine::lower_bounds(max_processor_seconds(wasm.len()), max_memory(wasm.len()))
        .map_err(Fault::own)?;
    check_shape(&wasm).map_err(Fault::input)?;
    if Parser::is_core_wasm(&wasm) {
        wasm = make_component(&wasm)?;
    }
    let code =
        engine.precompile_component(&wasm).map_err(|error| Fault::Input(refusal(&wasm, &error)))?;
    output.write_all(&code).map_err(Fault::own)
}
