//! The plugins inside the binary. `build.rs` names them.
#![allow(
    unsafe_code,
    reason = "code that was compiled ahead of time can't be checked, so whoever puts it in makes a promise"
)]

use berth_core::Builtin;
#[allow(unused_imports, reason = "a build may find no compiled code")]
use berth_core::Precompiled;

/// Compiled code, aligned to a page so that the engine can use it without copying.
#[allow(dead_code, reason = "a build may find no compiled code")]
#[repr(C, align(4096))]
struct Aligned<T: ?Sized>(T);

#[allow(unused_macros, reason = "a build may find no compiled code")]
macro_rules! precompiled {
    ($file:expr) => {{
        static CODE: &Aligned<[u8]> = &Aligned(*include_bytes!($file));
        // SAFETY: the file is the output of `berth __compile --baseline`, written by the command
        // that builds the plugins.
        unsafe { Precompiled::new(&CODE.0) }
    }};
}

include!(concat!(env!("OUT_DIR"), "/builtins.rs"));
