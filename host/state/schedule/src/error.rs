//! Why an operation on scheduled tasks did nothing.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

/// Why the tasks did nothing.
#[derive(Debug, Error)]
pub enum ScheduleError {
    /// A task isn't valid.
    #[error("{0}")]
    Invalid(String),
    /// A quota is reached.
    #[error("{0}")]
    Limit(String),
    /// Another process writes all the time.
    #[error("other processes write to the tasks; repeat the call")]
    Busy,
    /// The file can't be used.
    #[error("the tasks in {} can't be used: {reason}", path.display())]
    Unavailable {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// SQLite's own error, on its way to one of the others.
    #[doc(hidden)]
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl ScheduleError {
    /// The error for the file at `path`.
    pub(crate) fn at(self, path: &Path) -> Self {
        let Self::Sqlite(error) = self else { return self };
        let unavailable = |reason: String| Self::Unavailable { path: path.to_owned(), reason };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => unavailable(
                "it is damaged. Move it and its `-wal` file away to begin without tasks".into(),
            ),
            Some(ErrorCode::DiskFull) => unavailable("the disk is full".into()),
            _ => unavailable(error.to_string()),
        }
    }
}
