//! The data of a call that the first steps add: tool, arguments, subjects and caller.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value};
use toolhold_contract::{CallId, Content, SubjectKind};
use toolhold_policy::commands::ShellState;
use toolhold_policy::{Action, Phase, ResolvedSubject, Trust};

use crate::Tool;

/// The data of a call. The first steps add the tool, then the converted arguments, then the
/// subjects. After that, the data doesn't change, and every step returns its own results.
pub struct CallContext {
    /// The call's unique ID.
    pub id: CallId,
    /// The name that was called.
    pub requested_tool: String,
    /// The name of the session that the call belongs to.
    pub session: Arc<str>,
    /// The caller. `None` means the primary agent.
    pub caller: Option<String>,
    /// The phase of the agent's work in which the agent makes the call.
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
    /// The tool. `None` means that no tool has the requested name.
    pub tool: Option<Arc<Tool>>,
    /// The arguments. Their paths are absolute after the subjects are resolved.
    pub arguments: Arc<Value>,
    /// Larger arguments, to which the other arguments refer by index.
    pub attachments: Vec<Content>,
    /// The metadata that the caller sent next to the arguments.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// The paths, commands and URLs that the call acts on.
    pub subjects: Vec<ResolvedSubject>,
    /// The shell state with which the call's commands start, from earlier commands of the session.
    pub carried: ShellState,
    /// The shell state without secrets, for people.
    pub carried_shown: ShellState,
}

/// The reader of an answer, which determines how its text is shaped. Secrets are redacted for every
/// reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// A model. Untrusted text is in a fence. Of a long text, the model gets the beginning and the
    /// end, and can read the rest with `read_overflow`.
    #[default]
    Model,
    /// A person or a program. The text is complete and unchanged.
    Person,
}

impl CallContext {
    /// Puts the carried-over shell state in front of each command of these subjects.
    pub fn carry_into(&self, subjects: &mut [ResolvedSubject]) {
        for subject in subjects {
            if subject.kind == SubjectKind::Command {
                subject.text = self.carried.in_front_of(&subject.text);
            }
        }
    }

    /// Returns the call in the form that the rules use. Returns `None` if no tool was found.
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

    /// Returns the subjects of the call for people. The carried-over shell state has no secrets.
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

    /// Checks whether the call can change something or use the network, which means that it has a
    /// tool and isn't read-only.
    pub fn acts(&self) -> bool {
        let Some(tool) = &self.tool else { return false };
        !tool.annotations_with(&self.arguments).read_only
    }
}
