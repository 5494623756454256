//! Maps compiled code, and sets for which processors code is compiled. No other module of this
//! crate has `unsafe` code.
#![allow(
    unsafe_code,
    reason = "compiled code can't be checked, so mapping it is a promise about its source"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use toolhold_component::file::EmbeddedFile;
use wasmtime::component::Component;
use wasmtime::{Config, Engine};

/// The reason why built-in code can't be used.
#[derive(Debug, thiserror::Error)]
pub enum BuiltInCodeError {
    /// The code can't be decompressed.
    #[error("the compiled code can't be decompressed: {0}")]
    Decompress(#[from] io::Error),
    /// The engine that made the code has another version or configuration.
    #[error("{0:#}")]
    Map(wasmtime::Error),
}

/// Compiled code that is built into this program.
#[derive(Clone, Copy, Debug)]
pub struct Precompiled(pub(crate) EmbeddedFile);

impl Precompiled {
    /// Wraps the output of `toolhold __compile --baseline`. Code of another version of Toolhold is
    /// refused when it is mapped.
    ///
    /// # Safety
    ///
    /// The code runs without checks and outside of every sandbox, so it must be exactly the output
    /// of that command.
    pub const unsafe fn new(code: EmbeddedFile) -> Self {
        Self(code)
    }
}

/// Makes a component from built-in code, which is copied to memory.
///
/// # Errors
///
/// Returns an error if the code can't be decompressed or the engine refuses it.
pub fn map_built_in(engine: &Engine, code: Precompiled) -> Result<Component, BuiltInCodeError> {
    let bytes = code.0.read()?;
    // SAFETY: the caller of `Precompiled::new` has promised that the compiler wrote these bytes.
    unsafe { Component::deserialize(engine, bytes) }.map_err(BuiltInCodeError::Map)
}

/// Maps a file of the compile cache. Only `cache` may call this, for a file in a folder that only
/// this user can change. The file may be replaced, but must never change.
pub(crate) fn map_cached(engine: &Engine, file: &File) -> wasmtime::Result<Component> {
    // Use the handle of the checked file, because its name may lead to a newer file by now.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the caller has checked that only this user could have written the file, and the cache
    // renames finished files into place.
    unsafe { Component::deserialize_file(engine, path) }
}

/// Maps code that the helper has sent over its pipe.
///
/// # Errors
///
/// Returns an error if the helper is another version of this program.
pub fn map_from_helper(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the helper is this program, or the program that the embedding program named. Only the
    // helper has the other end of the pipe. If an untrusted component exploits the compiler, the
    // result is the same code that would run in the sandbox without a helper.
    unsafe { Component::deserialize(engine, code) }
}

/// Returns the features of the baseline that this processor lacks.
pub fn missing_features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("SSE3", std::arch::is_x86_feature_detected!("sse3")),
        ("SSSE3", std::arch::is_x86_feature_detected!("ssse3")),
        ("SSE4.1", std::arch::is_x86_feature_detected!("sse4.1")),
        ("SSE4.2", std::arch::is_x86_feature_detected!("sse4.2")),
        ("POPCNT", std::arch::is_x86_feature_detected!("popcnt")),
        ("CMPXCHG16B", std::arch::is_x86_feature_detected!("cmpxchg16b")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let features: [(&str, bool); 0] = [];
    let mut missing = Vec::new();
    for (name, is_present) in features {
        if !is_present {
            missing.push(name);
        }
    }
    missing
}

/// Sets the baseline of processors: x86-64-v2, or any arm64.
pub(crate) fn for_baseline(config: &mut Config) -> wasmtime::Result<()> {
    config.target(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))?;
    #[cfg(target_arch = "x86_64")]
    for feature in
        ["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt", "has_cmpxchg16b"]
    {
        // SAFETY: each flag is for instructions that every x86-64-v2 processor has. An engine
        // refuses code with flags that its processor lacks.
        unsafe { config.cranelift_flag_enable(feature) };
    }
    Ok(())
}
