//! Gets the code of a component: built in, from the cache, or compiled by a confined child process.
//!
//! The child process is the same program, started with `__compile`. The child confines itself,
//! reads a component, and writes its code. Code is stored in a folder to which only this user can
//! write.
//!
//! [`typed`] has the types of components that aren't made for Toolhold. [`parts`] runs the pure
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

use crate::typed::asynchronous_functions;

pub use cache::{Cache, CacheError};
pub use compiled::{
    BuiltInCodeError, Precompiled, map_built_in, map_from_helper, missing_features,
};
pub use engine::settings;
pub use limiter::{StoreBounds, StoreLimiter};

use crate::cache::{MAX_OFFER, failure_name};

/// The helper's name on the command line.
pub const HELPER: &str = "__compile";

/// The error if there is no helper. Contains the remedy.
pub const NO_HELPER: &str = "it has to be compiled in a separate process, and there is no program for that: call `toolhold_core::helper_hook()` first \
    in `main`, or name a program that does so with `Host::builder().helper(…)`";

/// Most bytes of compiled code.
const MAX_CODE: usize = 512 << 20;

/// Returns the limit of processor seconds for compiling a component of `size` bytes, for all
/// threads together. Real components take about one second for each MiB.
const fn processor_seconds(size: usize) -> u64 {
    10 + (4 * size as u64).div_ceil(1 << 20)
}

/// Returns the memory limit in bytes for compiling a component of `size` bytes. Real components
/// take 40 bytes for each byte, and the compiler itself takes about ten MiB. An allocator may
/// reserve a GiB at once.
const fn memory(size: usize) -> u64 {
    (2 << 30) + 64 * size as u64
}

/// Returns the limits for compiling an untrusted component. The time limit stops a helper that
/// hangs. It is long because the helper gets only a part of the processors on a busy machine.
const fn bounds(size: usize) -> HelperBounds {
    HelperBounds { time: Duration::from_secs(60 + 4 * processor_seconds(size)), output: MAX_CODE }
}

/// A reason why there is no code of a component. `R` is the reason why the component can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CompileError<R> {
    /// The component can't be read.
    #[error("{0}")]
    Read(R),
    /// There is no program that can compile the component.
    #[error("{NO_HELPER}")]
    NoHelper,
    /// The helper failed, now or before.
    #[error("compiling it failed: {reason}{}", retry_hint(.remembered.as_deref()))]
    Failed {
        /// The helper's own words, or the limit.
        reason: String,
        /// The file that remembers the failure.
        remembered: Option<PathBuf>,
    },
    /// The code can't be written to the cache.
    #[error("storing its compiled code failed: {0}")]
    Store(#[source] io::Error),
    /// The code can't be mapped from the cache.
    #[error("its compiled code can't be mapped; see the log for the reason")]
    Cached,
    /// The helper is another version of this program.
    #[error("{0:#}")]
    Map(wasmtime::Error),
}

/// Returns the remedy for a failure that is remembered in a file.
fn retry_hint(file: Option<&Path>) -> String {
    match file {
        Some(path) => {
            format!("; the failure is remembered: to try again, delete {}", path.display())
        }
        None => String::new(),
    }
}

/// Compiles bytes to components.
pub struct Compiler {
    cache: Option<Cache>,
    helper: Option<PathBuf>,
}

impl Compiler {
    /// Makes a compiler. `cache` is the folder for compiled code. `helper` is the program that
    /// compiles (see [`helper_hook`]).
    pub fn new(cache: Option<&Path>, helper: Option<PathBuf>) -> Self {
        Self { cache: cache.and_then(open_cache), helper }
    }

    /// Reads the bytes that are stored in the cache under a name. Blocks.
    pub fn read_kept(&self, name: &str) -> Option<Vec<u8>> {
        self.cache.as_ref()?.bytes(name)
    }

