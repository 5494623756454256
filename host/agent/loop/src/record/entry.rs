//! The kinds of entries in a session file. Each entry is one line of JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolhold_core::{Definition, FilterSummary, Remainder};
use toolhold_models::{CallResult, ModelAnswer, Part, TokenUsage};

use crate::ending::{Spent, TaskEnd};
use crate::events::{RunEvent, text_of};
use crate::selection::IncludedTool;
use crate::settings::AgentSettings;

/// Bytes of a result's text in an event.
const MAX_SHOWN: usize = 64 * 1024;

/// One line of a session's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEntry {
    /// The session started. This is the first entry.
    Began(Began),
    /// The person sets a task, or says more.
    Task(Task),
    /// The model answered.
    Answer(ModelAnswer),
    /// A call of the last answer has its result.
    Result(RecordedResult),
    /// Toolhold said something to the model.
    Note(String),
    /// Toolhold said something to the person.
    Notice(String),
    /// The tokens of a summary of a result, or of a summary that can't be used.
    Summary(TokenUsage),
    /// A call's arguments didn't match the tool's schema, so the correcting model got them.
    Corrected(Corrected),
    /// Old results were left out of the model's context.
    Pruned(Vec<Replacement>),
    /// The older part of the conversation was summarised.
    Compressed(Compressed),
    /// A sub-agent did work for this agent.
    Delegated(Delegated),
    /// The task ended.
    Ended(Ended),
}

/// The begin of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// The version of the file's form.
    pub version: u32,
    /// The session's ID.
    pub id: String,
    /// The working directory.
    pub directory: String,
    /// When the session started, in seconds since 1970.
    pub at: u64,
    /// The session of the agent that delegated the work to this session. `None`: a person started
    /// the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// A task of the person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The text and images.
    pub parts: Vec<Part>,
    /// The settings of the agent.
    pub settings: AgentSettings,
    /// The tools that the model may call in its text. `None`: the same tools as in the last task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Arc<Definition>>>,
    /// The tools that were chosen for the session, with the reasons. `None`: all tools are offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Vec<IncludedTool>>,
}

/// The result of a call, and other facts about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedResult {
    /// The result, as the model reads it.
    pub result: CallResult,
    /// The category of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The number of calls that started together, including this call. 0: this call started
    /// together with an earlier call that has the number.
    pub begun: usize,
    /// Where the part that was left out can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Remainder>,
    /// The parts that filters left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered: Option<FilterSummary>,
}

impl RecordedResult {
    /// Returns the entry that replaces a result that was left out.
    pub(super) fn left_out(result: CallResult) -> Self {
        Self { result, category: None, begun: 1, rest: None, filtered: None }
    }

    /// The event of the result.
    pub(crate) fn event(&self) -> RunEvent {
        RunEvent::Result {
            id: self.result.call.clone(),
            tool: self.result.name.clone(),
            failed: self.result.failed,
            category: self.category.clone(),
            text: toolhold_core::text::cut(&text_of(&self.result.content), MAX_SHOWN).to_owned(),
            filtered: self.filtered.clone(),
        }
    }
}

/// The outcome of correcting the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Corrected {
    /// The call's ID.
    pub call: String,
    /// The same number as in the call's result, which is recorded later.
    pub begun: usize,
    /// The notice for the person.
    pub notice: String,
    /// The tokens of the answer. `None`: there was no answer.
    pub usage: Option<TokenUsage>,
}

/// A short result that replaces an old result in the model's context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The number of the result's entry. The first entry is 0.
    pub entry: usize,
    /// The short result. A long session is read without the old entry.
    pub result: CallResult,
}

/// A summary of the older part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compressed {
    /// The number of the last entry that the summary replaces. The first entry is 0.
    pub through: usize,
    /// All earlier summaries of the session, followed by the new summary.
    pub summary: String,
    /// The reason for the summary.
    pub method: CompressionMethod,
    /// The tokens of the summary.
    pub usage: TokenUsage,
}

/// The reason why a conversation was summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompressionMethod {
    /// The conversation had come near the end of the model's context.
    Triggered,
    /// The person requested the summary.
    Manual,
    /// The model called `compress_context`.
    Autonomous,
}

/// Work that was handed to another agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delegated {
    /// The session of the other agent.
    pub session: String,
    /// The tokens and costs of the work.
    pub spent: Spent,
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// How the task ended.
    pub ending: TaskEnd,
    /// The tokens and costs of the whole session so far.
    pub spent: Spent,
}
