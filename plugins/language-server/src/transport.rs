//! The interface of the way to a language server, and why a server didn't answer.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use toolhold_sdk::Failure;
use toolhold_sdk::service::Connection;

/// The standard input and output of a server.
pub trait Transport {
    /// Waits for output, at most this long. Empty: there is no output yet.
    ///
    /// # Errors
    ///
    /// [`LspError::Ended`].
    fn read(&mut self, timeout: Duration) -> Result<Vec<u8>, LspError>;

    /// Writes bytes, and waits for a few seconds until the server has read them. Returns how many
    /// it has read.
    ///
    /// # Errors
    ///
    /// [`LspError::Ended`].
    fn write(&mut self, bytes: &[u8]) -> Result<usize, LspError>;
}

/// A server that may outlive the call.
impl Transport for Connection {
    fn read(&mut self, timeout: Duration) -> Result<Vec<u8>, LspError> {
        let bytes = Self::read(self, Some(timeout));
        if bytes.is_empty() && self.has_ended() { Err(LspError::Ended) } else { Ok(bytes) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, LspError> {
        let begun = Instant::now();
        let written = usize::try_from(Self::write(self, bytes)).unwrap_or(usize::MAX);
        // The host gives up after seconds, or else at once: the server has closed its standard
        // input.
        let is_over =
            written < bytes.len() && (begun.elapsed() < Duration::from_secs(1) || self.has_ended());
        if is_over { Err(LspError::Ended) } else { Ok(written) }
    }
}

/// The reason why a server didn't answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LspError {
    /// The server has ended.
    Ended,
    /// The server took too long.
    Timeout,
    /// The server doesn't keep to the protocol, or wrote too much. Its further output can't be
    /// used.
    Protocol(String),
    /// The server refused the request, with this message.
    Refused(String),
}

impl Display for LspError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the language server has ended"),
            Self::Timeout => f.write_str("the language server took too long"),
            Self::Protocol(what) => write!(f, "the language server can't be understood: {what}"),
            Self::Refused(why) => write!(f, "the language server refused: {why}"),
        }
    }
}

impl std::error::Error for LspError {}

impl From<LspError> for Failure {
    fn from(error: LspError) -> Self {
        Self::permanent("language-server", error.to_string())
    }
}
