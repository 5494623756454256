//! The interface that receives everything that a call's command writes, also output that is too
//! long for an answer.

use std::fmt;

/// Which of its two outputs a command wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Learns of everything that the command of a call writes, also of output that is too long for an
/// answer.
pub trait OutputRecorder: fmt::Debug + Send + Sync + 'static {
    /// Records bytes that the command wrote. The function is called in order, on the thread that
    /// waits for the command, and may block this thread.
    fn write(&self, stream: OutputStream, bytes: &[u8]);
}
