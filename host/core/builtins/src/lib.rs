//! The built-in plugins of Toolhold, embedded in the program.
//!
//! `Host::builder().builtins(toolhold_builtins::all())` offers their tools. See `docs/library.md`
//! and the folder `examples`.
//!
//! To build this crate, build the plugins first with `cargo xtask plugins`.
#![allow(
    unsafe_code,
    reason = "compiled code can't be checked when it is loaded, so creating a `Precompiled` is unsafe"
)]

use toolhold_core::{Builtin, EmbeddedFile, Precompiled};

/// Compiles the program in the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/library.md")]
struct LibraryPage;

/// Returns the plugins that `toolhold` loads by default, such as files, shell and web.
pub fn all() -> &'static [Builtin] {
    BUILTINS
}

/// Returns the attacker of `toolhold demo`, an untrusted component for the demo only.
pub fn hostile() -> EmbeddedFile {
    HOSTILE
}

const fn component(bytes: &'static [u8]) -> EmbeddedFile {
    EmbeddedFile::Compressed { bytes, base: BASE_COMPONENT }
}

const fn compiled(bytes: &'static [u8]) -> Option<Precompiled> {
    let code = EmbeddedFile::Compressed { bytes, base: BASE_CODE };
    // SAFETY: the build script reads the output of `toolhold-compile __compile --baseline`, which
    // the command that builds the plugins wrote.
    Some(unsafe { Precompiled::new(code) })
}

include!(concat!(env!("OUT_DIR"), "/builtins.rs"));

#[cfg(test)]
mod tests {
    use toolhold_contract::BUILT_IN_PLUGINS;

    #[test]
    fn plugins_are_those_of_the_table() {
        let included: Vec<_> = super::all().iter().map(|plugin| plugin.name).collect();
        let mut known: Vec<_> = BUILT_IN_PLUGINS.iter().map(|plugin| plugin.name).collect();
        known.retain(|name| !included.contains(name));
        assert!(known.is_empty() && included.len() == BUILT_IN_PLUGINS.len(), "{known:?}");
    }
}
