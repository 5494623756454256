//! The failure of a call with its category and code.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, Denial, UntrustedText};

/// The reason why a call failed. Hosts and agents decide by the category, so the set of categories
/// is closed. [`Failure::code`] adds details from an open set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// No tool has that name.
    ToolNotFound,
    /// The arguments don't match the schema or make no sense.
    InvalidParameters,
    /// An argument has the wrong type.
    TypeMismatch,
    /// A rule denies the call.
    PolicyBlocked,
    /// The call needs approval, and nobody was asked.
    ConfirmationRequired,
    /// A second attempt fails in the same way.
    PermanentFailure,
    /// The caller stopped waiting.
    Cancelled,
    /// There are too many calls. A later call may succeed.
    RateLimited,
    /// An upstream server or web server failed.
    ServerError,
    /// A server wasn't reached.
    NetworkError,
    /// The call took too long.
    Timeout,
}

impl Category {
    /// Returns the name in JSON and in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolNotFound => "tool_not_found",
            Self::InvalidParameters => "invalid_parameters",
            Self::TypeMismatch => "type_mismatch",
            Self::PolicyBlocked => "policy_blocked",
            Self::ConfirmationRequired => "confirmation_required",
            Self::PermanentFailure => "permanent_failure",
            Self::Cancelled => "cancelled",
            Self::RateLimited => "rate_limited",
            Self::ServerError => "server_error",
            Self::NetworkError => "network_error",
            Self::Timeout => "timeout",
        }
    }
}

/// Codes that only the host may set. Callers trust these codes, so the host removes them from the
/// failure of a guest.
pub const HOST_CODES: [&str; 14] = [
    "audit",
    "bad_answer",
    "busy",
    "cpu_budget",
    "crash",
    "denied_by_user",
    "dropped",
    "host",
    "memory_limit",
    "quota_blocked",
    "rate",
    "redacted",
    "result_limit",
    "withheld",
];

/// A failed call, as a model gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The category of the failure.
    pub category: Category,
    /// A stable code: `busy`, `cpu_budget`, `memory_limit`, `result_limit`, `crash`, or a code of
    /// the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The fault and its cause, for people and models. The host cuts the message at 8 KiB.
    pub message: String,
    /// Advice for the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Time to wait before the next try, at most an hour. In JSON, it is a number of milliseconds.
    #[serde(
        default,
        rename = "retry_after_ms",
        skip_serializing_if = "Option::is_none",
        with = "millis"
    )]
    pub retry_after: Option<Duration>,
    /// Output from before the failure. A stopped call returns the parts that it emitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Content>,
    /// A JSON value, as in [`Output`](crate::Output).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// The denial, if the category is [`Category::PolicyBlocked`] and a rule of the host decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Denial>,
    /// A JSON object for fields that this type doesn't have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// Whether the tool wrote the message and the suggestion. `false` means that the host wrote
    /// both.
    #[serde(skip)]
    pub by_tool: bool,
}

impl Failure {
    /// Creates a failure with only a message.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self {
            category,
            code: None,
            message: message.into(),
            suggestion: None,
            retry_after: None,
            content: Vec::new(),
            structured: None,
            denial: None,
            meta: None,
            by_tool: false,
        }
    }

    /// Creates a failure with [`Category::PolicyBlocked`] and the denial as its message.
    pub fn denied(denial: Denial) -> Self {
        Self {
            denial: Some(denial.clone()),
            ..Self::new(Category::PolicyBlocked, denial.to_string())
        }
    }

    /// Adds untrusted text about the failure as the first part of the content.
    #[must_use]
    pub fn with_words(mut self, text: UntrustedText) -> Self {
        if !text.is_empty() {
            self.content.insert(0, Content::untrusted(&text));
        }
        self
    }

    /// Sets the code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Sets a suggestion.
    #[must_use]
    pub fn with_suggestion(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Checks whether Toolhold itself failed to read, record or count something for the call.
    pub fn is_of_host(&self) -> bool {
        self.category == Category::PermanentFailure
            && matches!(self.code.as_deref(), Some("audit" | "host"))
    }

    /// Returns the text parts, joined by line ends.
    pub fn joined_text(&self) -> String {
        crate::output::joined_text(&self.content)
    }
}

/// A failure of the host's own work, which a model can't fix.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The configuration can't be used.
    #[error("configuration: {0}")]
    Config(String),
    /// A plugin doesn't load. The message names the plugin and the reason.
    #[error("{plugin}: {reason}")]
    Load {
        /// The plugin's name, or the file name if the plugin's name isn't known yet.
        plugin: String,
        /// The fault and the remedy.
        reason: String,
    },
    /// The engine can't start on this machine.
    #[error("engine: {0}")]
    Engine(String),
    /// Reading or writing one of the host's own files failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted action, or a sentence about the failure.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl HostError {
    /// Returns a function for `map_err` that makes this error from an I/O error and `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let Some(duration) = value else { return serializer.serialize_none() };
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let millis = Option::<u64>::deserialize(deserializer)?;
        Ok(millis.map(Duration::from_millis))
    }
}
