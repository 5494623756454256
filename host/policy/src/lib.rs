//! Pure decisions: data in, a decision with its reason out. No I/O, no clock, no WebAssembly.

pub mod files;

mod action;
mod backoff;
mod decision;

pub use action::{ActedOn, Action, Phase, Trust};
pub use backoff::Backoff;
pub use decision::{Decision, Gate, Verdict};
