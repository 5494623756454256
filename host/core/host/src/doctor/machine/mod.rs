//! `toolhold doctor`: examines the machine without the configuration, and describes how to fix
//! missing parts.
//!
//! `toolhold_core::doctor` adds the parts that only a host knows: its configuration, its plugins
//! and its stored state.

/// The engine: whether components run and are compiled.
pub mod engine;
mod finding;
/// Toolhold's own folders.
pub mod folders;
/// The kernel.
pub mod kernel;
/// The limits of this process.
pub mod limits;
pub mod network;
pub mod processes;

pub use finding::{Finding, Report, State, late, size, within, within_or};
