//! Pure decisions: data in, a decision with its reason out. No I/O, no clock, no WebAssembly.

pub mod files;
pub mod redact;

mod action;
mod autonomy;
mod backoff;
mod canonical;
mod counts;
mod decision;
mod dependencies;
mod permissions;
mod policy;
mod repetition;
mod switches;

pub use action::{ActedOn, Action, Phase, Trust};
pub use autonomy::Autonomy;
pub use backoff::Backoff;
pub use canonical::canonical;
pub use counts::{Bounds, Counts, Place, Reached};
pub use decision::{Decision, Gate, Verdict};
pub use dependencies::{Dependencies, Needs};
pub use permissions::literal;
pub use policy::{GATES, Placed, Policy, undecided};
pub use repetition::{Circle, Levels, Reaction, Repeated, Repetition, RepetitionLimits};
pub use switches::Switches;
