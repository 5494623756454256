//! What answers are cleared of, and how much of one is shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Bounded;
use super::rule::{Rule, rules};

/// Secrets in answers: each leaves a mark instead, `[REDACTED:github-token ghp_…]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Redaction {
    /// Whether secrets are taken out at all.
    pub enabled: bool,
    /// Tools whose answers may hold secrets, by their names or aliases.
    pub exempt: Vec<String>,
}

rules!(Redaction { enabled: Rule::OnlyTrue, exempt: Rule::Ignored });

impl Default for Redaction {
    fn default() -> Self {
        Self { enabled: true, exempt: Vec::new() }
    }
}

/// Answers that are too long for a model: it gets their beginning and end, and the whole is kept for `read_overflow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Overflow {
    /// Characters of an answer's text, beyond which it is cut. 0: it is not cut.
    pub threshold: Bounded<0, 100_000_000>,
    /// Hours that the whole of an answer is kept.
    pub retention_hours: Bounded<1, 8760>,
    /// MiB that all kept answers may take together; the oldest go first. Of one answer, at most 10 MiB are kept.
    pub max_mib: Bounded<1, 1_048_576>,
}

rules!(Overflow { threshold: Rule::SmallerOrUnbounded, retention_hours: Rule::Smaller, max_mib: Rule::Smaller });

impl Default for Overflow {
    fn default() -> Self {
        Self { threshold: Bounded::clamped(30_000), retention_hours: Bounded::clamped(168), max_mib: Bounded::clamped(256) }
    }
}
