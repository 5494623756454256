//! A failed call, as a Rust plugin reports it: its category, code, message and suggestion.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind};
use std::time::Duration;

use serde_json::Value;

use crate::content::{Content, joined_text};

/// The longest message of a failure, in bytes. A longer one is cut.
pub const MAX_MESSAGE: usize = 4096;

/// Why a call failed. By the category, hosts and agents decide whether to try again, fix the
/// arguments or stop.
///
/// Four categories are missing because only a host may use them: tool not found, blocked by policy,
/// confirmation required, and cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// The arguments aren't valid. The model should fix them.
    InvalidParameters,
    /// An argument has the wrong type. The model should fix it.
    TypeMismatch,
    /// The same call would fail again in the same way.
    PermanentFailure,
    /// Too many requests at once. The call may work later.
    RateLimited,
    /// The server failed. The call may work later.
    ServerError,
    /// The server was not reached. The call may work later.
    NetworkError,
    /// The call took too long. It may work later.
    Timeout,
}

/// A failed call. It may carry a partial result.
///
/// Rare fields are boxed, since the failure is part of every `Result`.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The broad reason.
    pub category: Category,
    /// The exact reason, for programs: short, lower-case and stable, as in `not-found` or
    /// `http-404`.
    pub code: Option<Box<str>>,
    /// The message for people and models: at most [`MAX_MESSAGE`] bytes.
    pub message: String,
    /// Advice on what to try instead.
    pub suggestion: Option<String>,
    /// The time to wait before trying again.
    pub retry_after: Option<Duration>,
    /// The result that was made before the failure.
    pub content: Vec<Content>,
    /// A JSON value for programs.
    pub structured: Option<Box<Value>>,
    /// As [`Output::meta`](crate::Output::meta).
    pub meta: Option<Box<Value>>,
}

impl Failure {
    /// A failure with a message and nothing else.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self {
            category,
            code: None,
            message: message.into(),
            suggestion: None,
            retry_after: None,
            content: Vec::new(),
            structured: None,
            meta: None,
        }
    }

    /// A failure because of arguments that fit the schema and still aren't valid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Category::InvalidParameters, message)
    }

    /// A failure that would happen again in the same way, with a code for programs.
    pub fn permanent(code: impl Into<Box<str>>, message: impl Into<String>) -> Self {
        Self::new(Category::PermanentFailure, message).with_code(code)
    }

    /// A failure because of an I/O error. `doing` says what was done: `reading /srv/data.csv`.
    /// Category and code come from the kind of the error.
    ///
    /// ```
    /// use toolhold_sdk::Failure;
    ///
    /// let path = "/no/such/file";
    /// let failure = std::fs::read(path).map_err(|error| Failure::io(format!("reading {path}"), &error)).unwrap_err();
    /// assert_eq!(failure.code.as_deref(), Some("not-found"));
    /// assert_eq!(failure.message, "reading /no/such/file: not found");
    /// ```
    pub fn io(doing: impl Display, error: &io::Error) -> Self {
        let failure = Self::from_io(error);
        Self { message: format!("{doing}: {}", failure.message), ..failure }
    }

    /// Sets the code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Box<str>>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Sets the advice on what to try instead.
    #[must_use]
    pub fn with_suggestion(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Sets the time to wait before trying again.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Adds a part of the result that was made before the failure.
    #[must_use]
    pub fn with_content(mut self, part: Content) -> Self {
        self.content.push(part);
        self
    }

    /// Sets the value for programs.
    #[must_use]
    pub fn with_structured(mut self, value: Value) -> Self {
        self.structured = Some(Box::new(value));
        self
    }

    /// The text parts of the content, joined by line ends.
    pub fn joined_text(&self) -> String {
        joined_text(&self.content)
    }

    fn from_io(error: &io::Error) -> Self {
        use Category::{NetworkError, PermanentFailure, ServerError, Timeout};
        let kind = match error.raw_os_error() {
            // WASI's number for a directory that isn't empty. `std` doesn't map it.
            Some(55) if cfg!(target_os = "wasi") => ErrorKind::DirectoryNotEmpty,
            _ => error.kind(),
        };
        let (category, code, words) = match kind {
            ErrorKind::NotFound => (PermanentFailure, "not-found", "not found"),
            ErrorKind::PermissionDenied => (PermanentFailure, "not-permitted", "not permitted"),
            ErrorKind::AlreadyExists => (PermanentFailure, "exists", "exists already"),
            ErrorKind::IsADirectory => (PermanentFailure, "is-a-directory", "is a directory"),
            ErrorKind::NotADirectory => {
                (PermanentFailure, "not-a-directory", "a part of the path is not a directory")
            }
            ErrorKind::DirectoryNotEmpty => {
                (PermanentFailure, "not-empty", "the directory is not empty")
            }
            ErrorKind::ReadOnlyFilesystem => {
                (PermanentFailure, "read-only", "read-only file system")
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                (PermanentFailure, "no-space", "no space left")
            }
            ErrorKind::FileTooLarge => (PermanentFailure, "too-large", "too large"),
            ErrorKind::InvalidFilename => {
                (PermanentFailure, "invalid-name", "the file name isn't valid")
            }
            ErrorKind::InvalidData => {
                (PermanentFailure, "invalid-data", "not in the expected form")
            }
            ErrorKind::UnexpectedEof => (PermanentFailure, "unexpected-end", "ends too early"),
            ErrorKind::TimedOut => (Timeout, "timed-out", "took too long"),
            ErrorKind::WouldBlock | ErrorKind::Interrupted => {
                (ServerError, "interrupted", "was interrupted")
            }
            ErrorKind::ConnectionRefused => (NetworkError, "refused", "connection refused"),
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected => (NetworkError, "disconnected", "connection lost"),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
                (NetworkError, "unreachable", "not reachable")
            }
            _ => (PermanentFailure, "io", ""),
        };
        // An error number of the operating system doesn't help a model. The program's own message
        // does.
        let message = if words.is_empty() || error.raw_os_error().is_none() {
            error.to_string()
        } else {
            words.to_owned()
        };
        Self::new(category, message).with_code(code)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::from_io(&error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::permanent("json", error.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.suggestion.as_ref().map_or(Ok(()), |suggestion| write!(f, " ({suggestion})"))
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_become_failures_by_question_mark() {
        fn reads() -> Result<String, Failure> {
            Ok(std::fs::read_to_string("/no/such/file")?)
        }
        let failure = reads().unwrap_err();
        assert_eq!(failure.category, Category::PermanentFailure);
        assert_eq!(failure.code.as_deref(), Some("not-found"));
        assert_eq!(failure.message, "not found");
    }

    #[test]
    fn io_error_keeps_the_message_of_the_program() {
        let failure = Failure::io(
            "reading the table",
            &io::Error::new(ErrorKind::InvalidData, "line 3 has two columns"),
        );
        assert_eq!(failure.message, "reading the table: line 3 has two columns");
        assert_eq!(failure.code.as_deref(), Some("invalid-data"));
    }

    #[test]
    fn category_tells_whether_a_retry_may_help() {
        for (kind, category) in [
            (ErrorKind::TimedOut, Category::Timeout),
            (ErrorKind::ConnectionReset, Category::NetworkError),
            (ErrorKind::Interrupted, Category::ServerError),
            (ErrorKind::PermissionDenied, Category::PermanentFailure),
        ] {
            assert_eq!(Failure::from(io::Error::from(kind)).category, category, "{kind:?}");
        }
    }
}
