//! The answer to a call: its outcome, its steps, its approval, and what filters and limits omitted.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolhold_contract::text::counted;
use toolhold_contract::{CallId, Confidence, Outcome, Report, Snapshot};
use toolhold_policy::Decision;

/// Length of a text in bytes below which it isn't filtered: the notice about filtering would take
/// too much room.
pub(crate) const SHORT: usize = 400;

/// Bytes that filtering must save. The saving is then larger than the notice.
pub(crate) const GAIN: usize = 200;

/// The answer to a call.
#[derive(Debug)]
pub struct Answer {
    /// The call's unique ID, as in the log.
    pub id: CallId,
    /// The tool's full name, if the tool was found.
    pub tool: Option<String>,
    /// The provider: the plugin's name for a plugin's tool.
    pub provider: Option<String>,
    /// The output, or the failure.
    pub outcome: Outcome,
    /// The decision of the rules, if the call reached them.
    pub decision: Option<Decision>,
    /// The approval, if the call needed one.
    pub approval: Option<Approval>,
    /// Whether an earlier answer was used.
    pub cached: bool,
    /// Whether a part of the answer was omitted. The text says where.
    pub truncated: bool,
    /// Whether the answer is for a model and has untrusted sources. Its text is then fenced.
    pub untrusted: bool,
    /// The host's notices about the answer, which are also in its text.
    pub notices: Vec<String>,
    /// The position where the omitted part can be read. `None` means that nothing was omitted, or
    /// that the omitted part couldn't be stored.
    pub rest: Option<Remainder>,
    /// The part that filters omitted. `None` means that filters omitted nothing.
    pub filtered: Option<FilterSummary>,
    /// The saved state of the files that the call changed, for undo. `None` means that the call
    /// changed no file, or that no state is saved.
    pub snapshot: Option<Snapshot>,
    /// The provider's report in addition to the outcome: denied operations, requests, printed
    /// lines. The report isn't redacted, and models never get it.
    pub report: Arc<Report>,
    /// The steps of the call in order, with their durations. A denied call skips the remaining
    /// steps except `shape`, which every answer passes.
    pub steps: Vec<Step>,
}

/// Where `read_overflow` goes on in an answer that was cut or filtered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remainder {
    /// The ID of the complete answer.
    pub id: String,
    /// The offset of the first omitted character.
    pub offset: usize,
}

/// A step of a call's journey.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Step {
    /// `resolve`, `validate`, `govern`, `approve`, `intent`, `cache`, `run`, `shape`, `record`.
    pub name: &'static str,
    /// The duration of the step in microseconds.
    #[serde(rename = "micros", serialize_with = "micros")]
    pub time: Duration,
}

fn micros<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// An approval, and who gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The origin of the approval: `terminal`, `--yes`, `toolhold approvals`, or the name of an MCP
    /// client.
    pub by: String,
    /// How long the approval is valid.
    pub scope: Scope,
}

/// How long an approval is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// For this one call.
    Once,
    /// For calls with the same fingerprint until the session ends, and at most for `[approvals]
    /// expire_secs`. If the approval showed a change of a file and the file has changed since, the
    /// fingerprint differs.
    Session,
    /// For all calls of the tool in the session that need approval by the same rule, and at most
    /// for `[approvals] expire_secs`.
    SessionTool,
    /// As [`SessionTool`](Self::SessionTool), for every tool of the plugin or server.
    SessionSource,
    /// Permanently: the approval becomes a rule in the user's configuration.
    Always,
    /// Permanently, for all calls of the tool.
    AlwaysTool,
    /// Permanently, for every tool of the plugin or server.
    AlwaysSource,
}

impl Scope {
    /// Checks whether the approval becomes a rule.
    pub fn is_permanent(self) -> bool {
        matches!(self, Self::Always | Self::AlwaysTool | Self::AlwaysSource)
    }

    /// Returns the name in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::SessionTool => "session_tool",
            Self::SessionSource => "session_source",
            Self::Always => "always",
            Self::AlwaysTool => "always_tool",
            Self::AlwaysSource => "always_source",
        }
    }
}

/// The effect of filters on an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterSummary {
    /// The filters that omitted something, in their order.
    pub filters: Vec<String>,
    /// How sure the least sure filter is that nothing important was lost.
    pub confidence: Confidence,
    /// Lines before and after.
    pub lines: [u64; 2],
    /// Bytes before and after.
    pub bytes: [u64; 2],
}

impl FilterSummary {
    /// Returns the percentage of omitted lines.
    pub fn percent(&self) -> f64 {
        let [before, after] = self.lines.map(|lines| lines as f64);
        if before > 0.0 { (1.0 - after / before).max(0.0) * 100.0 } else { 0.0 }
    }

    /// Checks whether filtering is worth it. Short outputs and small savings aren't, since the
    /// notice takes room, too.
    pub fn is_worth_it(&self) -> bool {
        self.bytes[0] >= SHORT as u64 && self.bytes[0].saturating_sub(self.bytes[1]) >= GAIN as u64
    }

    /// Estimated saved tokens, at four bytes a token.
    pub fn tokens_saved(&self) -> u64 {
        self.bytes[0].saturating_sub(self.bytes[1]) / 4
    }
}

/// `342 lines -> 28 lines, 91.8% filtered`
impl std::fmt::Display for FilterSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} -> {}, {:.1}% filtered",
            counted(self.lines[0], "line"),
            counted(self.lines[1], "line"),
            self.percent()
        )
    }
}
