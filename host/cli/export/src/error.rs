//! The errors of an export.

use std::fmt;
use std::io;

use toolhold_core::HostError;

/// The reason why an export stopped early.
#[derive(Debug)]
pub enum ExportError {
    /// The command line is invalid.
    Usage(String),
    /// The log can't be read, or the receiver can't take the records.
    Host(HostError),
    /// Stdout can't be written.
    Write(io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) => f.write_str(why),
            Self::Host(error) => error.fmt(f),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ExportError {}

impl From<HostError> for ExportError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}
