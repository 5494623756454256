//! The kinds of entries in a session file. Each entry is one line of JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolhold_core::{Definition, FilterSummary, Remainder};
use toolhold_models::{CallResult, ModelAnswer, Part, TokenUsage};

use crate::ending::{Spent, TaskEnd};
use crate::events::{RunEvent, text_of};
use crate::selection::IncludedTool;
use crate::settings::AgentSettings;

/// Most bytes of a result's text in an event.
const MAX_SHOWN: usize = 64 * 1024;

/// One line of a session file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEntry {
    /// The session started. This is the first entry.
    Began(Began),
    /// The person set a task, or sent another message.
    Task(Task),
    /// The model answered.
    Answer(ModelAnswer),
    /// A call of the last answer got its result.
    Result(RecordedResult),
    /// Toolhold said something to the model.
    Note(String),
    /// Toolhold said something to the person.
    Notice(String),
    /// The tokens of a request for a summary of a result, or of an unusable summary.
    Summary(TokenUsage),
    /// A model was asked to correct the arguments of a call.
    Corrected(Corrected),
    /// Old results were left out of the model's context.
    Pruned(Vec<Replacement>),
    /// The older part of the conversation was summarised.
    Compressed(Compressed),
    /// The person went back to before an earlier message.
    Rewound(Rewound),
    /// A sub-agent did work for this agent.
    Delegated(Delegated),
    /// The task ended.
    Ended(Ended),
}

/// The version of the file format of new sessions, and the only version that is read.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The start of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// The version of the file format.
    pub version: u32,
    /// The session's ID.
    pub id: String,
    /// The working directory.
    pub directory: String,
    /// When the session started, in seconds since 1970.
    pub at: u64,
    /// The session of the agent that delegated this session, or `None` if a person started it.
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
    /// The tools that the model may call in its text, or `None` if they are those of the last task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Arc<Definition>>>,
    /// The tools that were chosen for the session, with the reasons. `None` if all tools are
    /// offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Vec<IncludedTool>>,
    /// The start of the turn, in nanoseconds since 1970. The saved changes of the turn have the
    /// same number. `None` if an earlier version recorded the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedResult {
    /// The result, as the model reads it.
    pub result: CallResult,
    /// The category of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The number of calls that started together, this call included. Only the first entry about
    /// one of these calls has the number. The others have 0.
    pub begun: usize,
    /// The place where the model can read the cut part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Remainder>,
    /// The parts that filters left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered: Option<FilterSummary>,
}

impl RecordedResult {
    /// Makes the entry of a pruned result.
    pub(super) fn left_out(result: CallResult) -> Self {
        Self { result, category: None, begun: 1, rest: None, filtered: None }
    }

    /// Returns the event that shows the result to the person. Long text is cut.
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

/// The result of correcting a call's arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Corrected {
    /// The call's ID.
    pub call: String,
    /// The same number as in [`RecordedResult::begun`]. If it is in this entry, the later result of
    /// the call has 0.
    pub begun: usize,
    /// The notice for the person.
    pub notice: String,
    /// The tokens of the answer, or `None` if there was no answer.
    pub usage: Option<TokenUsage>,
}

/// A short result that replaces an old result in the model's context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The number of the entry with the old result. The first entry is 0.
    pub entry: usize,
    /// The short result.
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

/// The trigger of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompressionMethod {
    /// The context was nearly full.
    Triggered,
    /// The person requested the summary.
    Manual,
    /// The model called `compress_context`.
    Autonomous,
}

/// A step back in the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewound {
    /// The number of the first removed entry. The first entry of the file is 0.
    pub to: usize,
    /// The notice for the person.
    pub notice: String,
}

/// Work that was delegated to another agent.
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
