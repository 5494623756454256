//! `[approvals]`: who approves calls, how long an approval for a session lasts, and how long a call
//! waits for an approval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// Approvals of calls.
    #[derive(Copy, Eq)]
    pub struct Approvals {
        /// Seconds until an approval for the session ends. Questions for `toolhold approvals`
        /// expire after the same time.
        pub expire_secs: Bounded<1, 28_800> = Bounded::clamped(3600), Narrowing::Smaller;
        /// Seconds that a call waits for `toolhold approvals` if nobody else can be asked. 0 means
        /// that the call doesn't wait, and an approval applies to the next identical call.
        pub wait_secs: Bounded<0, 3600> = Bounded::clamped(0), Narrowing::Smaller;
        /// Whether `toolhold call --yes` approves calls.
        pub yes_flag: bool = true, Narrowing::OnlyFalse;
        /// The person who approves a call that came over MCP.
        pub mcp: McpApprovals, Narrowing::Stricter(&["deny", "terminal", "client"]);
    }
}

/// The person who approves a call that came over MCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum McpApprovals {
    /// The client's user if the client can ask, otherwise as with `terminal`.
    #[default]
    Client,
    /// The person who runs `toolhold approvals` at a terminal.
    Terminal,
    /// Nobody approves: a call that needs approval is denied.
    Deny,
}
