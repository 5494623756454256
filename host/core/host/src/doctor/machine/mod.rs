//! `toolhold doctor`: examines the machine, apart from the configuration, and says how to fix what
//! is missing.
//!
//! `toolhold_core::doctor` adds what only a host knows: its configuration, its plugins and what it
//! keeps.

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
