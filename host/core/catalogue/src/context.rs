//! The data of a call: tool, arguments, subjects and caller.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value};
use toolhold_contract::{CallId, Content, SubjectKind};
use toolhold_policy::commands::ShellState;
use toolhold_policy::{Action, Phase, ResolvedSubject, Trust};

use crate::Tool;

/// The data of a call. The first steps add the tool, the converted arguments and the subjects.
/// Later steps change nothing.
pub struct CallContext {
    /// The call's unique ID.
    pub id: CallId,
    /// The requested tool name.
    pub requested_tool: String,
    /// The name of the call's session.
    pub session: Arc<str>,
    /// The name of the agent that makes the call. `None` means the primary agent.
    pub caller: Option<String>,
    /// The phase of the agent's work.
    pub phase: Option<Phase>,
    /// The trust in the caller.
    pub trust: Trust,
    /// Whether the call needs approval if it acts.
    pub doubtful: bool,
    /// The reader of the answer.
    pub audience: Audience,
    /// The start time for the audit log.
    pub started_at: SystemTime,
    /// The start time for measuring durations.
    pub started: Instant,
    /// The tool. `None` means that no tool has the requested name.
    pub tool: Option<Arc<Tool>>,
    /// The arguments. Their paths become absolute when the subjects are resolved.
    pub arguments: Arc<Value>,
    /// Content next to the arguments. The arguments refer to it by index.
    pub attachments: Vec<Content>,
    /// The metadata that the caller sent next to the arguments.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// The paths, commands and URLs of the call.
    pub subjects: Vec<ResolvedSubject>,
    /// The shell state at the start of the call's commands, as earlier commands of the session left
    /// it.
    pub carried: ShellState,
    /// The shell state with secrets redacted, for people.
    pub carried_shown: ShellState,
}

/// The reader of an answer. Answers are redacted for every reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// A model. Untrusted text is fenced. Long text is cut, and `read_overflow` reads the omitted
    /// part.
    #[default]
    Model,
    /// A person or a program. The text is complete, without fences.
    Person,
}

impl CallContext {
    /// Adds the shell state of earlier commands to the start of each command among `subjects`.
    pub fn carry_into(&self, subjects: &mut [ResolvedSubject]) {
        for subject in subjects {
            if subject.kind == SubjectKind::Command {
                subject.text = self.carried.in_front_of(&subject.text);
            }
        }
    }

    /// Returns the call in the form for the rules, or `None` if no tool was found.
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

    /// Returns the subjects for people. Secrets in the shell state are redacted.
    pub fn shown_subjects(&self) -> Vec<ResolvedSubject> {
        // `carry_into` has added this text to the start of each command.
        let state_with_secrets = self.carried.in_front_of("");
        let mut subjects = self.subjects.clone();
        for subject in &mut subjects {
            if subject.kind != SubjectKind::Command {
                continue;
            }
            if let Some(command) = subject.text.strip_prefix(&state_with_secrets) {
                subject.text = self.carried_shown.in_front_of(command);
            }
        }
        subjects
    }

    /// Checks whether the call can change something or use the network. Returns `false` if no tool
    /// was found.
    pub fn acts(&self) -> bool {
        let Some(tool) = &self.tool else { return false };
        !tool.annotations_with(&self.arguments).read_only
    }
}
