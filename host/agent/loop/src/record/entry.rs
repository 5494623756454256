//! The kinds of entries in a session's file, each one line of JSON.

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
    /// The session begins: the first entry.
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
    /// A call whose arguments didn't match the tool's schema was sent to the model that corrects
    /// them.
    Corrected(Corrected),
    /// Old results were left out of the model's context.
    Pruned(Vec<Replacement>),
    /// The older part of the conversation was summarised.
    Compressed(Compressed),
    /// Another agent did work for this one.
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
    /// When it began, in seconds since 1970.
    pub at: u64,
    /// The session of the agent that handed the work to this session. `None`: a person did.
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
    /// The tools that the model may call in its text. `None`: the tools of the task before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Arc<Definition>>>,
    /// The tools that were chosen for the session, with their reasons. `None`: all are offered.
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
    /// The number of calls that began together with this one, this one included. 0: it began with
    /// one before it.
    pub begun: usize,
    /// Where the part that was left out can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Remainder>,
    /// The parts that filters left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered: Option<FilterSummary>,
}

impl RecordedResult {
    /// The entry in place of a result that was left out.
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
    /// The same as in the call's result, which comes later.
    pub begun: usize,
    /// The notice for the person.
    pub notice: String,
    /// The tokens of the answer. `None`: there was no answer.
    pub usage: Option<TokenUsage>,
}

/// A short result that the model reads in place of an old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The number of the result's entry; the first entry is 0.
    pub entry: usize,
    /// The short result. A long session is read without the old entry.
    pub result: CallResult,
}

/// A summary of the older part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compressed {
    /// The number of the last entry that the summary replaces; the first entry is 0.
    pub through: usize,
    /// The text: all earlier summaries of the session, and the new one behind them.
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
    /// The person wanted it.
    Manual,
    /// The model wanted it: it called `compress_context`.
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
    /// How it ended.
    pub ending: TaskEnd,
    /// The tokens and costs of the whole session so far.
    pub spent: Spent,
}
