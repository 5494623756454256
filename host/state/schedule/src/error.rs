//! Why an operation on scheduled tasks did nothing.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::when::WhenError;
use crate::{MAX_ARGUMENTS, MAX_NAME, MAX_PROMPT, MAX_TASKS};

/// Why the tasks did nothing.
#[derive(Debug, Error)]
pub enum ScheduleError {
    /// A task isn't valid.
    #[error(transparent)]
    Invalid(#[from] TaskOrderError),
    /// The task is gone.
    #[error("the task was removed")]
    Removed,
    /// The task was removed during the operation.
    #[error("the task was removed at the same time")]
    RemovedMeanwhile,
    /// A quota is reached.
    #[error(transparent)]
    Limit(#[from] TaskLimitError),
    /// The alarm can't be set or waited for.
    #[error("{0}")]
    Alarm(#[source] io::Error),
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
    /// An error of SQLite, before it is converted to another variant.
    #[doc(hidden)]
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// A reason why a task isn't valid.
#[derive(Debug, Error)]
pub enum TaskOrderError {
    /// The task's name contains other characters, or is too long.
    #[error(
        "a task's name has 1 to {MAX_NAME} of A-Z, a-z, 0-9, `.`, `_`, `-` and spaces between them"
    )]
    Name,
    /// The arguments are too long. The number is their length in bytes.
    #[error("the arguments are {0} bytes; the limit is {MAX_ARGUMENTS}")]
    LongArguments(usize),
    /// The prompt has no words.
    #[error("the prompt is empty; write what to do")]
    EmptyPrompt,
    /// The prompt is too long. The number is its length in bytes.
    #[error("the prompt is {0} bytes; the limit is {MAX_PROMPT}")]
    LongPrompt(usize),
    /// An unknown way to make up for missed times, cut and neutralised.
    #[error("`{0}` isn't valid for missed runs: use once, all or skip")]
    Missed(String),
    /// The task has no time to run at.
    #[error(transparent)]
    When(#[from] WhenError),
    /// The time never comes. The text is the given time.
    #[error("`{0}` never runs")]
    NeverRuns(String),
    /// The task can't be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A reason why no further task may be created.
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
    /// The limit of tasks is reached. `here`: the number of the owner's tasks.
    #[error(
        "{quota}; {here} of them are listed here. Remove a task that is no longer needed. \
         `toolhold tasks list` shows all tasks to a person"
    )]
    Tasks {
        /// The quota.
        quota: TaskQuotaError,
        /// The tasks that the owner sees.
        here: u64,
    },
}

/// A quota that is reached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TaskQuotaError {
    /// Of all tasks of the user.
    #[error("there are {0} tasks; the limit is {MAX_TASKS}")]
    All(u64),
    /// Of a plugin.
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
    /// Of a principal.
    #[error("you have {tasks} tasks; the limit is {limit} (`max_tasks` in [tools.scheduler])")]
    Principal {
        /// The number of tasks.
        tasks: u64,
        /// The limit of tasks.
        limit: u64,
    },
}

impl ScheduleError {
    /// Returns the error for the file at `path`.
    pub(crate) fn at(self, path: &Path) -> Self {
        let Self::Sqlite(error) = self else { return self };
        let reason = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => return Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                "it is damaged. To start without tasks, move it and its `-wal` file away".to_owned()
            }
            Some(ErrorCode::DiskFull) => "the disk is full".to_owned(),
            _ => error.to_string(),
        };
        Self::Unavailable { path: path.to_owned(), reason }
    }
}
