//! The interface by which a change in files is announced to undo before it is made.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A path that is about to change, with the handles by which the caller may change it.
#[derive(Clone, Copy, Debug)]
pub struct ChangedPath<'a> {
    /// The real path.
    pub path: &'a Path,
    /// A handle of the object that has the path. `None`: the path is free.
    pub object: Option<BorrowedFd<'a>>,
    /// A handle of the directory that the path is in, if the change may add or remove the name.
    pub parent: Option<BorrowedFd<'a>>,
}

/// Learns of each change that a call makes in files, before it is made, so that it can save the
/// state that the change would destroy.
pub trait ChangeRecorder: fmt::Debug + Send + Sync + 'static {
    /// Records the state of a path that is about to be made, changed or removed.
    ///
    /// # Errors
    ///
    /// Why the change must not be made.
    fn before_change(&self, changed: &ChangedPath<'_>) -> io::Result<()>;

    /// Records the state before the object of `from` gets the path of `to` and replaces the object
    /// there.
    ///
    /// # Errors
    ///
    /// Why the change must not be made.
    fn before_rename(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()>;

    /// Records the state before the object of `from` gets the path of `to` as another name.
    ///
    /// # Errors
    ///
    /// Why the change must not be made.
    fn before_link(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()> {
        // By its new name, the file itself may change.
        self.before_change(from)?;
        self.before_change(to)
    }

    /// Checks whether a command must not run if its changes can't be recorded.
    fn is_required(&self) -> bool;

    /// Notes that a command of the call runs whose changes can't be recorded.
    fn unrecorded(&self, reason: &str);
}
