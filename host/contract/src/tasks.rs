//! The interface for a plugin's scheduled tasks.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The scheduled tasks that one plugin has created for one principal in one directory. All
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
    /// Returns an error if the tasks can't be read.
    fn tasks(&self) -> Result<Vec<TaskState>, TaskError>;

    /// Returns the last runs of a task, the latest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the runs can't be read.
    fn runs(&self, name: &str) -> Result<Vec<TaskRun>, TaskError>;

    /// Takes the notices for the reader of the answer. Each notice is returned only once.
    fn take_notices(&self) -> Vec<String>;
}

/// The action and the schedule of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskOrder {
    /// The name of the task.
    pub name: String,
    /// The form of `when`: `once`, `every` or `cron`.
    pub kind: String,
    /// The schedule, in the form that `kind` names.
    pub when: String,
    /// A name of the time zone database. `None` means the machine's time zone when the task is
    /// created.
    pub zone: Option<String>,
    /// The handling of runs that were missed while Toolhold didn't run: `once`, `all` or `skip`.
    pub missed: String,
    /// The action of each run.
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
        /// The arguments: a JSON object.
        arguments: Value,
    },
    /// A prompt for Toolhold's own agent.
    Prompt(String),
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskState {
    /// The task.
    #[serde(flatten)]
    pub order: TaskOrder,
    /// The time of the next run, in RFC 3339. `None` means that there is no next run.
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
    /// The number of missed runs that this run replaces, up to 100.
    pub missed: u32,
    /// The answer or the reason of the failure. A long text is cut.
    pub output: String,
}

/// An error of a function about tasks.
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
    /// Creates an error.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