    /// Stores bytes in the cache under a name. Blocks. Does nothing if there is no cache, or if
    /// there are more bytes than the cache reads.
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

    /// Removes the bytes that are stored under a name. Blocks.
    pub fn forget(&self, name: &str) {
        if let Some(cache) = &self.cache {
            cache.remove(name);
        }
    }

    /// Returns the component of `wasm`. `wasm` is read only if it must be compiled. `digest` is its
    /// SHA-256. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no code and the component can't be read or compiled.
    pub fn component<'w, R>(
        &self,
        engine: &wasmtime::Engine,
        wasm: impl FnOnce() -> Result<Cow<'w, [u8]>, R>,
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
        let bytes = wasm().map_err(CompileError::Read)?;
        let code = run_helper(helper, &[HELPER], &bytes, bounds(bytes.len()))
            .map_err(|error| self.failure(&cache_key, bytes.len(), &error))?;
        let Some(cache) = &self.cache else {
            return compiled::map_from_helper(engine, &code).map_err(CompileError::Map);
        };
        cache.put(&cache_key, &code).map_err(CompileError::Store)?;
        cache.get(engine, &cache_key).ok_or(CompileError::Cached)
    }

    /// Describes the failure to compile a component of `size` bytes. Records the failure if the
    /// component is the cause.
    fn failure<R>(&self, key: &str, size: usize, error: &HelperError) -> CompileError<R> {
        let reason = match error {
            HelperError::ProcessorTime => {
                format!(
                    "it takes more than {} s of processor time, the limit for {size} bytes",
                    processor_seconds(size)
                )
            }
            HelperError::Crashed(words) if words.starts_with("memory allocation of ") => {
                format!(
                    "it takes more than {} MiB of memory, the limit for {size} bytes",
                    memory(size) >> 20
                )
            }
            other => other.to_string(),
        };
        // Only failures of the component itself are recorded. Other failures may not happen again.
        let remembered = match &self.cache {
            Some(cache) if error.is_of_input() => cache.put_failure(key, &reason).ok(),
            _ => None,
        };
        CompileError::Failed { reason, remembered }
    }

    /// Unpacks built-in code into the cache and maps it. If this fails, copies the code into
    /// memory.
    fn unpack(
        &self,
        engine: &wasmtime::Engine,
        key: &str,
        code: Precompiled,
    ) -> Result<Component, BuiltInCodeError> {
        if let Some(cache) = &self.cache
            && cache.put(key, &code.0.read()?).is_ok()
            && let Some(component) = cache.get(engine, key)
        {
            return Ok(component);
        }
        compiled::map_built_in(engine, code)
    }
}

/// Opens a cache. Returns `None` and logs the reason if its folder can't be used.
fn open_cache(folder: &Path) -> Option<Cache> {
    match Cache::open(folder) {
        Ok(cache) => Some(cache),
        Err(reason) => {
            tracing::warn!("no compile cache in {}: {reason}", folder.display());
            None
        }
    }
}

/// Returns the name of the code of a component in the cache.
pub fn key(engine: &wasmtime::Engine, digest: &str) -> String {
    format!("{digest}-{}.cwasm", compatibility(engine))
}

/// Returns a name for the code that an engine can run.
fn compatibility(engine: &wasmtime::Engine) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    // The default hasher has fixed keys, so an engine has the same name in each process.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Runs the helper if the first argument of this process is `__compile` or `__confine`. In this
/// case, this function doesn't return. Otherwise, the function records that this program can be a
/// helper, and returns.
///
/// Call this function first in `main`. The helper confines only its current thread, so other
/// threads must not exist yet.
pub fn helper_hook() {
    HOOKED.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == confine::HELPER => confine::run(),
        Some(first) if first == HELPER => {}
        _ => return,
    }
    let option = arguments.next().map(|option| option.to_string_lossy().into_owned());
    let code = match run(option.as_deref()) {
        Ok(()) => 0,
        Err(Fault::Own(reason)) => {
            eprintln!("{reason}");
            1
        }
        Err(Fault::Input(reason)) => {
            eprintln!("{reason}");
            INPUT_AT_FAULT
        }
    };
    std::process::exit(code);
}

