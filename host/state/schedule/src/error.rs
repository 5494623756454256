//! The errors of scheduled tasks.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::when::WhenError;
use crate::{MAX_ARGUMENTS, MAX_NAME, MAX_PROMPT, MAX_TASKS};

/// The error of an operation on tasks.
#[derive(Debug, Error)]
pub enum ScheduleError {
    /// The task isn't valid.
    #[error(transparent)]
    Invalid(#[from] TaskOrderError),
    /// The task was removed.
    #[error("the task was removed")]
    Removed,
    /// The task was removed during the operation.
    #[error("another process removed the task at the same time")]
    RemovedMeanwhile,
    /// A quota is exhausted.
    #[error(transparent)]
    Limit(#[from] TaskLimitError),
    /// The alarm can't be set or waited for.
    #[error("{0}")]
    Alarm(#[source] io::Error),
    /// Other processes keep the database locked.
    #[error("other processes write to the tasks; repeat the call")]
    Busy,
    /// The file or the folder can't be used.
    #[error("the tasks in {} can't be used: {reason}", path.display())]
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

/// The error for an invalid task.
#[derive(Debug, Error)]
pub enum TaskOrderError {
    /// The name contains other characters, or is too long.
    #[error(
        "a task's name has 1 to {MAX_NAME} of A-Z, a-z, 0-9, `.`, `_`, `-` and spaces between them"
    )]
    Name,
    /// The arguments are too long. The number is their length in bytes.
    #[error("the arguments are {0} bytes; the limit is {MAX_ARGUMENTS}")]
    LongArguments(usize),
    /// The prompt is blank.
    #[error("the prompt is empty; write what to do")]
    EmptyPrompt,
    /// The prompt is too long. The number is its length in bytes.
    #[error("the prompt is {0} bytes; the limit is {MAX_PROMPT}")]
    LongPrompt(usize),
    /// The policy for missed times is unknown.
    #[error("`{0}` isn't valid for missed runs: use once, all or skip")]
    Missed(String),
    /// The time of the task isn't valid.
    #[error(transparent)]
    When(#[from] WhenError),
    /// The time never comes.
    #[error("`{0}` never runs")]
    NeverRuns(String),
    /// The task can't be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The error for a task that exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TaskLimitError {
    /// The task would run too often.
    #[error(
        "the task would run every {period} s; the shortest period is {least} s (`min_interval` in [tools.scheduler])"
    )]
    Period {
        /// The seconds between two times of the task.
        period: i64,
        /// The shortest allowed period in seconds.
        least: i64,
    },
    /// The number of tasks is at its limit.
    #[error(
        "{quota}; {here} of these tasks are listed here. Remove a task that is no longer needed. \
         The user can list all tasks with `toolhold tasks list`"
    )]
    Tasks {
        /// The quota that is exhausted.
        quota: TaskQuotaError,
        /// The number of tasks that the owner sees.
        here: u64,
    },
}

/// The quota that is exhausted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TaskQuotaError {
    /// The quota of all tasks of the user.
    #[error("there are {0} tasks; the limit is {MAX_TASKS}")]
    All(u64),
    /// The quota of a plugin.
    #[error(
        "the plugin `{plugin}` has {tasks} tasks; the limit is {limit} (`schedule_tasks` in \
         [plugins.{plugin}])"
    )]
    Plugin {
        /// The name of the plugin.
        plugin: String,
        /// The number of its tasks.
        tasks: u64,
        /// The limit of its tasks.
        limit: u64,
    },
    /// The quota of a principal.
    #[error("you have {tasks} tasks; the limit is {limit} (`max_tasks` in [tools.scheduler])")]
    Principal {
        /// The number of tasks.
        tasks: u64,
        /// The limit of tasks.
        limit: u64,
    },
}

impl ScheduleError {
    /// Converts an error of SQLite for the database at `path`. Returns other errors as they are.
    pub(crate) fn at(self, path: &Path) -> Self {
        let Self::Sqlite(error) = self else { return self };
        let reason = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => return Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                "the file is damaged. To start without tasks, move the file and its `-wal` file \
                 away"
                    .to_owned()
            }
            Some(ErrorCode::DiskFull) => "the disk is full".to_owned(),
            _ => error.to_string(),
        };
        Self::Unavailable { path: path.to_owned(), reason }
    }
}
