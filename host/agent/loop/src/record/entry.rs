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
    /// A summary took this: one of a result, or one that can't be used.
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
    /// The session of the agent that handed the work to this one. `None`: a person did.
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
    /// The tools that the model may call in its text. `None`: those of the task before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Arc<Definition>>>,
    /// The tools that were chosen for the session, with their reasons. `None`: all are offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Vec<IncludedTool>>,
}

/// The result of a call, and what else is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedResult {
    /// What the model is told.
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
    /// What filters left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered: Option<FilterSummary>,
}

impl RecordedResult {
    /// What stands for a result that was left out.
    pub(super) fn left_out(result: CallResult) -> Self {
        Self { result, category: None, begun: 1, rest: None, filtered: None }
    }

    /// The event of it.
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

/// What came of correcting the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Corrected {
    /// The call's ID.
    pub call: String,
    /// As in its result, which comes later.
    pub begun: usize,
    /// What the person is told.
    pub notice: String,
    /// What the answer took. `None`: there was none.
    pub usage: Option<TokenUsage>,
}

/// What the model is told instead of an old result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The number of the result's entry; the first entry is 0.
    pub entry: usize,
    /// The result, with this text. A long session is read without the entry itself.
    pub result: CallResult,
}

/// A summary of the older part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compressed {
    /// The number of the last entry that it stands for; the first entry is 0.
    pub through: usize,
    /// The text: all earlier summaries of the session, and the new one behind them.
    pub summary: String,
    /// Why it was made.
    pub method: CompressionMethod,
    /// What the summary took.
    pub usage: TokenUsage,
}

/// Why a conversation was summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompressionMethod {
    /// It had come near the end of the model's context.
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
    /// What it took.
    pub spent: Spent,
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// How it ended.
    pub ending: TaskEnd,
    /// What the whole session has taken so far.
    pub spent: Spent,
}
