//! The wire formats, their options, and the limits and errors of an answer.

use std::fmt;

use serde::{Deserialize, Serialize};
use toolhold_contract::text::{cut, neutral_line};

use crate::raw::{Fields, RawJson};

/// The most bytes of a server's message. Longer messages are cut.
const MAX_MESSAGE_BYTES: usize = 500;

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireFormat {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Chat Completions API.
    Chat,
    /// OpenAI's Responses API.
    Responses,
    /// Ollama's chat API.
    Ollama,
}

/// How a request marks the parts that the server caches. Only the format Messages has marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// The server finds the end of the conversation itself. Sent messages don't change.
    #[default]
    Automatic,
    /// Marks in the messages, which move with the conversation, for servers without automatic
    /// caching.
    Marks,
    /// No marks.
    Off,
}

/// A provider's options.
#[derive(Clone, Debug, Default)]
pub struct WireOptions {
    /// The provider's name. Opaque parts of other providers are left out.
    pub provider: String,
    /// Further fields of the body, from the configuration.
    pub fields: Vec<(String, RawJson)>,
    /// How requests use the provider's cache.
    pub caching: Caching,
    /// Whether the limit of tokens has OpenAI's name `max_completion_tokens`.
    pub completion_tokens: bool,
    /// Whether thinking is left out of requests, because some servers refuse thinking.
    pub drop_thinking: bool,
    /// The context size that a local server reserves.
    pub context: Option<u64>,
}

/// A request of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireRequest {
    /// The path below the base URL.
    pub path: &'static str,
    /// The headers, without the key.
    pub headers: Vec<(&'static str, &'static str)>,
    /// The JSON body.
    pub body: Vec<u8>,
}

/// The limits of an answer. An answer that exceeds a limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireCaps {
    /// The most bytes of a line and of an event. In the format Responses, the last event repeats
    /// the whole answer, and the tools and the system text of the request.
    pub event: usize,
    /// The most bytes of the arguments of one call.
    pub arguments: usize,
    /// The most stored bytes of an answer.
    pub answer: usize,
    /// The most bytes of the stream. One token may take hundreds of bytes.
    pub stream: u64,
    /// The most blocks of an answer.
    pub blocks: usize,
    /// The most calls of an answer.
    pub calls: usize,
}

impl Default for WireCaps {
    fn default() -> Self {
        // `1 << 20` is 1 MiB.
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

/// The error of an unusable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A part of the answer has too many bytes.
    #[error("{what} is longer than {limit} bytes, the limit")]
    Cap {
        /// The name of the part that is too long.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The answer has too many blocks or calls.
    #[error("the model sent more than {limit} {what}, the limit")]
    Count {
        /// The name of the parts.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The answer isn't in the format.
    #[error("the model's answer can't be read: {0}")]
    Malformed(String),
    /// The answer ended before it was complete.
    #[error("the model's answer ended before it was complete")]
    Cut,
    /// The server reported an error.
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

/// An error that a server reported. Long texts are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    /// The kind or code of the error, such as `overloaded_error`.
    pub kind: String,
    /// The message of the error.
    pub message: String,
}

impl ServerError {
    /// Finds the error in a body. Errors of servers have several forms.
    pub(crate) fn find(text: &str) -> Option<Self> {
        Self::from_fields(&Fields::parse_first(text)?)
    }

    /// Reads an error from one of the fields that servers use, or returns `None` if there is no
    /// error.
    pub(crate) fn from_fields(fields: &Fields<'_>) -> Option<Self> {
        if let Some(error) = fields.object("error") {
            return Some(Self::from_error_object(&error));
        }
        let error = fields.nonempty_text("error").or_else(|| fields.nonempty_text("detail"));
        if let Some(message) = error {
            return Some(Self { kind: String::new(), message: one_line(&message) });
        }
        let message = fields.nonempty_text("message")?;
        let code = fields.nonempty_text("code").or_else(|| fields.nonempty_text("type"));
        Some(Self { kind: one_line(&code.unwrap_or_default()), message: one_line(&message) })
    }

    fn from_error_object(error: &Fields<'_>) -> Self {
        // A gateway's message may be the body of another server's error, which says more.
        let message = error.text("message").unwrap_or_default();
        if let Some(inner) = Self::find(message.trim())
            && !inner.message.is_empty()
        {
            return inner;
        }

        let named_code =
            ["code", "type", "status"].iter().find_map(|name| error.nonempty_text(name));
        let code = match named_code {
            Some(code) => code.into_owned(),
            None => error.number("code").map(|code| code.to_string()).unwrap_or_default(),
        };
        let kind = match error.nonempty_text("type") {
            // Show both, because `type` is often too general, and `code` is often only a number.
            Some(kind) if kind != code => format!("{kind} {code}"),
            _ => code,
        };
        Self { kind: one_line(kind.trim()), message: one_line(&message) }
    }
}

fn one_line(text: &str) -> String {
    neutral_line(cut(text, MAX_MESSAGE_BYTES))
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.as_str(), self.message.as_str()) {
            ("", "") => f.write_str("the server reports an error without a message"),
            (kind, "") => write!(f, "the server reports the error {kind}"),
            ("", message) => f.write_str(message),
            (kind, message) => write!(f, "{message} ({kind})"),
        }
    }
}
