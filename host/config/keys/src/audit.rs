//! `[audit]`: whether calls are recorded, how large the log may get, and what happens to a call
//! that can't be recorded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

// A project's file that could rotate or remove log files could erase the traces of its calls.
section! {
    /// The audit log of all calls.
    #[derive(Copy, Eq)]
    pub struct Audit {
        /// Whether calls are recorded.
        pub enabled: bool = true, Narrowing::OnlyTrue;
        /// The treatment of an acting call that can't be recorded, for example because the disk is
        /// full. Calls that only read continue.
        pub on_failure: OnFailure = OnFailure::Stop, Narrowing::Stricter(&["stop", "continue"]);
        /// Whether each entry is written to the disk before the call continues, so that the entry
        /// survives a power failure. Each call then takes some milliseconds longer. Calls at the
        /// same time share one write.
        pub durable: bool, Narrowing::OnlyTrue;
        /// Size limit of one file, in MiB. After that, a new file starts.
        pub max_mib: Bounded<1, 65_536> = Bounded::clamped(64), Narrowing::Ignored;
        /// The number of older files that aren't removed. 0 means all.
        pub keep: Bounded<0, 100_000> = Bounded::clamped(0), Narrowing::Ignored;
    }
}

/// The treatment of an acting call that can't be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OnFailure {
    /// The call doesn't run.
    #[default]
    Stop,
    /// The call runs without a record.
    Continue,
}
