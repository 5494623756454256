//! The one module with `unsafe` code: it maps compiled code, and says for which processors code is
//! made.
#![allow(
    unsafe_code,
    reason = "compiled code can't be checked, so mapping it is a promise about where it comes from"
)]

use std::fs::File;
use std::os::fd::AsRawFd;

use wasmtime::component::Component;
use wasmtime::{Config, Engine};

/// Code that was compiled ahead of time and is part of this program.
#[derive(Clone, Copy, Debug)]
pub struct Precompiled(&'static [u8]);

impl Precompiled {
    /// Code that `berth __compile --baseline` made. Where another version of Berth made it, it is
    /// passed over.
    ///
    /// # Safety
    ///
    /// It is run as it is, outside every sandbox, so it must be what that command wrote, unchanged,
    /// and never change.
    pub const unsafe fn new(code: &'static [u8]) -> Self {
        Self(code)
    }
}

/// Maps code that is part of this program.
///
/// # Errors
///
/// The engine's, where the code was made by another version or configuration of it.
pub(crate) fn of_this_program(engine: &Engine, code: Precompiled) -> wasmtime::Result<Component> {
    // SAFETY: who made the value has promised that its bytes are what the compiler wrote.
    unsafe { Component::deserialize(engine, code.0) }
}

/// Maps a file of the compile cache. Only to be called by `cache`, for a file that it has opened in
/// a folder that no one else can write to, and that is replaced but never changed.
///
/// # Errors
///
/// The engine's, where the code was made by another version or configuration of it.
pub(crate) fn of_the_cache(engine: &Engine, file: &File) -> wasmtime::Result<Component> {
    // By the handle, so that what is mapped is what was checked.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the caller has checked that only this user could have written the file, and the cache
    // renames finished files into place.
    unsafe { Component::deserialize_file(engine, path) }
}

/// Maps code that the helper has just made and sent over its pipe.
///
/// # Errors
///
/// The engine's, where the helper is another version of this program.
pub(crate) fn of_the_helper(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the helper is this program or the one that the embedding program named, it alone
    // holds the pipe's other end, and what a stranger's component makes of its compiler is what the
    // sandbox would run in any case.
    unsafe { Component::deserialize(engine, code) }
}

/// What this processor lacks of the baseline.
pub(crate) fn missing_features() -> Vec<&'static str> {
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
    features.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect()
}

/// Makes code for every processor of the named baseline: x86-64-v2, or any arm64.
///
/// # Errors
///
/// The engine's, where it does not know this platform.
pub(crate) fn for_baseline(config: &mut Config) -> wasmtime::Result<()> {
    config.target(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))?;
    #[cfg(target_arch = "x86_64")]
    for feature in
        ["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt", "has_cmpxchg16b"]
    {
        // SAFETY: each flag names instructions that every x86-64-v2 processor has; an engine
        // refuses code whose flags its processor lacks.
        unsafe { config.cranelift_flag_enable(feature) };
    }
    Ok(())
}
