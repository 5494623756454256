//! The maker of a scheduled task, and its bounds.

use serde::{Deserialize, Serialize};

/// The maker of a task, and its bounds: a task can never do more than the call that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maker {
    /// The session of the call.
    pub session: String,
    /// The part of an agent's work that made it, by its name.
    pub phase: Option<String>,
    /// How far the call was trusted, by its name.
    pub trust: String,
    /// Whether the session had been given untrusted text. Of a task that doesn't say it, it is not
    /// known.
    #[serde(default = "not_known")]
    pub untrusted: bool,
    /// Limits of the configuration at that time, in texts that only take away.
    pub bounds: Vec<String>,
}

fn not_known() -> bool {
    true
}
