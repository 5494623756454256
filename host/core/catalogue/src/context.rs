//! The call as the first steps of its journey fill it in: tool, arguments, subjects and caller.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value};
use toolhold_contract::{CallId, Content, SubjectKind};
use toolhold_policy::commands::ShellState;
use toolhold_policy::{Action, Phase, ResolvedSubject, Trust};

use crate::Tool;

/// A call. The first steps of the journey fill it in: the tool, then the converted arguments, then
/// the subjects. After that, it doesn't change, and every step returns its own results.
pub struct CallContext {
    /// The call's unique ID.
    pub id: CallId,
    /// The name that was called.
    pub requested_tool: String,
    /// The name of the session that the call belongs to.
    pub session: Arc<str>,
    /// The caller. `None` for the primary agent.
    pub caller: Option<String>,
    /// The phase of the agent's work in which it makes the call.
    pub phase: Option<Phase>,
    /// The trust in the caller.
    pub trust: Trust,
    /// Whether the call needs approval if it acts.
    pub doubtful: bool,
    /// The reader of the answer.
    pub audience: Audience,
    /// The start time, for the audit.
    pub started_at: SystemTime,
    /// The start time, for measuring durations.
    pub started: Instant,
    /// The tool. `None` if no tool has the requested name.
    pub tool: Option<Arc<Tool>>,
    /// The arguments: as given until the subjects are resolved, with absolute paths after that.
    pub arguments: Arc<Value>,
    /// Larger arguments. The other arguments refer to them by index.
    pub attachments: Vec<Content>,
    /// The metadata that the caller sent next to the arguments.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// The paths, commands and URLs that the call acts on.
    pub subjects: Vec<ResolvedSubject>,
    /// The state that its commands start with, from earlier commands of the session.
    pub carried: ShellState,
    /// The same without secrets, for people.
    pub carried_shown: ShellState,
}

/// The reader of an answer, which decides how its text is shaped. Secrets are redacted for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// A model. It gets untrusted text inside a fence. Of a long text it gets the beginning and the
    /// end, and reads the rest with `read_overflow`.
    #[default]
    Model,
    /// A person or a program. It gets the whole text unchanged.
    Person,
}

impl CallContext {
    /// Puts the state that is carried over in front of each command among these subjects.
    pub fn carry_into(&self, subjects: &mut [ResolvedSubject]) {
        for subject in subjects {
            if subject.kind == SubjectKind::Command {
                subject.text = self.carried.in_front_of(&subject.text);
            }
        }
    }

    /// Returns the call as the gates see it. Returns `None` if no tool was found.
    pub fn action(&self) -> Option<Action<'_>> {
        let tool = self.tool.as_deref()?;
        Some(Action {
            tool: &tool.definition.name,
            aliases: &tool.definition.aliases,
            provider: tool.provider.name(),
            built_in: tool.is_built_in(),
            annotations: tool.annotations_with(&self.arguments),
            says_destructive: tool.definition.says_destructive,
            subjects_trusted: tool.claims_trusted,
            subjects: &self.subjects,
            arguments: &self.arguments,
            network: tool.definition.asks_for_network(&self.arguments),
            trust: self.trust,
            doubtful: self.doubtful,
            phase: self.phase,
            caller: self.caller.as_deref(),
        })
    }

    /// Returns the subjects of the call for people: without secrets in the state that is carried
    /// over.
    pub fn shown_subjects(&self) -> Vec<ResolvedSubject> {
        let mut subjects = self.subjects.clone();
        for subject in &mut subjects {
            if subject.kind != SubjectKind::Command {
                continue;
            }
            if let Some(command) = subject.text.strip_prefix(&self.carried.in_front_of("")) {
                subject.text = self.carried_shown.in_front_of(command);
            }
        }
        subjects
    }

    /// Checks whether the call can change something or reach the outside: whether it has a tool and
    /// isn't read-only.
    pub fn acts(&self) -> bool {
        let Some(tool) = &self.tool else { return false };
        !tool.annotations_with(&self.arguments).read_only
    }
}
