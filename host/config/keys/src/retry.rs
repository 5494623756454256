//! `[tools.retry]`: when a failed call is retried, and how often.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_policy::Backoff;

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// Retries of failed calls of tools that only read or may be repeated. A call is retried if the
    /// server was busy, failed, was unreachable, or took too long.
    #[derive(Copy, Eq)]
    pub struct Retry {
        /// The number of retries after the first attempt. 0 means no retries.
        pub max_attempts: Bounded<0, 10> = Bounded::clamped(2), Narrowing::Smaller;
        /// Maximum wait before the first retry, in milliseconds. The maximum doubles with each
        /// further retry, and the actual wait is random.
        pub base_ms: Bounded<1, 60_000> = Bounded::clamped(500), Narrowing::Smaller;
        /// Milliseconds to wait before any retry, at most, unless the other side asks for more.
        pub max_ms: Bounded<1, 600_000> = Bounded::clamped(5000), Narrowing::Smaller;
        /// Seconds after the first attempt during which a call is retried.
        pub budget_secs: Bounded<0, 3600> = Bounded::clamped(30), Narrowing::Smaller;
    }
}

impl Retry {
    /// Converts the settings to the policy for retries.
    pub fn backoff(self) -> Backoff {
        Backoff {
            // The type of the key allows only numbers that fit.
            retries: u32::try_from(self.max_attempts.get()).unwrap_or(u32::MAX),
            base: Duration::from_millis(self.base_ms.get()),
            max: Duration::from_millis(self.max_ms.get()),
            budget: Duration::from_secs(self.budget_secs.get()),
        }
    }
}
