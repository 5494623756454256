//! The names and options of the formats, the caps of an answer, and why an answer can't be used.

use std::fmt;

use serde::{Deserialize, Serialize};
use toolhold_contract::text::{cut, neutral_line};

use crate::raw::{Fields, RawJson};

/// Bytes of a server's own words in an error.
const WORDS: usize = 500;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireFormat {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Ollama's chat.
    Ollama,
}

/// How a request marks the text that the provider should cache. Only one format needs marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// The server finds the end of the conversation by itself. Nothing that was sent changes.
    #[default]
    Automatic,
    /// Marks in the messages, which move with the conversation. This is for servers without
    /// automatic caching.
    Marks,
    /// Nothing is marked.
    Off,
}

/// The options of a provider, apart from the turn.
#[derive(Clone, Debug, Default)]
pub struct WireOptions {
    /// The provider's name. Opaque parts of other providers are left out.
    pub provider: String,
    /// Further fields of the body, as written in the configuration.
    pub fields: Vec<(String, RawJson)>,
    /// How the cache is asked for.
    pub caching: Caching,
    /// Whether the most tokens are called `max_completion_tokens`, as only OpenAI itself does.
    pub completion_tokens: bool,
    /// Whether thinking is left out of the request, because some servers refuse it.
    pub drop_thinking: bool,
    /// The size of the context that a local server should make room for.
    pub context: Option<u64>,
}

/// A request of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireRequest {
    /// Below the base URL of the format.
    pub path: &'static str,
    /// The headers except the header with the key.
    pub headers: Vec<(&'static str, &'static str)>,
    /// The body, in JSON.
    pub body: Vec<u8>,
}

/// The limits of one answer. The stored part of an answer is at most a few times `answer` and
/// `event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireCaps {
    /// The most bytes of one line and of one event. The last event of the Responses API repeats the
    /// whole answer, and the request's tools and system text.
    pub event: usize,
    /// The most bytes of the arguments of one call.
    pub arguments: usize,
    /// The most bytes that are stored.
    pub answer: usize,
    /// The most bytes of the stream. A token can take hundreds of bytes of the stream.
    pub stream: u64,
    /// Blocks.
    pub blocks: usize,
    /// Calls.
    pub calls: usize,
}

impl Default for WireCaps {
    fn default() -> Self {
        Self {
            event: 8 << 20,
            arguments: 4 << 20,
            answer: 32 << 20,
            stream: 256 << 20,
            blocks: 2048,
            calls: 128,
        }
    }
}

/// The reason why an answer can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The answer reached a cap.
    #[error("{what} is longer than {limit} bytes, the limit")]
    Cap {
        /// The name of the part that is too long.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The answer has too many parts of one kind.
    #[error("there are more than {limit} {what}, the limit")]
    Count {
        /// The name of these parts.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The answer isn't of the format.
    #[error("its answer can't be read: {0}")]
    Malformed(String),
    /// The answer ended before it was complete.
    #[error("its answer ended before it was complete")]
    Cut,
    /// The server reports an error.
    #[error("{0}")]
    Server(ServerError),
}

impl WireError {
    pub(crate) fn cap(what: &'static str, limit: u64) -> Self {
        Self::Cap { what, limit }
    }

    pub(crate) fn count(what: &'static str, limit: usize) -> Self {
        Self::Count { what, limit }
    }
}

/// An error that a server reported. Each field is one line, truncated if it is long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    /// The kind or code of the error, such as `overloaded_error`.
    pub kind: String,
    /// The message of the error.
    pub message: String,
}

impl ServerError {
    /// Finds the error in a body. Servers use several forms for errors.
    pub(crate) fn find(text: &str) -> Option<Self> {
        Self::from_fields(&Fields::parse_first(text)?)
    }

    pub(crate) fn from_fields(fields: &Fields<'_>) -> Option<Self> {
        if let Some(error) = fields.object("error") {
            return Some(Self::from_error_object(&error));
        }
        let error = fields.some_text("error").or_else(|| fields.some_text("detail"));
        if let Some(message) = error {
            return Some(Self { kind: String::new(), message: one_line(&message) });
        }
        let message = fields.some_text("message")?;
        let code = fields.some_text("code").or_else(|| fields.some_text("type"));
        Some(Self { kind: one_line(&code.unwrap_or_default()), message: one_line(&message) })
    }

    /// Reads the object in the field `error`.
    fn from_error_object(error: &Fields<'_>) -> Self {
        // Some gateways pass on the body of the other server as the message.
        let message = error.text("message").unwrap_or_default();
        if let Some(inner) = Self::find(message.trim())
            && !inner.message.is_empty()
        {
            return inner;
        }

        let word = ["code", "type", "status"].iter().find_map(|name| error.some_text(name));
        let code = match word {
            Some(word) => word.into_owned(),
            None => error.number("code").map(|code| code.to_string()).unwrap_or_default(),
        };
        let kind = match error.some_text("type") {
            // `type` alone is too general, and `code` alone is often a number.
            Some(kind) if kind != code => format!("{kind} {code}"),
            _ => code,
        };
        Self { kind: one_line(kind.trim()), message: one_line(&message) }
    }
}

fn one_line(text: &str) -> String {
    neutral_line(cut(text, WORDS))
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.as_str(), self.message.as_str()) {
            ("", "") => f.write_str("it reports an error without a message"),
            (kind, "") => write!(f, "it reports the error {kind}"),
            ("", message) => f.write_str(message),
            (kind, message) => write!(f, "{message} ({kind})"),
        }
    }
}
