//! The errors of a plugin's databases.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

/// The error of an operation on a store, an index or another database.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A key, a value or a write isn't valid.
    #[error("{0}")]
    Invalid(String),
    /// A quota is exhausted.
    #[error("{0}")]
    Limit(String),
    /// The operation reached its deadline or was cancelled.
    #[error("the call ended before the store had finished")]
    Stopped,
    /// Other processes keep the database locked.
    #[error("other processes write to the store; repeat the call")]
    Busy,
    /// The file or its folder can't be used.
    #[error("{} can't be used: {reason}", path.display())]
    Unavailable {
        /// The file or the folder.
        path: PathBuf,
        /// The reason and the remedy.
        reason: String,
    },
    /// An error of SQLite. Public functions convert it to another variant.
    #[doc(hidden)]
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl StoreError {
    /// Makes the error for an unusable file. `reason` also contains the remedy.
    pub(crate) fn unavailable(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unavailable { path: path.to_owned(), reason: reason.into() }
    }

    /// Converts an error of SQLite for the file at `path`. Returns other errors as they are.
    pub(crate) fn at(self, path: &Path) -> Self {
        let Self::Sqlite(error) = self else { return self };
        match error.sqlite_error_code() {
            // Only the deadline or a cancellation interrupts SQLite.
            Some(ErrorCode::OperationInterrupted) => Self::Stopped,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::unavailable(
                path,
                "the file is damaged. To start with an empty file, move the file and its `-wal` \
                 file away",
            ),
            Some(ErrorCode::DiskFull) => Self::unavailable(path, "the disk is full"),
            _ => Self::unavailable(path, error.to_string()),
        }
    }
}
