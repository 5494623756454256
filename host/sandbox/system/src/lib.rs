//! The interfaces to this machine. This crate doesn't know WebAssembly.

pub mod confine;
pub mod files;
mod kernel;
pub mod machine;
mod messages;
pub mod mounts;
pub mod process;
pub mod processes;
pub mod watch;
