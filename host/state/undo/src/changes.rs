//! The changes of an undo, and the paths that the undo doesn't restore.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// One change of an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoChange {
    /// The path that changes.
    pub path: PathBuf,
    /// The kind of change.
    pub what: ChangeKind,
    /// The current and the restored content of the file, if both are small texts.
    pub texts: Option<(String, String)>,
}

/// The kind of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The path is removed.
    Removed,
    /// The path exists again.
    Created,
    /// The path has its earlier state.
    Restored,
    /// The call's change is removed, and a later change stays.
    Merged,
    /// The permissions or times are restored.
    Permissions,
    /// The object moves back to this path.
    MovedBack(PathBuf),
}

impl ChangeKind {
    /// Returns the change in words. The caller adds the path of [`MovedBack`](Self::MovedBack).
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Created => "created again",
            Self::Restored => "restored",
            Self::Merged => "merged with later changes",
            Self::Permissions => "permissions restored",
            Self::MovedBack(_) => "moved back to",
        }
    }
}

/// A path that isn't restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoConflict {
    /// The path.
    pub path: PathBuf,
    /// The reason why the path can't be restored.
    pub why: String,
    /// A remedy for the user.
    pub fix: String,
    /// The content of the file now and before the call, if both are small texts.
    pub texts: Option<(String, String)>,
    /// Whether no later undo can restore the path.
    pub(crate) is_lost: bool,
}

impl UndoConflict {
    pub(crate) fn from_error(path: &Path, error: &io::Error) -> Self {
        let fix = match error.kind() {
            io::ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
                "remove the protection of the file (see `lsattr`) and undo the call again"
            }
            io::ErrorKind::PermissionDenied => {
                "only the owner of the file, or root, can undo the call"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "mount the file system writable and undo the call again"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space on that disk and undo the call again"
            }
            io::ErrorKind::NotFound => "create the directory again and undo the call again",
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
                "move the current file or directory away and undo the call again"
            }
            _ => "fix the cause and undo the call again",
        };
        Self {
            path: path.to_owned(),
            why: error.to_string(),
            fix: fix.to_owned(),
            texts: None,
            is_lost: false,
        }
    }

    /// Returns the conflict for a path that was moved together with an unrestored object.
    pub(crate) fn stuck(path: &Path) -> Self {
        let why = "a file that was moved together with this path isn't restored";
        Self::later(path, why, "restore that file and undo the call again")
    }

    /// Returns the conflict for a path that another call changed later.
    pub(crate) fn until_undone(path: &Path, what: &str) -> Self {
        let why = format!("a later call has {what} this path");
        Self::later(path, &why, "undo that call first, then this call again")
    }

    pub(crate) fn later(path: &Path, why: &str, fix: &str) -> Self {
        let [why, fix] = [why, fix].map(str::to_owned);
        Self { path: path.to_owned(), why, fix, texts: None, is_lost: false }
    }
}

impl fmt::Display for UndoConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path.display(), self.why, self.fix)
    }
}
