//! The ways to the outside, each in one place. Nothing here knows WebAssembly.

pub mod confine;
pub mod egress;
pub mod files;
pub mod machine;
mod mounts;
pub mod private;
pub mod process;
mod processes;
pub mod search;
pub mod state;
