//! The maker and the bounds of a scheduled task.

use serde::{Deserialize, Serialize};

/// The maker and the bounds of a task. The task can never do more than the call that created it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maker {
    /// The session of the call.
    pub session: String,
    /// The phase of the agent's work in which the task was created.
    pub phase: Option<String>,
    /// The name of the call's trust level.
    pub trust: String,
    /// Whether the session contained untrusted text. `true` if unknown.
    #[serde(default = "not_known")]
    pub untrusted: bool,
    /// Limits of the configuration when the task was created.
    pub bounds: Vec<String>,
}

fn not_known() -> bool {
    true
}
