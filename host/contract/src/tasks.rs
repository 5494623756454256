//! The interface for a plugin's scheduled tasks. The plugin can create, list and cancel its tasks.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The scheduled tasks that one plugin has created for one principal in one directory. The
/// functions block.
pub trait TaskBook: fmt::Debug + Send + Sync + 'static {
    /// Stores a task. It replaces another task with the same name.
    ///
    /// # Errors
    ///
    /// Returns an error if a part of the task isn't valid, if a limit is reached, or if the task
    /// can't be stored.
    fn put(&self, task: TaskOrder) -> Result<TaskState, TaskError>;

    /// Removes a task and its runs. Returns `false` if no task has this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the tasks can't be changed.
    fn remove(&self, name: &str) -> Result<bool, TaskError>;

    /// Pauses or resumes a task. Returns `false` if no task has this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the tasks can't be changed.
    fn pause(&self, name: &str, paused: bool) -> Result<bool, TaskError>;

    /// Runs a task once as soon as possible, in addition to its schedule. Returns `false` if no
    /// task has this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the tasks can't be changed.
    fn run_soon(&self, name: &str) -> Result<bool, TaskError>;

    /// Returns the tasks, sorted by name.
    ///
    /// # Errors
    ///
    /// The tasks can't be read.
    fn tasks(&self) -> Result<Vec<TaskState>, TaskError>;

    /// Returns the last runs of a task, the latest first.
    ///
    /// # Errors
    ///
    /// The runs can't be read.
    fn runs(&self, name: &str) -> Result<Vec<TaskRun>, TaskError>;

    /// Takes the notices for the reader of the answer. Each notice is returned once.
    fn take_notices(&self) -> Vec<String>;
}

/// The action and the times of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskOrder {
    /// The name of the task.
    pub name: String,
    /// The form of `when`: `once`, `every` or `cron`.
    pub kind: String,
    /// The times at which the task runs.
    pub when: String,
    /// A name of the time zone database. `None` means the machine's time zone. Its name is stored
    /// when the task is created.
    pub zone: Option<String>,
    /// The treatment of times that passed while nothing ran: `once`, `all` or `skip`.
    pub missed: String,
    /// The action at each of these times.
    pub action: TaskAction,
}

/// The action of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskAction {
    /// The task calls a tool.
    Call {
        /// The tool's name.
        tool: String,
        /// A JSON object.
        arguments: Value,
    },
    /// Toolhold's own agent works on this text.
    Prompt(String),
}

/// The present state of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskState {
    /// The task.
    #[serde(flatten)]
    pub order: TaskOrder,
    /// The next time at which the task runs, in RFC 3339. `None` means that it won't run again.
    pub next: Option<String>,
    /// Whether the task is paused.
    pub paused: bool,
    /// The last run of the task.
    pub last: Option<TaskRun>,
}

/// A run of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskRun {
    /// The time for which the run was scheduled, in RFC 3339.
    pub due: String,
    /// The start of the run. `None` means that it hasn't started.
    pub started: Option<String>,
    /// The end of the run. `None` means that it hasn't ended.
    pub ended: Option<String>,
    /// `waiting`, `running`, `done`, `failed`, `denied`, `interrupted` or `skipped`.
    pub state: String,
    /// The number of earlier times that passed while nothing ran, and that this run replaces. At
    /// most 100 are counted.
    pub missed: u32,
    /// The answer, or the reason of the failure, cut.
    pub output: String,
}

/// Why the tasks did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    /// A code of `toolhold:host/types`: `denied`, `invalid`, `limit`, `busy`, `unavailable` or
    /// `failed`.
    pub code: &'static str,
    /// The fault, the limit, and the remedy.
    pub message: String,
}

impl TaskError {
    /// Makes an error with this code.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
