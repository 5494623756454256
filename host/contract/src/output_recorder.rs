//! The interface that receives the whole output of a command, even if it is too long for an answer.

use std::fmt;

/// An output stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Receives the whole output of a command, even if it is too long for an answer.
pub trait OutputRecorder: fmt::Debug + Send + Sync + 'static {
    /// Records bytes that the command wrote. Calls are in order, on the thread that waits for the
    /// command, and may block.
    fn write(&self, stream: OutputStream, bytes: &[u8]);
}
