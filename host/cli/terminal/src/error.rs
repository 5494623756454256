//! The errors of commands.

use std::fmt;
use std::io::{self, Write};

use serde_json::json;
use toolhold_core::HostError;
use toolhold_core::text::neutral;

use crate::exit::Exit;

/// The reason why a command failed.
#[derive(Debug)]
pub enum CommandError {
    /// The command line is invalid.
    Usage(String),
    /// Approval is needed, but nobody can be asked.
    Unasked(String),
    /// A plugin can't be downloaded.
    Fetch(String),
    /// Toolhold itself failed.
    Host(HostError),
    /// The output can't be written.
    Write(io::Error),
}

impl CommandError {
    /// Makes an error of the command line.
    pub fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// Returns the exit code and the message. A closed stdout is a success, as in `toolhold … |
    /// head`.
    pub fn end(self) -> (Exit, Option<String>) {
        match self {
            Self::Usage(message) => (Exit::Usage, Some(message)),
            Self::Unasked(message) => (Exit::Denied, Some(message)),
            Self::Fetch(message) => (Exit::Host, Some(message)),
            Self::Host(error) => (Exit::Host, Some(error.to_string())),
            Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                (Exit::Success, None)
            }
            Self::Write(error) => {
                (Exit::Host, Some(format!("the answer can't be written: {error}")))
            }
        }
    }
}

/// Prints an error as JSON. The failure of a call isn't printed like this, because the call's
/// answer already contains it.
pub fn print_json(exit: Exit, message: &str) -> io::Result<()> {
    let kind = if exit == Exit::Usage { "usage" } else { "host" };
    let error = json!({ "ok": false, "error": { "kind": kind, "message": neutral(message) } });
    writeln!(io::stdout().lock(), "{error}")
}

impl From<HostError> for CommandError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}
