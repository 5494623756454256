//! What is known of a call: which tool, with what, for whom.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use berth_contract::{CallId, Content};
use berth_policy::{Action, Phase, ResolvedSubject, Trust};
use serde_json::Value;

use crate::Tool;

/// A call. The first steps of the journey fill it in: the tool, then the arguments in the tool's
/// form, then what they act on. From the gates on, nothing of it changes, and every step returns
/// what it found out.
pub struct CallContext {
    /// No other call has it.
    pub id: CallId,
    /// The name that was called.
    pub requested_tool: String,
    /// The name of the session that the call belongs to.
    pub session: Arc<str>,
    /// Who calls, where that is not the primary agent.
    pub caller: Option<String>,
    /// In which part of an agent's work the call is asked for.
    pub phase: Option<Phase>,
    /// How far what asks for the call is trusted.
    pub trust: Trust,
    /// Whom the answer is for.
    pub audience: Audience,
    /// When it began, for the record.
    pub started_at: SystemTime,
    /// When it began, to measure by.
    pub started: Instant,
    /// None where no tool has that name.
    pub tool: Option<Arc<Tool>>,
    /// As they were given until the subjects are resolved, with absolute paths from then on.
    pub arguments: Arc<Value>,
    /// Larger arguments, which the others name by their place here.
    pub attachments: Vec<Content>,
    /// What it acts on.
    pub subjects: Vec<ResolvedSubject>,
}

/// Whom an answer is for, which decides how its text is shaped. Secrets are taken out for either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// A model: untrusted text stands behind a fence, and of a long text the model gets the ends,
    /// and the rest by `read_overflow`.
    #[default]
    Model,
    /// A person or a program, who takes the text whole and as it is.
    Person,
}

impl CallContext {
    /// The call as the gates see it. None where no tool was found.
    pub fn action(&self) -> Option<Action<'_>> {
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
    pub fn acts(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| !tool.annotations_with(&self.arguments).read_only)
    }
}
