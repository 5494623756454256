//! The types of a request to a model and of its answer, independent of any wire format. Session
//! files contain these types.

use serde::{Deserialize, Serialize};

use crate::raw::RawJson;
use crate::wire_types::WireFormat;

/// One request to a model, with everything that the model should know.
///
/// Providers cache the start of a request. To use the cache, the system text, the tools and the
/// earlier messages of a session don't change, and a new turn only adds messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The provider's name for the model.
    pub model: String,
    /// The system text. Empty: there is no system text.
    pub system: String,
    /// The tools, in the order in which the model reads them.
    pub tools: Vec<ModelTool>,
    /// Whether the model must answer without calls, although it gets the tools.
    #[serde(default)]
    pub forbid_calls: bool,
    /// The conversation.
    pub messages: Vec<TurnMessage>,
    /// The most tokens of the answer, including thinking. `None`: the maximum of the server, or
    /// 8,192 if the format requires a number.
    pub max_output: Option<u32>,
    /// How much the model thinks before it answers.
    #[serde(default)]
    pub thinking: ThinkingLevel,
    /// The schema of the answer's text, if the text must be JSON.
    #[serde(default)]
    pub output_schema: Option<OutputSchema>,
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelTool {
    /// The tool's name.
    pub name: String,
    /// The tool's description for the model.
    pub description: String,
    /// The JSON Schema of the arguments. The schema is sent byte for byte.
    pub schema: RawJson,
}

/// How much a model thinks. Each format has its own words for the level, and a model may not
/// support them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThinkingLevel {
    /// The provider's default.
    #[default]
    Usual,
    /// No thinking.
    Off,
    /// An effort: `low`, `medium`, `high`, or another level of the provider.
    Effort(String),
    /// The most tokens of thinking. Formats without such a field ignore the number.
    Tokens(u32),
}

/// The form of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSchema {
    /// The schema's name, with letters, digits, `_` and `-`.
    pub name: String,
    /// The JSON Schema.
    pub schema: RawJson,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TurnMessage {
    /// From the person.
    User(Vec<Part>),
    /// An answer of a model.
    Model(ModelAnswer),
    /// The results of the calls of the answer before.
    Results(Vec<CallResult>),
}

/// A part of a message to a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Text.
    Text(String),
    /// An image.
    Image {
        /// `image/png` and the like.
        media_type: String,
        /// The bytes of the file, in base64.
        data: String,
    },
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    /// The call's ID.
    pub call: String,
    /// The tool's name.
    pub name: String,
    /// The content of the result.
    pub content: Vec<Part>,
    /// Whether the call failed.
    pub failed: bool,
}

/// The answer of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAnswer {
    /// The name of the provider that answered.
    pub provider: String,
    /// The format of the answer. Opaque parts are sent back only to the same provider in the same
    /// format.
    pub format: WireFormat,
    /// The server's name for the model that answered.
    pub model: String,
    /// The parts of the answer, in order.
    pub blocks: Vec<Block>,
    /// The reason why the answer ended.
    pub stop: FinishReason,
    /// The tokens of the request and the answer.
    pub usage: TokenUsage,
}

impl ModelAnswer {
    /// Returns the calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ModelCall> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the text, without the thinking.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// A part of an answer.
///
/// `raw` is the part as JSON of the wire format. It is present if it has more data than the other
/// fields, such as a signature. It is sent back byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// See above.
        raw: Option<RawJson>,
    },
    /// Thinking, or the provider's summary of the thinking.
    Thinking {
        /// The text. Empty if the provider doesn't give the text.
        text: String,
        /// See above.
        raw: Option<RawJson>,
    },
    /// A call of a tool.
    Call(ModelCall),
    /// Any other part, which only the provider can read.
    Opaque(RawJson),
}

/// A call that a model made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The call's ID, unique among all calls of the turn and its answer.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments as they were sent. They may not be valid JSON.
    pub arguments: String,
    /// See [`Block`].
    pub raw: Option<RawJson>,
}

/// The reason why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// The answer is complete.
    End,
    /// The model waits for the results of its calls.
    Calls,
    /// The answer reached its token limit. Its last call may be incomplete.
    Length,
    /// The answer filled the model's context.
    ContextFull,
    /// The provider or the model refused. The text says why, if anything does.
    Refused(String),
    /// The provider paused. Sending the conversation with this answer continues the answer.
    Paused,
    /// Another reason, in the provider's words.
    Other(String),
}

/// The tokens of an answer, with the same meaning in all formats. `None`: the server doesn't report
/// the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens of the request, without the tokens that were read from the provider's cache or
    /// written to it.
    pub input: Option<u64>,
    /// Of the request, read from the cache.
    pub cache_read: Option<u64>,
    /// Of the request, written to the cache.
    pub cache_written: Option<u64>,
    /// Of the answer, thinking included.
    pub output: Option<u64>,
    /// The part of `output` that was thinking.
    pub reasoning: Option<u64>,
}

impl TokenUsage {
    /// Returns these numbers. Each number in `later`, a later report of the server, replaces the
    /// earlier number.
    #[must_use]
    pub(crate) fn updated(self, later: Self) -> Self {
        Self {
            input: later.input.or(self.input),
            cache_read: later.cache_read.or(self.cache_read),
            cache_written: later.cache_written.or(self.cache_written),
            output: later.output.or(self.output),
            reasoning: later.reasoning.or(self.reasoning),
        }
    }

    /// Returns the number of all tokens of the request, or `None` if the server gave no number.
    pub fn request(&self) -> Option<u64> {
        let parts = [self.input, self.cache_read, self.cache_written];
        parts.iter().flatten().copied().reduce(u64::saturating_add)
    }
}

/// An event while a model answers. The model chooses texts, names and arguments. Their length is
/// limited, but a terminal shouldn't show them without escaping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// The request is sent again after a pause, because it failed before the answer started.
    Retrying {
        /// How often the request was sent so far.
        attempts: u32,
        /// The pause.
        wait: std::time::Duration,
        /// The reason why the request failed.
        why: String,
    },
    /// More text.
    Text(String),
    /// More thinking.
    Thinking(String),
    /// A call starts. Its arguments follow later.
    CallBegun(String),
    /// A call is complete.
    Call(ModelCall),
    /// The tokens of the answer.
    Usage(TokenUsage),
    /// The answer is complete.
    Finished(FinishReason),
}
