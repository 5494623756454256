//! Runs parts: pure components that a plugin brings along.
//!
//! A part has no capabilities. Parts have their own engine. It links random numbers that are always
//! the same; every other import traps. The plugin's manifest names each part with its digest. Parts
//! of one call run on several threads, each input under bounds of its own.

mod code;
mod engine;
mod job;
mod random;
mod run;

pub use code::Parts;
pub use engine::{LazyPartEngine, PartEngine};
pub use job::{PartBounds, PartError, PartErrorKind};
pub use run::MAX_INPUTS;
