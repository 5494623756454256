//! The errors of a helper that confines a command.

use std::io;

use rustix::io::Errno;
use rustix::process::Resource;

use super::HELPER;
use super::calls::FilterError;
use super::trees::LandlockError;
use super::view::ViewError;

#[derive(Debug, thiserror::Error)]
pub(super) enum ConfineError {
    #[error("the helper can't detach from the terminal")]
    Terminal,
    #[error("only Toolhold itself may start {HELPER}: {0}")]
    Preparation(#[source] io::Error),
    #[error("the process that waits for the command has ended")]
    Unawaited,
    #[error("the session's network can't be set up: {0}")]
    Network(#[source] io::Error),
    #[error("namespaces can't be set up: {0}")]
    Namespaces(#[source] io::Error),
    #[error("no process can be started in namespaces: {0}")]
    Fork(#[source] io::Error),
    #[error(transparent)]
    View(#[from] ViewError),
    #[error("the resource {0:?} can't be limited: {1}")]
    Bound(Resource, #[source] Errno),
    #[error(transparent)]
    Landlock(#[from] LandlockError),
    #[error("capabilities can't be given up: {0}")]
    Capabilities(#[source] io::Error),
    #[error("the filter of system calls can't be set up: {0}")]
    Filter(#[from] FilterError),
    #[error("{0}; without that, undo can't save the changed files, which is required")]
    Unrecorded(#[source] RecordingError),
    #[error("the helper has no standard input")]
    NoInput,
    #[error("the helper has no file for the command's final state")]
    NoRecord,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    System(#[from] Errno),
}

impl ConfineError {
    pub(super) fn is_moved(&self) -> bool {
        matches!(self, Self::View(ViewError::Moved(_)) | Self::Landlock(LandlockError::Moved(_)))
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RecordingError {
    #[error("the sandbox is disabled")]
    Off,
    #[error("the filter that reports file changes can't be set up: {0}")]
    Filter(#[source] io::Error),
}
