use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Learns of each change that a call makes in files, before it is made, so that it can save what
/// the change would destroy.
pub trait ChangeRecorder: fmt::Debug + Send + Sync + 'static {
    /// What has the real path is about to be made, changed or removed. `object` is a handle of it;
    /// `None` if nothing has the path yet.
    ///
    /// # Errors
    ///
    /// Why the change must not be made.
    fn before_change(&self, path: &Path, object: Option<BorrowedFd<'_>>) -> io::Result<()>;

    /// The object that has the real path `from` is about to get the path `to`, and to replace what
    /// has that.
    ///
    /// # Errors
    ///
    /// Why the change must not be made.
    fn before_rename(&self, from: &Path, object: BorrowedFd<'_>, to: &Path) -> io::Result<()>;

    /// Whether a command must not run if its changes can't be learned.
    fn is_required(&self) -> bool;

    /// A command of the call runs whose changes can't be learned.
    fn unrecorded(&self, reason: &str);
}
