//! `[audit]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::rule::{Rule, section};

// A stranger who could have files turned or removed could have what they did forgotten.
section! {
    /// The record of every call.
    #[derive(Copy, Eq)]
    pub struct Audit {
        /// Whether calls are recorded.
        pub enabled: bool = true, Rule::OnlyTrue;
        /// What happens to a call that can change something when it can't be recorded, since the
        /// disk is full, say. Calls that only read go on.
        pub on_failure: OnFailure = OnFailure::Stop, Rule::Stricter(&["stop", "continue"]);
        /// Whether each record is on the disk before anything else happens, so that it survives a
        /// power failure. It takes milliseconds a call; calls that run at the same time share them.
        pub durable: bool, Rule::OnlyTrue;
        /// MiB of one file; then another one begins.
        pub max_mib: Bounded<1, 65_536> = Bounded::clamped(64), Rule::Ignored;
        /// Files that are kept beside the one that is written to; older ones are removed. 0: all.
        pub keep: Bounded<0, 100_000> = Bounded::clamped(0), Rule::Ignored;
    }
}

/// What happens to a call that can act and can't be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OnFailure {
    /// It is not run.
    #[default]
    Stop,
    /// It runs all the same.
    Continue,
}
