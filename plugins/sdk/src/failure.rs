use std::fmt::{self, Display};
use std::io::{self, ErrorKind};
use std::time::Duration;

use serde_json::Value;

use crate::Content;

/// The longest message of a failure, in bytes; what is longer is cut.
pub const MAX_MESSAGE: usize = 4096;

/// Why a call failed. Hosts and agents decide on it whether to try again, to mend the arguments or
/// to stop.
///
/// What only a host may say (no such tool, blocked by policy, to be confirmed, cancelled) is not
/// among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// The arguments make no sense. The model should mend them.
    InvalidParameters,
    /// An argument has the wrong type. The model should mend it.
    TypeMismatch,
    /// It would fail again in the same way.
    PermanentFailure,
    /// Too much at once; later may work.
    RateLimited,
    /// The other side failed; later may work.
    ServerError,
    /// The other side was not reached; later may work.
    NetworkError,
    /// It took too long; later may work.
    Timeout,
}

/// A failed call. It carries what there is in spite of the failure.
///
/// It travels through every `?`, so what is rarely there is boxed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Why, coarsely.
    pub category: Category,
    /// Why, finely, for programs: short, lower-case and stable, `not-found`, `http-404`.
    pub code: Option<Box<str>>,
    /// What is wrong, for a person and a model: at most [`MAX_MESSAGE`] bytes.
    pub message: String,
    /// What to try instead.
    pub suggestion: Option<String>,
    /// How long to wait before trying again.
    pub retry_after: Option<Duration>,
    /// What was made before it failed.
    pub content: Vec<Content>,
    /// A JSON value for programs.
    pub structured: Option<Box<Value>>,
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
        }
    }

    /// Arguments that fit the schema and still make no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Category::InvalidParameters, message)
    }

    /// What would fail again in the same way, with a code for programs.
    pub fn permanent(code: impl Into<Box<str>>, message: impl Into<String>) -> Self {
        Self::new(Category::PermanentFailure, message).with_code(code)
    }

    /// An I/O error with what was being done: `reading /srv/data.csv`. Category and code follow
    /// from its kind.
    ///
    /// ```
    /// use berth_sdk::Failure;
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

    /// The same with a code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Box<str>>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The same with something to try instead.
    #[must_use]
    pub fn with_suggestion(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// The same with how long to wait before trying again.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// The same with a part of what was made before it failed.
    #[must_use]
    pub fn with_content(mut self, part: Content) -> Self {
        self.content.push(part);
        self
    }

    /// The same with a value for programs.
    #[must_use]
    pub fn with_structured(mut self, value: Value) -> Self {
        self.structured = Some(Box::new(value));
        self
    }

    /// The text parts of the content, joined by line ends.
    pub fn joined_text(&self) -> String {
        crate::output::joined_text(&self.content)
    }

    fn from_io(error: &io::Error) -> Self {
        use Category::{NetworkError, PermanentFailure, ServerError, Timeout};
        let kind = match error.raw_os_error() {
            // WASI's number for it, which `std` has no kind for.
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
                (PermanentFailure, "invalid-name", "not a name that files can have")
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
        // A code of the operating system doesn't help a model; the program's own words do.
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
    fn the_question_mark_turns_io_errors_into_failures() {
        fn reads() -> Result<String, Failure> {
            Ok(std::fs::read_to_string("/no/such/file")?)
        }
        let failure = reads().unwrap_err();
        assert_eq!(failure.category, Category::PermanentFailure);
        assert_eq!(failure.code.as_deref(), Some("not-found"));
        assert_eq!(failure.message, "not found");
    }

    #[test]
    fn words_of_the_program_are_kept() {
        let failure = Failure::io(
            "reading the table",
            &io::Error::new(ErrorKind::InvalidData, "line 3 has two columns"),
        );
        assert_eq!(failure.message, "reading the table: line 3 has two columns");
        assert_eq!(failure.code.as_deref(), Some("invalid-data"));
    }

    #[test]
    fn what_may_work_later_says_so_by_its_category() {
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
