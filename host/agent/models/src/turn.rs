//! The types of a request to a model and of its answer, independent of any format. Sessions on disk
//! keep these types.

use serde::{Deserialize, Serialize};

use crate::raw::RawJson;
use crate::wire_types::WireFormat;

/// One request to a model, with everything that the model is to know.
///
/// Providers keep what they have read of a beginning that they have seen before. So the system
/// text, the tools and the earlier messages of a session stay as they are, in their order, and a
/// new turn only adds messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The model's name, as the provider has it.
    pub model: String,
    /// The system text. Empty: none.
    pub system: String,
    /// The tools, in the order in which the model reads them.
    pub tools: Vec<ModelTool>,
    /// Whether the model has to answer without calls, although it knows the tools.
    #[serde(default)]
    pub forbid_calls: bool,
    /// The conversation.
    pub messages: Vec<TurnMessage>,
    /// The most tokens of the answer, thinking included. `None`: as many as the server allows, or
    /// 8,192 where the format has to name a number.
    pub max_output: Option<u32>,
    /// How much the model thinks before it answers.
    #[serde(default)]
    pub thinking: ThinkingLevel,
    /// The form of the answer's text, if it has to be JSON.
    #[serde(default)]
    pub output_schema: Option<OutputSchema>,
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelTool {
    /// Its name.
    pub name: String,
    /// Its description, for the model.
    pub description: String,
    /// The JSON Schema of its arguments. It is sent in these bytes.
    pub schema: RawJson,
}

/// How much a model thinks. Each format says it in its own words, and a model may not know them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThinkingLevel {
    /// The provider's default.
    #[default]
    Usual,
    /// No thinking.
    Off,
    /// An effort: `low`, `medium`, `high`, or another word that the provider knows.
    Effort(String),
    /// Most tokens of thinking. Formats without such a field leave the number out.
    Tokens(u32),
}

/// The form of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSchema {
    /// A name for it: letters, digits, `_` and `-`.
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
    /// Whether it failed.
    pub failed: bool,
}

/// The answer of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAnswer {
    /// The name of the provider that answered.
    pub provider: String,
    /// The format in which it answered. Opaque parts go back to the same provider in the same
    /// format, and to no other.
    pub format: WireFormat,
    /// The model that answered, as the server names it.
    pub model: String,
    /// Its parts, in order.
    pub blocks: Vec<Block>,
    /// The reason why it ended.
    pub stop: FinishReason,
    /// The tokens that it took.
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

/// A part of an answer. `raw` is the part in its format's own JSON where that says more than the
/// other fields, such as a signature. It goes back byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// See above.
        raw: Option<RawJson>,
    },
    /// Thinking, or the summary of it that the provider gives.
    Thinking {
        /// The text. Empty if the provider gives none.
        text: String,
        /// See above.
        raw: Option<RawJson>,
    },
    /// A call of a tool.
    Call(ModelCall),
    /// Anything else, which only the provider understands.
    Opaque(RawJson),
}

/// A call that a model made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    /// Its ID, unlike that of any other call of the turn and its answer.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments as they were sent. Nothing says that they are valid JSON.
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
    /// The answer reached the most tokens. Its last call may be incomplete.
    Length,
    /// The answer filled the model's context.
    ContextFull,
    /// The provider or the model refused. The text says why, if anything does.
    Refused(String),
    /// The provider paused. The conversation with this answer, sent again, goes on.
    Paused,
    /// Another reason, in the provider's words.
    Other(String),
}

/// The tokens of an answer, with one meaning in all formats. `None`: the server doesn't say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Of the request, without those that were read from the provider's cache or written to it.
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
    /// Returns these numbers, replaced by every number that a later statement of the server has.
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

/// An event while a model answers. Texts, names and arguments are the model's own: they are
/// bounded, but a terminal shouldn't show them as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// The request is sent again after a pause, because it failed before anything came.
    Retrying {
        /// How often it was sent so far.
        attempts: u32,
        /// The pause.
        wait: std::time::Duration,
        /// The reason why it failed.
        why: String,
    },
    /// More text.
    Text(String),
    /// More thinking.
    Thinking(String),
    /// A call begins. Its arguments are still to come.
    CallBegun(String),
    /// A call is complete.
    Call(ModelCall),
    /// The tokens of the answer.
    Usage(TokenUsage),
    /// The answer is complete.
    Finished(FinishReason),
}
