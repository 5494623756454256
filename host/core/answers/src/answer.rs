//! The answer to a call, with its approval, its steps and details about shortening.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolhold_contract::text::counted;
use toolhold_contract::{CallId, Confidence, Outcome, Report, Snapshot};
use toolhold_policy::Decision;

/// Texts with fewer bytes aren't filtered, because the notice about filtering takes too much room.
pub(crate) const SHORT: usize = 400;

/// Minimum number of bytes that filtering must save. This is more than the notice about it needs.
pub(crate) const GAIN: usize = 200;

/// The answer to a call.
#[derive(Debug)]
pub struct Answer {
    /// The call's unique ID, as in the log.
    pub id: CallId,
    /// The tool's full name, if the tool was found.
    pub tool: Option<String>,
    /// The source of the tool. For a plugin's tool, this is the plugin's name.
    pub provider: Option<String>,
    /// The output, or the failure.
    pub outcome: Outcome,
    /// The decision of the rules. `None` means that the call failed before this step.
    pub decision: Option<Decision>,
    /// The approval, if the call needed one.
    pub approval: Option<Approval>,
    /// Whether the answer comes from the cache.
    pub cached: bool,
    /// Whether a part of the answer was omitted. A notice in the text marks the omission.
    pub truncated: bool,
    /// Whether the answer is for a model and has untrusted sources. Its text is then fenced.
    pub untrusted: bool,
    /// The host's notices about the answer, which are also in its text.
    pub notices: Vec<String>,
    /// The place where the omitted part can be read. `None` means that nothing was omitted, or that
    /// storing failed.
    pub rest: Option<Remainder>,
    /// The effect of filters. `None` means that filters omitted nothing.
    pub filtered: Option<FilterSummary>,
    /// The amount of data that was saved before the call changed files. `None` means that nothing
    /// was saved.
    pub snapshot: Option<Snapshot>,
    /// Denied operations, requests and other details about the call. The report isn't redacted, and
    /// models never get it.
    pub report: Arc<Report>,
    /// The steps of the call in order, with their durations. The last steps of a denied call are
    /// the denial and `shape`.
    pub steps: Vec<Step>,
}

/// Where `read_overflow` continues after a cut or filtered answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remainder {
    /// The ID of the complete answer.
    pub id: String,
    /// The offset of the first omitted character.
    pub offset: usize,
}

/// A step in the processing of a call.
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
    /// The approval is valid for this one call.
    Once,
    /// Valid for calls with the same fingerprint until the session ends, and at most for
    /// `[approvals] expire_secs`. The fingerprint contains the state of a file whose change the
    /// approval showed.
    Session,
    /// Valid for all calls of the tool in the session to which the same rule applies, and at most
    /// for `[approvals] expire_secs`.
    SessionTool,
    /// Like [`SessionTool`](Self::SessionTool), for every tool of the plugin or server.
    SessionSource,
    /// Permanent: the approval becomes a rule in the user's configuration.
    Always,
    /// Permanent, for all calls of the tool.
    AlwaysTool,
    /// Permanent, for every tool of the plugin or server.
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
    /// The lowest confidence among `filters`.
    pub confidence: Confidence,
    /// Number of lines before and after filtering.
    pub lines: [u64; 2],
    /// Number of bytes before and after filtering.
    pub bytes: [u64; 2],
}

impl FilterSummary {
    /// Returns the percentage of omitted lines.
    pub fn percent(&self) -> f64 {
        let [before, after] = self.lines.map(|lines| lines as f64);
        if before > 0.0 { (1.0 - after / before).max(0.0) * 100.0 } else { 0.0 }
    }

    /// Checks whether filtering is worth it. The notice takes room, so short outputs and small
    /// savings aren't filtered.
    pub fn is_worth_it(&self) -> bool {
        self.bytes[0] >= SHORT as u64 && self.bytes[0].saturating_sub(self.bytes[1]) >= GAIN as u64
    }

    /// Returns an estimate of the saved tokens, at four bytes a token.
    pub fn tokens_saved(&self) -> u64 {
        self.bytes[0].saturating_sub(self.bytes[1]) / 4
    }
}

/// `342 lines -> 28 lines, 91.8% filtered`
impl std::fmt::Display for FilterSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [before, after] = self.lines;
        write!(
            f,
            "{} -> {}, {:.1}% filtered",
            counted(before, "line"),
            counted(after, "line"),
            self.percent()
        )
    }
}
