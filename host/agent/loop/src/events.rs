//! The events of an agent's session. `toolhold run --json` and the screen get the same events.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_core::{FilterSummary, Scope};
use toolhold_models::Part;

use crate::ending::{Spent, TaskEnd};

/// An event. `toolhold run --json` writes each as a line of JSON, in this form; a screen gets the
/// same.
///
/// A session that is replayed gives the same events, except for the parts of answers: it gives each
/// text in one part; and without requests, live output, questions and waiting messages, which pass
/// with their moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// A session begins or goes on.
    Session {
        /// The session's ID.
        id: String,
        /// The working directory.
        directory: String,
    },
    /// The person set a task.
    Task {
        /// The text.
        text: String,
        /// The table of `[providers]`.
        provider: String,
        /// The model that is asked.
        model: String,
        /// Tokens that the model can read in one request.
        context: u64,
    },
    /// The model has a request, and reads it.
    Asking {
        /// About how many tokens it reads.
        tokens: u64,
        /// About how many of them describe tools.
        tools: u64,
    },
    /// A part of the text that the model is writing.
    TextPart {
        /// The part.
        text: String,
    },
    /// A part of what the model is thinking.
    ThinkingPart {
        /// The part.
        text: String,
    },
    /// The model begins to write a call of this tool.
    CallPart {
        /// The tool's name, as the model writes it.
        tool: String,
    },
    /// The model has answered.
    Answer {
        /// The whole text, without thinking and without calls.
        text: String,
        /// The number of calls in the answer.
        calls: usize,
        /// The tokens and costs of the answer.
        spent: Spent,
    },
    /// A call begins.
    Call {
        /// The call's ID in this session.
        id: String,
        /// The tool's name, as the model wrote it.
        tool: String,
        /// The arguments.
        arguments: Value,
    },
    /// A running call writes output, or reports its progress.
    CallOutput {
        /// The call's ID in this session.
        id: String,
        /// The text, which may end in the middle of a line.
        text: String,
        /// Bytes before the text that came too fast to be shown.
        #[serde(default, skip_serializing_if = "is_zero")]
        left_out: u64,
    },
    /// A call waits for a person's approval.
    Question {
        /// The question's ID.
        id: String,
        /// The call's ID in this session.
        call: String,
        /// The agent that makes the call. `None`: the primary agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<String>,
        /// The tool's full name.
        tool: String,
        /// The paths, commands and URLs that the call acts on.
        acts_on: Vec<String>,
        /// The rule that asks.
        rule: String,
        /// The place of the rule.
        place: String,
        /// Everything that an approval would allow, and why approval is needed. The text is for
        /// people.
        text: String,
        /// The change of a file, as a unified diff.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
        /// The text that a permanent approval would write, and the place of that text. `None`: a
        /// permanent approval isn't possible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always: Option<String>,
        /// The approvals of more calls than this one. Empty: only this call can be approved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        wider: Vec<WiderApproval>,
    },
    /// A tool asks the person a question of its own.
    Inquiry {
        /// The question's ID.
        id: String,
        /// The call's ID in this session.
        call: String,
        /// The asking tool and its question, for people.
        text: String,
        /// The JSON Schema of the answer. `None`: the person opens an address instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<Value>,
    },
    /// A question is answered, or nobody waits for the answer any more.
    Answered {
        /// The question's ID.
        id: String,
        /// The answer.
        answer: QuestionAnswer,
        /// The person or program that answered. Empty: nobody answered.
        by: String,
        /// The person's reason for a no, or the reason why nobody answered.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// A message of the person waits until the task ends.
    Queued {
        /// The text.
        text: String,
    },
    /// A call has its result.
    Result {
        /// The call's ID in this session.
        id: String,
        /// The tool's name.
        tool: String,
        /// Whether the call failed.
        failed: bool,
        /// The category of a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
        /// The text for the model, without images.
        text: String,
        /// The parts that filters left out. `None`: nothing was left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filtered: Option<FilterSummary>,
    },
    /// Toolhold did something by itself: it waited, left something out, or found a problem.
    Notice {
        /// The text.
        text: String,
    },
    /// The task ended.
    Ended {
        /// How.
        #[serde(flatten)]
        ending: TaskEnd,
        /// The tokens and costs of the task.
        spent: Spent,
        /// The tokens and costs of the whole session so far.
        session: Spent,
    },
}

/// An approval of more calls than the one that asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WiderApproval {
    /// Which calls, and for how long.
    pub scope: Scope,
    /// The approved calls, or for a permanent approval the rule that is written, for people.
    pub text: String,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionAnswer {
    /// Approved, for this call.
    Once,
    /// Approved, also for equal calls in the session.
    Session,
    /// Approved permanently: a rule was written.
    Always,
    /// The person gave the answer that a tool asked for.
    Given,
    /// Refused.
    No,
    /// Nobody answered.
    Unanswered,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Receives the events of a session. It must not block.
pub trait RunEvents: Send {
    /// An event.
    fn event(&mut self, event: RunEvent);
}

impl<F: FnMut(RunEvent) + Send> RunEvents for F {
    fn event(&mut self, event: RunEvent) {
        self(event);
    }
}

/// The text parts, joined by line ends.
pub(crate) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
