//! What is known of a call so far: what it is decided, asked and recorded by.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use berth_contract::{CallId, Content, Report};
use berth_policy::{ActedOn, Action, Decision, Phase, ReachedPaths, Trust};
use serde_json::Value;

use crate::answer::{Approval, Audience, Filtered, Remainder};
use crate::answer_cache::Key;
use crate::counting::Taken;
use crate::session::Session;
use berth_catalogue::Tool;

/// A call on its way. Each step of the journey adds what it found out.
pub(crate) struct Facts {
    pub(crate) id: CallId,
    /// The name that was called.
    pub(crate) asked: String,
    pub(crate) session: Session,
    pub(crate) caller: Option<String>,
    pub(crate) phase: Option<Phase>,
    /// How far what asks for the call is trusted.
    pub(crate) trust: Trust,
    /// Whom the answer is for.
    pub(crate) audience: Audience,
    pub(crate) began: SystemTime,
    pub(crate) since: Instant,
    /// When the tool was run for the first time.
    pub(crate) ran: Instant,
    /// None where no tool has that name.
    pub(crate) tool: Option<Arc<Tool>>,
    /// As they were given until the subjects are resolved, with absolute paths from then on.
    pub(crate) arguments: Arc<Value>,
    pub(crate) attachments: Vec<Content>,
    pub(crate) subjects: Vec<ActedOn>,
    pub(crate) decision: Option<Decision>,
    /// The rules about calls that say what it may reach beside what it names.
    pub(crate) reached: Option<Reached>,
    /// The place in the session's quota and rate, until the call runs.
    pub(crate) place: Option<Taken>,
    pub(crate) approval: Option<Approval>,
    /// How long a person was waited for. Zero where nobody was.
    pub(crate) waited: Duration,
    /// How often the tool was run.
    pub(crate) attempts: u32,
    /// Whether an earlier answer served.
    pub(crate) cached: bool,
    /// Under what the answer may be kept. None where it may not.
    pub(crate) answer: Option<Key>,
    /// What filters left out of the answer.
    pub(crate) filtered: Option<Filtered>,
    /// The shapes of injection in what strangers wrote.
    pub(crate) injections: Vec<&'static str>,
    /// Whether a part of the answer was left out.
    pub(crate) truncated: bool,
    /// Whether the answer is untrusted text for a model.
    pub(crate) untrusted: bool,
    /// What the host has to say of the answer, in the text of which it stands too.
    pub(crate) notices: Vec<String>,
    /// Where what is left out can be read.
    pub(crate) rest: Option<Remainder>,
    pub(crate) report: Arc<Report>,
}

/// The rules that say what a call may reach beside what it names.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) paths: Arc<ReachedPaths>,
    pub(crate) generation: u64,
}

impl Reached {
    /// What no other rules have: an answer that was made under some is no answer under others.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.generation, self.paths.identity())
    }
}

impl Facts {
    /// The call as the gates see it. None before a tool was found.
    pub(crate) fn action(&self) -> Option<Action<'_>> {
        let tool = self.tool.as_deref()?;
        Some(Action {
            tool: &tool.definition.name,
            aliases: &tool.definition.aliases,
            provider: tool.provider.name(),
            built_in: tool.is_built_in(),
            annotations: tool.annotations_with(&self.arguments),
            subjects_believed: tool.believed,
            subjects: &self.subjects,
            arguments: &self.arguments,
            trust: self.trust,
            phase: self.phase,
            caller: self.caller.as_deref(),
        })
    }

    /// Whether the call can change something, or reach somebody.
    pub(crate) fn acts(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| !tool.annotations_with(&self.arguments).read_only)
    }
}
