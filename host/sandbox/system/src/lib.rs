//! The interfaces to this machine, without WebAssembly.

pub mod confine;
pub mod files;
mod kernel;
pub mod machine;
mod messages;
pub mod mounts;
pub mod process;
pub mod processes;
pub mod watch;
