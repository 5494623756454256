//! Why an operation on a plugin's store or index did nothing.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

/// Why a store, or another database of a plugin, did nothing.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A key, a value or a write isn't valid.
    #[error("{0}")]
    Invalid(String),
    /// The quota is reached.
    #[error("{0}")]
    Limit(String),
    /// The operation reached its deadline, or was cancelled.
    #[error("the call ended before it was done")]
    Stopped,
    /// Another process constantly writes to the file.
    #[error("other processes write to the store; repeat the call")]
    Busy,
    /// The file or its folder can't be used.
    #[error("{} can't be used: {reason}", path.display())]
    Unavailable {
        /// The file or the folder.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// An error of SQLite, before it is converted to another variant.
    #[doc(hidden)]
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl StoreError {
    /// Makes the error for an unusable file. `reason`: the reason and the remedy.
    pub(crate) fn unavailable(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unavailable { path: path.to_owned(), reason: reason.into() }
    }

    /// Returns the error for the store in `path`.
    pub(crate) fn at(self, path: &Path) -> Self {
        let Self::Sqlite(error) = self else { return self };
        match error.sqlite_error_code() {
            // Only the deadline and cancelling interrupt SQLite.
            Some(ErrorCode::OperationInterrupted) => Self::Stopped,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::unavailable(
                path,
                "the file is damaged. To start with an empty one, move it and its `-wal` file away",
            ),
            Some(ErrorCode::DiskFull) => Self::unavailable(path, "the disk is full"),
            _ => Self::unavailable(path, error.to_string()),
        }
    }
}
