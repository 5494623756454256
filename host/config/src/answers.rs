//! What becomes of a call's answer: whether it is tried for again, and whether it serves again.

use std::time::Duration;

use berth_policy::Backoff;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Bounded;
use super::rule::{Rule, rules};

/// How calls that failed are tried again: those of tools that only read, or that may be repeated, where the other side was busy, failed,
/// was not reached, or took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Retry {
    /// How often a call is tried again, beside the first time. 0: never.
    pub max_attempts: Bounded<0, 10>,
    /// Milliseconds that are waited at most before the first time; twice as long before each further one. How long in fact is left to chance.
    pub base_ms: Bounded<1, 60_000>,
    /// Milliseconds that are waited at most before any time, unless the other side asks for more.
    pub max_ms: Bounded<1, 600_000>,
    /// Seconds from the first time on after which nothing is tried again.
    pub budget_secs: Bounded<0, 3600>,
}

rules!(Retry { max_attempts: Rule::Smaller, base_ms: Rule::Smaller, max_ms: Rule::Smaller, budget_secs: Rule::Smaller });

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: Bounded::clamped(2),
            base_ms: Bounded::clamped(500),
            max_ms: Bounded::clamped(5000),
            budget_secs: Bounded::clamped(30),
        }
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

/// Answers that serve again in their session: of tools that only read, as long as everything that they were made of is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct ResultCache {
    /// Whether answers are kept at all.
    pub enabled: bool,
    /// Seconds after which an answer is made anew in any case. 0: it is kept for as long as it is true.
    pub ttl_secs: Bounded<0, 31_536_000>,
    /// MiB of memory for the answers of one session, and for what is remembered of how they were made.
    pub max_mib: Bounded<1, 4096>,
    /// Answers of one session.
    pub max_entries: Bounded<1, 65_536>,
}

rules!(ResultCache { enabled: Rule::OnlyFalse, ttl_secs: Rule::SmallerOrUnbounded, max_mib: Rule::Smaller, max_entries: Rule::Smaller });

impl Default for ResultCache {
    fn default() -> Self {
        Self { enabled: true, ttl_secs: Bounded::clamped(300), max_mib: Bounded::clamped(32), max_entries: Bounded::clamped(512) }
    }
}
