//! The plugins inside the binary. `build.rs` names them.

use berth_host::Builtin;

/// Compiled code where the engine can use it without copying: at the start of a page.
#[allow(dead_code, reason = "a build may find no compiled code")]
#[repr(C, align(4096))]
struct Aligned<T: ?Sized>(T);

#[allow(unused_macros, reason = "a build may find no compiled code")]
macro_rules! aligned {
    ($file:expr) => {{
        static CODE: &Aligned<[u8]> = &Aligned(*include_bytes!($file));
        &CODE.0
    }};
}

include!(concat!(env!("OUT_DIR"), "/builtins.rs"));
