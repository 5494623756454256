//! Runs parts, which are pure components of a plugin.
//!
//! A part has no capabilities: its random numbers are always the same, and all other imports trap.
//! The plugin's manifest has the digest of each part. The inputs of a call are divided among
//! several threads, and each input has its own limits.

mod code;
mod engine;
mod job;
mod random;
mod run;

pub use code::Parts;
pub use engine::{LazyPartEngine, PartEngine};
pub use job::{PartBounds, PartError, PartErrorKind};
pub use run::MAX_INPUTS;
