//! The errors of a helper that confines a command.

use std::io;

use rustix::io::Errno;
use rustix::process::Resource;

use super::HELPER;
use super::calls::FilterError;
use super::trees::LandlockError;
use super::view::ViewError;

/// A failure to set up the sandbox of a command, or to start the command.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfineError {
    #[error("the terminal can't be left")]
    Terminal,
    #[error("{HELPER} is for Toolhold itself: {0}")]
    Preparation(#[source] io::Error),
    /// The process that waits for the command has ended.
    #[error("nobody waits for it")]
    Unawaited,
    #[error("the network of the session: {0}")]
    Network(#[source] io::Error),
    #[error("namespaces: {0}")]
    Namespaces(#[source] io::Error),
    #[error("a process in namespaces: {0}")]
    Fork(#[source] io::Error),
    #[error(transparent)]
    View(#[from] ViewError),
    #[error("bounding {0:?}: {1}")]
    Bound(Resource, #[source] Errno),
    #[error(transparent)]
    Landlock(#[from] LandlockError),
    #[error("giving up capabilities: {0}")]
    Capabilities(#[source] io::Error),
    #[error("the filter of system calls: {0}")]
    Filter(#[from] FilterError),
    #[error("{0}; so the changes of files can't be saved, which is required")]
    Unrecorded(#[source] RecordingError),
    #[error("it has no standard input")]
    NoInput,
    #[error("it has nothing to write its state to")]
    NoRecord,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    System(#[from] Errno),
}

impl ConfineError {
    /// Checks whether the error is about a path that was moved, although it must be covered or stay
    /// in place.
    pub(super) fn is_moved(&self) -> bool {
        matches!(self, Self::View(ViewError::Moved(_)) | Self::Landlock(LandlockError::Moved(_)))
    }
}

/// A reason why the host can't learn of a program's changes in files.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordingError {
    #[error("the sandbox is switched off")]
    Off,
    #[error("a filter of changes: {0}")]
    Filter(#[source] io::Error),
}
