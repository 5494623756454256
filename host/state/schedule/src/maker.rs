//! The maker of a scheduled task, and its bounds.

use serde::{Deserialize, Serialize};

/// The maker of a task, and its bounds. A task can never do more than the call that created it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maker {
    /// The session of the call.
    pub session: String,
    /// The name of the phase of an agent's work in which the task was created.
    pub phase: Option<String>,
    /// The name of the call's trust level.
    pub trust: String,
    /// Whether the session contained untrusted text. Unknown if the stored task doesn't have this
    /// field.
    #[serde(default = "not_known")]
    pub untrusted: bool,
    /// Limits of the configuration at that time, in texts that only take away.
    pub bounds: Vec<String>,
}

fn not_known() -> bool {
    true
}
