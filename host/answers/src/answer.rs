//! What a call comes to, and the parts of that.

use std::time::Duration;

use berth_contract::{CallId, Confidence, Outcome};
use berth_policy::Decision;
use serde::{Deserialize, Serialize};

/// Bytes of text below which there is nothing to gain: what says that something was left out takes
/// some, too.
pub(crate) const SHORT: usize = 400;

/// Bytes that have to be saved for the same reason.
pub(crate) const GAIN: usize = 200;

/// What a call came to.
#[derive(Debug)]
pub struct Answer {
    /// The call's id, as the log has it: no other call has it.
    pub id: CallId,
    /// The tool's full name, where one was found.
    pub tool: Option<String>,
    /// What offers it: a plugin's name, where it is one of a plugin.
    pub provider: Option<String>,
    /// The output, or the failure.
    pub outcome: Outcome,
    /// What the gates decided, where the call came to them.
    pub decision: Option<Decision>,
    /// Who agreed to it, where somebody was asked.
    pub approval: Option<Approval>,
    /// Whether an earlier answer served.
    pub cached: bool,
    /// Whether a part of the answer was left out; its text says where.
    pub truncated: bool,
    /// Whether it is for a model, and was written by untrusted sources: its text stands behind a
    /// fence.
    pub untrusted: bool,
    /// What the host has to say of the answer. Its text says it too.
    pub notices: Vec<String>,
    /// Where what is left out can be read. `None`: nothing was, or it could not be kept.
    pub rest: Option<Remainder>,
    /// What filters left out of it. `None`: nothing.
    pub filtered: Option<FilterSummary>,
    /// The steps that the call went through, in their order, and how long each took. One that was
    /// refused at a step ends before it, with `shape`, which every answer goes through.
    pub steps: Vec<Step>,
}

/// Where `read_overflow` reads on in an answer that was too long, or filtered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remainder {
    /// The id of the whole answer.
    pub id: String,
    /// The character from which on something is left out.
    pub offset: usize,
}

/// A step of a call's journey.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Step {
    /// `resolve`, `validate`, `govern`, `approve`, `intent`, `cache`, `run`, `shape`, `record`.
    pub name: &'static str,
    /// How long it took, in microseconds.
    #[serde(rename = "micros", serialize_with = "micros")]
    pub time: Duration,
}

fn micros<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// A yes, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Who said it: `terminal`, `--yes`, `berth approvals`, the name of an MCP client.
    pub by: String,
    /// For how long it holds.
    pub scope: Scope,
}

/// How long a yes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// For this one call.
    Once,
    /// For calls with the same fingerprint (another file than the one whose change was shown asks
    /// again), as long as the session lives, and at most `[approvals] expire_secs`.
    Session,
    /// For good: it becomes a rule of the user's configuration.
    Always,
}

impl Scope {
    /// The name in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

/// What filters made of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterSummary {
    /// The filters that left something out, in their order.
    pub filters: Vec<String>,
    /// How sure they are that nothing that matters was lost: the least sure of them.
    pub confidence: Confidence,
    /// Lines before and after.
    pub lines: [u64; 2],
    /// Bytes before and after.
    pub bytes: [u64; 2],
}

impl FilterSummary {
    /// How many hundredths of the lines are gone.
    pub fn percent(&self) -> f64 {
        let [before, after] = self.lines.map(|lines| lines as f64);
        if before > 0.0 { (1.0 - after / before).max(0.0) * 100.0 } else { 0.0 }
    }

    /// Whether a call would take it: of what is short, or saves hardly anything, nothing is left
    /// out, since what says so takes some, too.
    pub fn is_worth_it(&self) -> bool {
        self.bytes[0] >= SHORT as u64 && self.bytes[0].saturating_sub(self.bytes[1]) >= GAIN as u64
    }

    /// Tokens that are saved, estimated: four bytes are taken for one.
    pub fn tokens_saved(&self) -> u64 {
        self.bytes[0].saturating_sub(self.bytes[1]) / 4
    }
}

/// `342 lines -> 28 lines, 91.8% filtered`
impl std::fmt::Display for FilterSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} lines -> {} lines, {:.1}% filtered",
            self.lines[0],
            self.lines[1],
            self.percent()
        )
    }
}
