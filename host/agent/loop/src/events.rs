//! The events of an agent's session. `toolhold run --json` and the screen get the same events.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_core::{FilterSummary, Scope};
use toolhold_models::Part;

use crate::ending::{Spent, TaskEnd};

/// An event of a session. `toolhold run --json` writes each event as one line of JSON.
///
/// A replay sends the text of each answer in one part, and no requests, live output, questions or
/// waiting messages.
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
        /// The name of the provider in `[providers]`.
        provider: String,
        /// The model that is asked.
        model: String,
        /// The number of tokens that the model can read in one request.
        context: u64,
    },
    /// A request is sent to the model.
    Asking {
        /// The estimated tokens of the request.
        tokens: u64,
        /// The estimated tokens of the tools' descriptions.
        tools: u64,
    },
    /// A part of the text that the model is writing.
    TextPart {
        /// The part.
        text: String,
    },
    /// A part of the text in which the model thinks.
    ThinkingPart {
        /// The part.
        text: String,
    },
    /// The model starts to write a call.
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
        /// The text. It may end in the middle of a line.
        text: String,
        /// The number of bytes before the text that were dropped because the output came too fast.
        #[serde(default, skip_serializing_if = "is_zero")]
        left_out: u64,
    },
    /// A call waits for a person's approval.
    Question {
        /// The question's ID.
        id: String,
        /// The call's ID in this session.
        call: String,
        /// The agent that makes the call, or `None` for the primary agent.
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
        /// The calls that an approval would allow, and the reason why approval is needed.
        text: String,
        /// The change of a file, as a unified diff.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
        /// The rule that a permanent approval writes, and the file of the rule. `None` if the call
        /// can't be approved permanently.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always: Option<String>,
        /// Approvals that also cover other calls. Empty if only this call can be approved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        wider: Vec<WiderApproval>,
    },
    /// A tool asks the person a question.
    Inquiry {
        /// The question's ID.
        id: String,
        /// The call's ID in this session.
        call: String,
        /// The name of the tool and its question, for people.
        text: String,
        /// The JSON Schema of the answer, or `None` if the person opens a URL instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<Value>,
    },
    /// A question was answered, or the call stopped waiting.
    Answered {
        /// The question's ID.
        id: String,
        /// The answer.
        answer: QuestionAnswer,
        /// The person or program that answered. Empty if nobody answered.
        by: String,
        /// The person's reason for a refusal, or the reason for a missing answer.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// A message of the person waits for the end of the task.
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
        /// The parts that filters left out, or `None` if they left out nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filtered: Option<FilterSummary>,
    },
    /// Toolhold waited, left something out, or found a problem.
    Notice {
        /// The text.
        text: String,
    },
    /// The task ended.
    Ended {
        /// How the task ended.
        #[serde(flatten)]
        ending: TaskEnd,
        /// The tokens and costs of the task.
        spent: Spent,
        /// The tokens and costs of the whole session so far.
        session: Spent,
    },
}

/// An approval that also covers calls other than the call in question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WiderApproval {
    /// The scope and duration of the approval.
    pub scope: Scope,
    /// The approved calls, for people. For a permanent approval, the rule that is written.
    pub text: String,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionAnswer {
    /// Approved, for this call.
    Once,
    /// Approved for equal calls in the session.
    Session,
    /// Approved permanently: a rule was written.
    Always,
    /// The person answered the tool's question.
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

/// Receives the events of a session. Implementations must not block.
pub trait RunEvents: Send {
    /// Receives an event.
    fn event(&mut self, event: RunEvent);
}

impl<F: FnMut(RunEvent) + Send> RunEvents for F {
    fn event(&mut self, event: RunEvent) {
        self(event);
    }
}

/// Joins the text parts with line ends. Images are left out.
pub(crate) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
