//! From a component's bytes to code: built in, kept from an earlier run, or compiled by a child
//! that can do nothing else.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::HostError;
use berth_system::confine;
use berth_system::process::{HelperBounds, HelperError, INPUT_AT_FAULT, run_helper};
use wasmtime::component::Component;

use crate::cache::{Cache, failure_name};
use crate::compiled::Precompiled;
use crate::{compiled, engine, shape};

/// The helper's name on the command line.
pub(crate) const HELPER: &str = "__compile";

/// What to do where there is no helper.
pub(crate) const NO_HELPER: &str = "it has to be compiled, which happens in a process of its own: call `berth_core::helper_hook()` first \
    thing in `main`, or name a program that does with `Host::builder().helper(…)`";

/// Bytes of a component.
pub(crate) const MAX_COMPONENT: usize = 64 << 20;

/// Bytes of what compiling comes to.
const MAX_CODE: usize = 512 << 20;

/// Seconds on processors, all threads together, that compiling a component of so many bytes may
/// take. Real ones take about one for a MiB.
const fn processor_seconds(size: usize) -> u64 {
    10 + (4 * size as u64).div_ceil(1 << 20)
}

/// Bytes of memory for the same. Real ones take 40 bytes for each byte, and the compiler itself
/// some ten MiB; an allocator may take a GiB at once.
const fn memory(size: usize) -> u64 {
    (2 << 30) + 64 * size as u64
}

/// What compiling a stranger's component may take. The time is for a helper that hangs: a busy
/// machine shares its processors with it.
const fn bounds(size: usize) -> HelperBounds {
    HelperBounds { time: Duration::from_secs(60 + 4 * processor_seconds(size)), output: MAX_CODE }
}

/// Turns bytes into components.
#[derive(Debug)]
pub(crate) struct Compiler {
    cache: Option<Cache>,
    helper: Option<PathBuf>,
}

impl Compiler {
    /// `cache`: the folder to keep code in. `helper`: the program that compiles, see
    /// [`helper_hook`].
    pub(crate) fn new(cache: Option<&Path>, helper: Option<PathBuf>) -> Self {
        let open = |folder: &Path| {
            Cache::open(folder)
                .map_err(|reason| {
                    tracing::warn!("no compile cache in {}: {reason}", folder.display());
                })
                .ok()
        };
        Self { cache: cache.and_then(open), helper }
    }

    /// The component of `wasm`, of which `digest` is the SHA-256. Blocks.
    pub(crate) fn component(
        &self,
        engine: &wasmtime::Engine,
        wasm: &[u8],
        digest: &str,
        built_in: Option<Precompiled>,
    ) -> Result<Component, String> {
        if let Some(code) = built_in {
            match compiled::of_this_program(engine, code) {
                Ok(component) => return Ok(component),
                Err(error) => tracing::warn!(
                    "the built-in code does not fit this machine, so it is compiled anew: {error:#}"
                ),
            }
        }
        let key = format!("{digest}-{}.cwasm", compatibility(engine));
        if let Some(cache) = &self.cache {
            if let Some(component) = cache.get(engine, &key) {
                return Ok(component);
            }
            if let Some(reason) = cache.failure(&key) {
                return Err(not_compiled(&reason, Some(&cache.path(&failure_name(&key)))));
            }
        }
        let Some(helper) = &self.helper else {
            return Err(NO_HELPER.into());
        };
        let code = run_helper(helper, &[HELPER], wasm, bounds(wasm.len())).map_err(|error| {
            let size = wasm.len();
            let reason = match &error {
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
            // What the machine was at fault for may go better the next time.
            let kept = self
                .cache
                .as_ref()
                .filter(|_| error.is_of_input())
                .and_then(|cache| cache.put_failure(&key, &reason).ok());
            not_compiled(&reason, kept.as_deref())
        })?;
        let Some(cache) = &self.cache else {
            return compiled::of_the_helper(engine, &code).map_err(|error| format!("{error:#}"));
        };
        cache
            .put(&key, &code)
            .map_err(|error| format!("keeping its compiled code failed: {error}"))?;
        cache
            .get(engine, &key)
            .ok_or_else(|| "its compiled code could not be mapped; the log says why".into())
    }
}

/// Why there is no code. `kept`: where that is remembered.
fn not_compiled(reason: &str, kept: Option<&Path>) -> String {
    let again = kept.map(|path| {
        format!("; that is remembered: to have it tried again, delete {}", path.display())
    });
    format!("compiling it failed: {reason}{}", again.unwrap_or_default())
}

/// Names the code that an engine can run.
fn compatibility(engine: &wasmtime::Engine) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    // The default hasher has fixed keys: the same engine gives the same name in every process.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Runs the helper, and does not return, where this process was started as one, by `__compile` or
/// `__confine` as its first argument; otherwise remembers that this program can be, and returns.
///
/// To be called first thing in `main`: the helper confines itself, and other threads would stay as
/// they are.
pub fn helper_hook() {
    HOOKED.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == confine::HELPER => confine::run(),
        Some(first) if first == HELPER => {}
        _ => return,
    }
    let option = arguments.next().map(|option| option.to_string_lossy().into_owned());
    let closed = confine::close_inherited()
        .map_err(|error| format!("closing what was handed down: {error}"));
    let code = match closed.map_err(Fault::Own).and_then(|()| run(option.as_deref())) {
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

/// This program, where it began with [`helper_hook`].
pub fn own_helper() -> Option<PathBuf> {
    HOOKED.load(std::sync::atomic::Ordering::Relaxed).then(|| PathBuf::from("/proc/self/exe"))
}

/// Why the helper has no answer: its own fault or this machine's, or its input's.
enum Fault {
    Own(String),
    Input(String),
}

/// `__compile` compiles standard input to standard output, for this processor;
/// `__compile --baseline` for the baseline; `__compile --key` prints the name of the code that the
/// baseline's compiler makes.
fn run(option: Option<&str>) -> Result<(), Fault> {
    let own = |error: HostError| Fault::Own(error.to_string());
    let mut stdout = std::io::stdout().lock();
    match option {
        None => compile_confined(&engine::compiler(false).map_err(own)?, &mut stdout),
        Some("--baseline") => compile_confined(&engine::compiler(true).map_err(own)?, &mut stdout),
        Some("--key") => {
            let key = compatibility(&engine::compiler(true).map_err(own)?);
            writeln!(stdout, "{key}").map_err(|error| Fault::Own(error.to_string()))
        }
        Some(other) => Err(Fault::Own(format!("{HELPER} does not know {other}"))),
    }
}

fn compile_confined(engine: &wasmtime::Engine, output: &mut impl Write) -> Result<(), Fault> {
    let own = |error: std::io::Error| Fault::Own(error.to_string());
    confine::to_computing().map_err(Fault::Own)?;
    let mut wasm = Vec::new();
    let limit = MAX_COMPONENT as u64 + 1;
    std::io::stdin().lock().take(limit).read_to_end(&mut wasm).map_err(own)?;
    if wasm.len() > MAX_COMPONENT {
        return Err(Fault::Input(format!("it has more than {MAX_COMPONENT} bytes")));
    }
    confine::lower_bounds(processor_seconds(wasm.len()), memory(wasm.len())).map_err(Fault::Own)?;
    shape::check(&wasm).map_err(Fault::Input)?;
    let code =
        engine.precompile_component(&wasm).map_err(|error| Fault::Input(format!("{error:#}")))?;
    output.write_all(&code).map_err(own)
}
