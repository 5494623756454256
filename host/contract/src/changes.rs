//! The interface that reports changes of files to undo before they are made.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A path that is about to change, with the handles that the change uses.
#[derive(Clone, Copy, Debug)]
pub struct ChangedPath<'a> {
    /// The real path.
    pub path: &'a Path,
    /// A handle of the object at the path. `None` means that no object has the path.
    pub object: Option<BorrowedFd<'a>>,
    /// A handle of the parent directory, if the change may add or remove the name.
    pub parent: Option<BorrowedFd<'a>>,
}

/// Receives each file change of a call before the change is made, so that it can save the state
/// that the change would destroy.
pub trait ChangeRecorder: fmt::Debug + Send + Sync + 'static {
    /// Records the state of a path before the path is created, changed or removed.
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the change must not be made.
    fn before_change(&self, changed: &ChangedPath<'_>) -> io::Result<()>;

    /// Records the state before the object of `from` moves to the path of `to` and replaces the
    /// object at that path.
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the change must not be made.
    fn before_rename(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()>;

    /// Records the state before the object of `from` gets the path of `to` as an additional name.
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the change must not be made.
    fn before_link(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()> {
        // The file itself may be changed through its new name.
        self.before_change(from)?;
        self.before_change(to)
    }

    /// Checks whether a command is denied if its changes can't be recorded.
    fn is_required(&self) -> bool;

    /// Reports that a command of the call runs although its changes can't be recorded.
    fn unrecorded(&self, reason: &str);
}
