//! `toolhold doctor`: examines the machine.
//!
//! [`doctor`](super) adds the checks of the configuration, the plugins and the stored state.

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
