//! Pure decisions: data in, a decision with its reason out. No I/O, no clock, no WebAssembly.

pub mod files;

mod action;
mod autonomy;
mod backoff;
mod decision;
mod permissions;
mod policy;

pub use action::{ActedOn, Action, Phase, Trust};
pub use autonomy::Autonomy;
pub use backoff::Backoff;
pub use decision::{Decision, Gate, Verdict};
pub use permissions::literal;
pub use policy::{GATES, Placed, Policy, undecided};
