//! The interface that saves the state of files for undo before they are changed.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A path that is about to change, with the handles that the change uses.
#[derive(Clone, Copy, Debug)]
pub struct ChangedPath<'a> {
    /// The real path.
    pub path: &'a Path,
    /// A handle of the object at the path. `None` means that the path doesn't exist.
    pub object: Option<BorrowedFd<'a>>,
    /// A handle of the parent directory, for changes that add or remove the file name.
    pub parent: Option<BorrowedFd<'a>>,
}

/// Saves the state of files before a call changes them.
pub trait ChangeRecorder: fmt::Debug + Send + Sync + 'static {
    /// Records the state of a path before the path is created, changed or removed.
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the change must not be made.
    fn before_change(&self, changed: &ChangedPath<'_>) -> io::Result<()>;

    /// Records the states of both paths before `from` is renamed to `to`.
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the change must not be made.
    fn before_rename(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()>;

    /// Records the states of both paths before `to` becomes a second name of `from`'s file.
    ///
    /// # Errors
    ///
    /// Returns an error with the reason if the change must not be made.
    fn before_link(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()> {
        // A later write through the new name changes the file of `from`, too.
        self.before_change(from)?;
        self.before_change(to)
    }

    /// Checks whether commands are denied if their changes can't be recorded.
    fn is_required(&self) -> bool;

    /// Receives the reason when a command runs although its changes can't be recorded.
    fn unrecorded(&self, reason: &str);
}
