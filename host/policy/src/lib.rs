//! Pure decisions: data in, a decision with its reason out. No I/O, no clock, no WebAssembly.

pub mod files;

mod action;
mod autonomy;
mod backoff;
mod canonical;
mod decision;
mod permissions;
mod policy;
mod repetition;

pub use action::{ActedOn, Action, Phase, Trust};
pub use autonomy::Autonomy;
pub use backoff::Backoff;
pub use canonical::canonical;
pub use decision::{Decision, Gate, Verdict};
pub use permissions::literal;
pub use policy::{GATES, Placed, Policy, undecided};
pub use repetition::{Circle, Levels, Reaction, Repeated, Repetition, RepetitionLimits};
