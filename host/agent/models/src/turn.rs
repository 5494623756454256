//! The request to a model and its answer, in no wire format. Session files contain these types.

use serde::{Deserialize, Serialize};

use crate::raw::RawJson;
use crate::wire_types::WireFormat;

/// One request to a model.
///
/// Providers cache the start of a request. In a session, the system text, the tools and the earlier
/// messages therefore stay unchanged, and a new turn only adds messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The provider's name for the model.
    pub model: String,
    /// The system text. It may be empty.
    pub system: String,
    /// The tools, in the order in which the model reads them.
    pub tools: Vec<ModelTool>,
    /// Whether the model must not call tools, although it gets the tools.
    #[serde(default)]
    pub forbid_calls: bool,
    /// The conversation.
    pub messages: Vec<TurnMessage>,
    /// The most tokens of the answer, including thinking. `None` means the server's maximum, or
    /// 8,192 if the format requires a number.
    pub max_output: Option<u32>,
    /// How much the model may think.
    #[serde(default)]
    pub thinking: ThinkingLevel,
    /// The schema of the answer, if the answer must be JSON.
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
    /// The JSON Schema of the arguments. It is sent byte for byte.
    pub schema: RawJson,
}

/// The amount of thinking. Models don't support every level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThinkingLevel {
    /// The provider's default.
    #[default]
    Usual,
    /// No thinking.
    Off,
    /// An effort: `low`, `medium`, `high`, or another word of the provider.
    Effort(String),
    /// The most tokens of thinking. Some formats ignore the number.
    Tokens(u32),
}

/// The JSON Schema of an answer.
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
    /// A message of the user.
    User(Vec<Part>),
    /// An answer of a model.
    Model(ModelAnswer),
    /// The results of the calls in the previous answer.
    Results(Vec<CallResult>),
}

/// A part of a message to a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// A text.
    Text(String),
    /// An image.
    Image {
        /// The media type, such as `image/png`.
        media_type: String,
        /// The file in base64.
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
    /// The server's name for the model.
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

    /// Returns the text of the answer, without the thinking and the calls.
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
/// `raw` is the part's JSON in the wire format, if it has more data than the other fields, such as
/// a signature. `raw` is sent back byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Block {
    /// A text.
    Text {
        /// The text.
        text: String,
        /// See [`Block`].
        raw: Option<RawJson>,
    },
    /// Thinking, or the provider's summary of the thinking.
    Thinking {
        /// The text. Empty if the provider doesn't show it.
        text: String,
        /// See [`Block`].
        raw: Option<RawJson>,
    },
    /// A call of a tool.
    Call(ModelCall),
    /// A part that only the provider can read.
    Opaque(RawJson),
}

/// A call by a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The call's ID, unique in the turn and its answer.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them. They may be invalid JSON.
    pub arguments: String,
    /// The call as JSON of the wire format.
    pub raw: Option<RawJson>,
}

/// The reason why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// The answer is complete.
    End,
    /// The model waits for the results of its calls.
    Calls,
    /// The answer reached its limit of tokens. The last call may be incomplete.
    Length,
    /// The answer filled the model's context.
    ContextFull,
    /// The provider or the model refused. The text is the reason, or empty if there is no reason.
    Refused(String),
    /// The provider paused. The answer continues after it is sent back.
    Paused,
    /// Another reason, as the provider names it.
    Other(String),
}

/// The tokens of a request and its answer. `None` means that the server doesn't report the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// The request's tokens that weren't read from or written to the provider's cache.
    pub input: Option<u64>,
    /// The request's tokens that were read from the cache.
    pub cache_read: Option<u64>,
    /// The request's tokens that were written to the cache.
    pub cache_written: Option<u64>,
    /// The answer's tokens, including thinking.
    pub output: Option<u64>,
    /// The tokens of thinking. They are part of `output`.
    pub reasoning: Option<u64>,
}

impl TokenUsage {
    /// Returns the numbers of a later report. A number that the later report leaves out stays
    /// unchanged.
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

    /// Returns the total tokens of the request. Returns `None` if no number is known.
    pub fn request(&self) -> Option<u64> {
        let parts = [self.input, self.cache_read, self.cache_written];
        parts.iter().flatten().copied().reduce(u64::saturating_add)
    }
}

/// An event of an answer that is arriving. The model chooses texts, names and arguments, so a
/// terminal must escape them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// The request failed before its answer started, and is sent again after `wait`.
    Retrying {
        /// The number of attempts so far.
        attempts: u32,
        /// The wait before the next attempt.
        wait: std::time::Duration,
        /// The reason of the failure.
        why: String,
    },
    /// More text.
    Text(String),
    /// More thinking.
    Thinking(String),
    /// A call starts. The text is the tool's name. The arguments follow.
    CallBegun(String),
    /// A call is complete.
    Call(ModelCall),
    /// The tokens of the answer.
    Usage(TokenUsage),
    /// The answer is complete.
    Finished(FinishReason),
}