static HOOKED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Returns the path of this program, or `None` if its `main` didn't call [`helper_hook`].
pub fn own_helper() -> Option<PathBuf> {
    if !HOOKED.load(std::sync::atomic::Ordering::Relaxed) {
        return None;
    }
    Some(PathBuf::from("/proc/self/exe"))
}

/// The cause of a failure of the helper.
enum Fault {
    /// The helper itself or this machine.
    Own(String),
    /// The component.
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

/// Runs the helper. `__compile` compiles standard input to standard output, for this processor.
/// `__compile --baseline` compiles for the baseline. `__compile --key` prints the name of the code
/// that the baseline's compiler makes.
fn run(option: Option<&str>) -> Result<(), Fault> {
    confine::close_inherited()
        .map_err(|error| Fault::Own(format!("closing inherited descriptors failed: {error}")))?;
    let mut stdout = std::io::stdout().lock();
    match option {
        None => {
            let engine = engine::compiler(false).map_err(Fault::own)?;
            compile_confined(&engine, &mut stdout)
        }
        Some("--baseline") => {
            let engine = engine::compiler(true).map_err(Fault::own)?;
            compile_confined(&engine, &mut stdout)
        }
        Some("--key") => {
            let engine = engine::compiler(true).map_err(Fault::own)?;
            writeln!(stdout, "{}", compatibility(&engine)).map_err(Fault::own)
        }
        Some(other) => Err(Fault::Own(format!("{HELPER} has no option {other}"))),
    }
}

/// Describes why a component isn't compiled. For WASI 0.3, the compiler's own error names no
/// remedy.
fn refusal(wasm: &[u8], error: &wasmtime::Error) -> String {
    let functions = asynchronous_functions(wasm);
    if functions.is_empty() {
        return format!("{error:#}");
    }
    let names: Vec<String> = functions.iter().map(|name| neutral_line(cut(name, 120))).collect();
    format!(
        "it was built for WASI 0.3, which this version of Toolhold doesn't run: it has functions that are async or use streams or futures ({}). \
         Build it for wasm32-wasip2 without them",
        names.join(", ")
    )
}

/// Makes a component from a command for WASI preview 1. The component contains the module and the
/// adapter to WASI 0.2. The adapter runs in the sandbox together with the module.
fn make_component(module: &[u8]) -> Result<Vec<u8>, Fault> {
    ComponentEncoder::default()
        .module(module)
        .and_then(|encoder| {
            encoder.adapter(
                WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME,
                WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
            )
        })
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| Fault::Input(format!("it can't be made a component: {error:#}")))
}

/// Compiles standard input, after this process has confined itself.
fn compile_confined(engine: &wasmtime::Engine, output: &mut impl Write) -> Result<(), Fault> {
    confine::to_computing().map_err(Fault::own)?;
    let mut wasm = Vec::new();
    let limit = MAX_COMPONENT as u64 + 1;
    std::io::stdin().lock().take(limit).read_to_end(&mut wasm).map_err(Fault::own)?;
    if wasm.len() > MAX_COMPONENT {
        return Err(Fault::Input(format!(
            "it is larger than {MAX_COMPONENT} bytes, which is the limit"
        )));
    }
    confine::lower_bounds(processor_seconds(wasm.len()), memory(wasm.len())).map_err(Fault::own)?;
    check_shape(&wasm).map_err(Fault::input)?;
    if Parser::is_core_wasm(&wasm) {
        wasm = make_component(&wasm)?;
    }
    let code =
        engine.precompile_component(&wasm).map_err(|error| Fault::Input(refusal(&wasm, &error)))?;
    output.write_all(&code).map_err(Fault::own)
}
