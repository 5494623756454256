//! A denial: the action, the deciding rule, and the remedy.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A denial: the action, the deciding rule, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The capability that was used: `files`, `search`, `network`.
    pub capability: String,
    /// The action with its object: `read /home/u/.env`.
    pub action: String,
    /// The deciding rule, as written: `deny_read = "**/.env"`.
    pub rule: String,
    /// Where the rule was written: `[tools.file] in /home/u/.config/toolhold/toolhold.toml`, or
    /// `built in`.
    pub place: String,
    /// The configuration line that changes the decision, or the reason why no line can.
    pub remedy: String,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is denied: {} ({}). {}", self.action, self.rule, self.place, self.remedy)
    }
}
