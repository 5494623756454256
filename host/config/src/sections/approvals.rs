//! `[approvals]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::rule::{Rule, section};

section! {
    /// How a person is asked for calls that need approval.
    #[derive(Copy, Eq)]
    pub struct Approvals {
        /// Seconds that a yes for the session counts, and a question waits that was left for
        /// `berth approvals`.
        pub expire_secs: Bounded<1, 28_800> = Bounded::clamped(3600), Rule::Smaller;
        /// Seconds that a call waits for an answer by `berth approvals`, where nobody else can be
        /// asked. 0: it doesn't; the answer counts for the next call that is the same.
        pub wait_secs: Bounded<0, 3600> = Bounded::clamped(0), Rule::Smaller;
        /// Whether `berth call --yes` counts.
        pub yes_flag: bool = true, Rule::OnlyFalse;
        /// Who is asked about a call that came over MCP.
        pub mcp: McpApprovals, Rule::Stricter(&["deny", "terminal", "client"]);
    }
}

/// Who is asked about a call that came over MCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum McpApprovals {
    /// The client's user, where the client can ask; else as with `terminal`.
    #[default]
    Client,
    /// Who answers `berth approvals` at a terminal.
    Terminal,
    /// Nobody: what needs approval is refused.
    Deny,
}
