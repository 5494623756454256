//! The interface that receives the whole output of a call's command, even if it is too long for an
//! answer.

use std::fmt;

/// The output to which a command wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Receives the whole output of a call's command, even if it is too long for an answer.
pub trait OutputRecorder: fmt::Debug + Send + Sync + 'static {
    /// Records bytes that the command wrote. Calls are in order, on the thread that waits for the
    /// command. The function may block this thread.
    fn write(&self, stream: OutputStream, bytes: &[u8]);
}
