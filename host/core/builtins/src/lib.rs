//! The built-in plugins of Toolhold, inside of the program that embeds it: no component has to be
//! shipped beside the program.
//!
//! `Host::builder().builtins(toolhold_builtins::all())` offers their tools. The page
//! `docs/library.md` has a whole program, and the folder `examples` has two.
//!
//! Where `target/plugins` of this repository has their compiled code (`cargo xtask plugins` and a
//! build of `toolhold` make it), that is inside too. Otherwise a plugin is compiled into the cache
//! at the first use.
#![allow(
    unsafe_code,
    reason = "code that was compiled ahead of time can't be checked, so whoever puts it in makes a promise"
)]

use toolhold_core::Builtin;
#[allow(unused_imports, reason = "a build may find no compiled code")]
use toolhold_core::Precompiled;

/// Compiled code, aligned to a page so that the engine can use it without copying.
#[allow(dead_code, reason = "a build may find no compiled code")]
#[repr(C, align(4096))]
struct Aligned<T: ?Sized>(T);

#[allow(unused_macros, reason = "a build may find no compiled code")]
macro_rules! precompiled {
    ($file:expr) => {{
        static CODE: &Aligned<[u8]> = &Aligned(*include_bytes!($file));
        // SAFETY: the file is the output of `toolhold-compile __compile --baseline`, written by the
        // command that builds the plugins.
        unsafe { Precompiled::new(&CODE.0) }
    }};
}

/// The program in the documents compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/library.md")]
struct LibraryPage;

/// The plugins whose tools every user of `toolhold` gets: files, the shell, the web, and the
/// filters of output.
pub fn all() -> &'static [Builtin] {
    BUILTINS
}

/// The attacker of `toolhold demo`, an untrusted component that no host should load for any other
/// reason. `None` if the build found none.
pub fn hostile() -> Option<&'static [u8]> {
    HOSTILE
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
