//! Runs parts, which are pure components of a plugin.
//!
//! A part has no capabilities. Parts have a separate engine. The engine links random numbers that
//! are always the same, and all other imports trap. The plugin's manifest names each part with its
//! digest. Parts of one call run on several threads, and each input has its own limits.

mod code;
mod engine;
mod job;
mod random;
mod run;

pub use code::Parts;
pub use engine::{LazyPartEngine, PartEngine};
pub use job::{PartBounds, PartError, PartErrorKind};
pub use run::MAX_INPUTS;
