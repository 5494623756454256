//! `[approvals]`: who approves calls, how long an approval of a session lasts, and how long a call
//! waits for one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// Approvals of calls.
    #[derive(Copy, Eq)]
    pub struct Approvals {
        /// Seconds after which an approval for the session ends, and a question for `toolhold
        /// approvals` expires.
        pub expire_secs: Bounded<1, 28_800> = Bounded::clamped(3600), Narrowing::Smaller;
        /// Seconds that a call waits for `toolhold approvals` if nobody else can be asked. 0 means
        /// that the call doesn't wait: the approval then applies to the next identical call.
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
    /// Nobody: a call that needs approval is refused.
    Deny,
}
