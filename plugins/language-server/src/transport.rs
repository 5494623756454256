//! The way to a server, and what can go wrong on it.

use std::fmt::{self, Display};
use std::time::Duration;

use berth_sdk::Failure;
use berth_sdk::process::Child;

/// The standard input and output of a server.
pub trait Transport {
    /// Waits for output, at most this long. Empty: there is none yet.
    ///
    /// # Errors
    ///
    /// [`LspError::Ended`].
    fn read(&mut self, timeout: Duration) -> Result<Vec<u8>, LspError>;

    /// Writes all of these bytes.
    ///
    /// # Errors
    ///
    /// [`LspError::Ended`].
    fn write(&mut self, bytes: &[u8]) -> Result<(), LspError>;
}

/// A server that ends with the call.
impl Transport for Child {
    fn read(&mut self, timeout: Duration) -> Result<Vec<u8>, LspError> {
        let stdout = Child::read(self, Some(timeout)).stdout;
        if stdout.is_empty() && self.is_finished() { Err(LspError::Ended) } else { Ok(stdout) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LspError> {
        let written = Child::write(self, bytes);
        if written < bytes.len() as u64 { Err(LspError::Ended) } else { Ok(()) }
    }
}

/// Why a server didn't answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LspError {
    /// It has ended.
    Ended,
    /// It took too long.
    Timeout,
    /// It doesn't keep to the protocol, or wrote too much. Nothing that it says can be used any
    /// more.
    Protocol(String),
    /// It refused the request, with this message.
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
