//! The interface by which a plugin makes, lists and cancels tasks for a later time.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The tasks that one plugin has made for one principal in one directory: calls at a later time.
/// Its functions block.
pub trait TaskBook: fmt::Debug + Send + Sync + 'static {
    /// Stores a task. The task replaces another one with the same name.
    ///
    /// # Errors
    ///
    /// A part of the task isn't valid, a limit is reached, or the task can't be stored.
    fn put(&self, task: TaskOrder) -> Result<TaskState, TaskError>;

    /// Removes a task and its runs. Returns `false` if no task has this name.
    ///
    /// # Errors
    ///
    /// The tasks can't be changed.
    fn remove(&self, name: &str) -> Result<bool, TaskError>;

    /// Pauses a task, or resumes it. Returns `false` if no task has this name.
    ///
    /// # Errors
    ///
    /// The tasks can't be changed.
    fn pause(&self, name: &str, paused: bool) -> Result<bool, TaskError>;

    /// Runs a task once as soon as possible, in addition to its times. Returns `false` if no task
    /// has this name.
    ///
    /// # Errors
    ///
    /// The tasks can't be changed.
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
    /// Its name.
    pub name: String,
    /// The form of `when`: `once`, `every` or `cron`.
    pub kind: String,
    /// When it runs.
    pub when: String,
    /// A name of the time zone database. `None`: the machine's zone, by the name that it has when
    /// the task is made.
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
    /// When it runs next, in RFC 3339. `None`: never again.
    pub next: Option<String>,
    /// Whether it waits to be resumed.
    pub paused: bool,
    /// Its last run.
    pub last: Option<TaskRun>,
}

/// A run of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskRun {
    /// The time that it was for, in RFC 3339.
    pub due: String,
    /// When it started. `None`: it hasn't.
    pub started: Option<String>,
    /// When it ended. `None`: it hasn't.
    pub ended: Option<String>,
    /// `waiting`, `running`, `done`, `failed`, `denied`, `interrupted` or `skipped`.
    pub state: String,
    /// Earlier times that this run stands for, since nothing ran then: at most 100 are counted.
    pub missed: u32,
    /// The answer, or the reason of the failure, cut.
    pub output: String,
}

/// Why the tasks did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    /// One of the codes of `toolhold:host/types`: `denied`, `invalid`, `limit`, `busy`,
    /// `unavailable` or `failed`.
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
