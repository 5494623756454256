//! `[approvals]`: who approves calls, how long an approval for a session lasts, how long a call waits
//! for an approval, and the webhook that is told of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// Approvals of calls.
    #[derive(Eq)]
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
        /// The URL that gets a signed POST request for each call that waits for `toolhold
        /// approvals`: https, or http on this machine. `toolhold serve --http` sends it, with a
        /// one-time link to the question, at `url` of `[serve]`. If empty, nothing is sent.
        #[schemars(extend("examples" = ["https://hooks.example.com/toolhold"]))]
        pub webhook: String, Narrowing::Ignored;
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
