//! `[tools.retry]`.

use std::time::Duration;

use berth_policy::Backoff;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::rule::{Rule, section};

section! {
    /// How calls that failed are tried again: those of tools that only read, or that may be
    /// repeated, where the other side was busy, failed, was not reached, or took too long.
    #[derive(Copy, Eq)]
    pub struct Retry {
        /// How often a call is tried again, beside the first time. 0: never.
        pub max_attempts: Bounded<0, 10> = Bounded::clamped(2), Rule::Smaller;
        /// Milliseconds that are waited at most before the first time; twice as long before each
        /// further one. How long in fact is left to chance.
        pub base_ms: Bounded<1, 60_000> = Bounded::clamped(500), Rule::Smaller;
        /// Milliseconds that are waited at most before any time, unless the other side asks for
        /// more.
        pub max_ms: Bounded<1, 600_000> = Bounded::clamped(5000), Rule::Smaller;
        /// Seconds from the first time on after which nothing is tried again.
        pub budget_secs: Bounded<0, 3600> = Bounded::clamped(30), Rule::Smaller;
    }
}

impl Retry {
    /// The same as what decides.
    pub fn backoff(self) -> Backoff {
        Backoff {
            retries: u32::try_from(self.max_attempts.get()).unwrap_or(u32::MAX),
            base: Duration::from_millis(self.base_ms.get()),
            max: Duration::from_millis(self.max_ms.get()),
            budget: Duration::from_secs(self.budget_secs.get()),
        }
    }
}
