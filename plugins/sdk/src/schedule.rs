//! Tasks at a later time: calls of tools, and work for Toolhold's own agent. The plugin asks for it
//! in its manifest: `schedule = "reason"`.
//!
//! ```
//! # fn main() -> Result<(), toolhold_sdk::Failure> {
//! use toolhold_sdk::schedule::{self, Action, Task};
//!
//! let action = Action::call("notes__tidy", serde_json::json!({ "days": 30 }));
//! schedule::put(Task::cron("tidy", "0 4 * * *", action))?;
//! assert_eq!(schedule::tasks()?[0].task.name, "tidy");
//! assert!(schedule::remove("tidy")?);
//! # Ok(())
//! # }
//! ```
//!
//! A task runs as the principal whose call made it, in the same working directory, under the rules
//! of the time when it runs, and can never do more than the call that made it. A plugin that isn't
//! built in can make tasks of its own tools only. A tool that is read-only can't change tasks.
//!
//! In unit tests, each thread has tasks of its own, none at first. They never run.

use serde::Serialize;
use serde_json::Value;

use crate::HostError;

/// The action of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The task calls a tool.
    Call {
        /// The tool's full name.
        tool: String,
        /// Its arguments: an object of at most 64 KiB.
        arguments: Value,
    },
    /// Toolhold's own agent works on this text, at most 16 KiB.
    Prompt(String),
}

impl Action {
    /// A call of a tool.
    pub fn call(tool: impl Into<String>, arguments: Value) -> Self {
        Self::Call { tool: tool.into(), arguments }
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Task {
    /// Its name: 1 to 64 of letters, digits, `.`, `_`, `-` and spaces between them. A task replaces
    /// the one with the same name.
    pub name: String,
    /// The form of `when`: `once`, `every` or `cron`.
    pub kind: String,
    /// When it runs: a time of RFC 3339 or a duration such as `PT15M`, a number of seconds, or a
    /// cron expression.
    pub when: String,
    /// A name of the time zone database. `None`: the machine's zone, by the name that it has when
    /// the task is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The rule for times that passed while nothing ran: `once`, `all` or `skip`.
    pub missed: String,
    /// The action of the task.
    pub action: Action,
}

impl Task {
    /// A task that runs once, at a time of RFC 3339 or after a duration.
    pub fn once(name: impl Into<String>, when: impl Into<String>, action: Action) -> Self {
        Self::new(name, "once", when, action)
    }

    /// A task that runs every so many seconds.
    pub fn every(name: impl Into<String>, seconds: u64, action: Action) -> Self {
        Self::new(name, "every", seconds.to_string(), action)
    }

    /// A task that runs by a cron expression.
    pub fn cron(name: impl Into<String>, cron: impl Into<String>, action: Action) -> Self {
        Self::new(name, "cron", cron, action)
    }

    fn new(name: impl Into<String>, kind: &str, when: impl Into<String>, action: Action) -> Self {
        Self {
            name: name.into(),
            kind: kind.to_owned(),
            when: when.into(),
            zone: None,
            missed: "once".to_owned(),
            action,
        }
    }
}

/// A task as it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskState {
    /// The task.
    #[serde(flatten)]
    pub task: Task,
    /// When it runs next, in RFC 3339. `None`: never again.
    pub next: Option<String>,
    /// Whether it waits to be resumed.
    pub paused: bool,
    /// Its last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Run>,
}

/// A run of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// The time that it was for, in RFC 3339.
    pub due: String,
    /// When it started. `None`: it hasn't.
    pub started: Option<String>,
    /// When it ended. `None`: it hasn't.
    pub ended: Option<String>,
    /// `waiting`, `running`, `done`, `failed`, `denied`, `interrupted` or `skipped`. There may be
    /// more later.
    pub state: String,
    /// Earlier times that it stands for, since nothing ran then.
    pub missed: u32,
    /// The answer, or the reason of the failure: at most 2,000 bytes.
    pub output: String,
}

/// Keeps a task.
///
/// # Errors
///
/// Something of it isn't valid, a limit is reached, a rule denies it, or it can't be kept.
pub fn put(task: Task) -> Result<TaskState, HostError> {
    host::put(task)
}

/// Removes a task and its runs. False: there is none with this name.
///
/// # Errors
///
/// A rule denies it, or the tasks can't be changed.
pub fn remove(name: &str) -> Result<bool, HostError> {
    host::remove(name)
}

/// Has a task wait, or resumes it. False: there is none with this name.
///
/// # Errors
///
/// The errors of [`remove`].
pub fn pause(name: &str, paused: bool) -> Result<bool, HostError> {
    host::pause(name, paused)
}

/// Has a task run once as soon as possible, beside its times. False: there is none with this name.
///
/// # Errors
///
/// The errors of [`remove`].
pub fn run_soon(name: &str) -> Result<bool, HostError> {
    host::run_soon(name)
}

/// The plugin's tasks for the principal and the working directory of the call, sorted by name.
///
/// # Errors
///
/// The tasks can't be read.
pub fn tasks() -> Result<Vec<TaskState>, HostError> {
    host::tasks()
}

/// The last runs of a task, the latest first.
///
/// # Errors
///
/// The runs can't be read.
pub fn runs(name: &str) -> Result<Vec<Run>, HostError> {
    host::runs(name)
}

#[cfg(target_arch = "wasm32")]
mod host {
    use super::{Action, HostError, Run, Task, TaskState};
    use crate::contract::bindings::toolhold::host::schedule as wit;
    use crate::contract::bindings::toolhold::host::types::Error;

    pub(super) fn put(task: Task) -> Result<TaskState, HostError> {
        let Task { name, kind, when, zone, missed, action } = task;
        let action = match action {
            Action::Prompt(text) => wit::Action::Prompt(text),
            Action::Call { tool, arguments } => {
                wit::Action::Call(wit::ToolCall { tool, arguments: arguments.to_string() })
            }
        };
        let task = wit::Task { name, kind, when, zone, missed, action, meta: None };
        wit::put(&task).map(state).map_err(error)
    }

    pub(super) fn remove(name: &str) -> Result<bool, HostError> {
        wit::remove(name).map_err(error)
    }

    pub(super) fn pause(name: &str, paused: bool) -> Result<bool, HostError> {
        wit::pause(name, paused).map_err(error)
    }

    pub(super) fn run_soon(name: &str) -> Result<bool, HostError> {
        wit::run_soon(name).map_err(error)
    }

    pub(super) fn tasks() -> Result<Vec<TaskState>, HostError> {
        Ok(wit::tasks().map_err(error)?.into_iter().map(state).collect())
    }

    pub(super) fn runs(name: &str) -> Result<Vec<Run>, HostError> {
        Ok(wit::runs(name).map_err(error)?.into_iter().map(run).collect())
    }

    fn state(state: wit::State) -> TaskState {
        let wit::Task { name, kind, when, zone, missed, action, meta: _ } = state.task;
        let action = match action {
            wit::Action::Prompt(text) => Action::Prompt(text),
            wit::Action::Call(wit::ToolCall { tool, arguments }) => Action::Call {
                tool,
                arguments: serde_json::from_str(&arguments).unwrap_or_default(),
            },
        };
        let task = Task { name, kind, when, zone, missed, action };
        TaskState { task, next: state.next, paused: state.paused, last: state.last.map(run) }
    }

    fn run(run: wit::Run) -> Run {
        let wit::Run { due, started, ended, state, missed, output, meta: _ } = run;
        Run { due, started, ended, state, missed, output }
    }

    fn error(error: Error) -> HostError {
        HostError::new("schedule", error.code, error.message)
    }
}

/// The stand-in for the host in unit tests. It keeps tasks and checks nothing but their names.
#[cfg(not(target_arch = "wasm32"))]
mod host {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::{HostError, Run, Task, TaskState};

    thread_local! {
        static TASKS: RefCell<BTreeMap<String, TaskState>> = RefCell::default();
    }

    pub(super) fn put(task: Task) -> Result<TaskState, HostError> {
        if task.name.is_empty() {
            let message = "a task's name is empty".to_owned();
            return Err(HostError::new("schedule", "invalid", message));
        }
        let next = Some("2030-01-01T00:00:00Z".to_owned());
        let state = TaskState { task, next, paused: false, last: None };
        TASKS.with_borrow_mut(|tasks| tasks.insert(state.task.name.clone(), state.clone()));
        Ok(state)
    }

    pub(super) fn remove(name: &str) -> Result<bool, HostError> {
        Ok(TASKS.with_borrow_mut(|tasks| tasks.remove(name).is_some()))
    }

    pub(super) fn pause(name: &str, paused: bool) -> Result<bool, HostError> {
        Ok(TASKS.with_borrow_mut(|tasks| {
            tasks.get_mut(name).map(|state| state.paused = paused).is_some()
        }))
    }

    pub(super) fn run_soon(name: &str) -> Result<bool, HostError> {
        Ok(TASKS.with_borrow(|tasks| tasks.contains_key(name)))
    }

    pub(super) fn tasks() -> Result<Vec<TaskState>, HostError> {
        Ok(TASKS.with_borrow(|tasks| tasks.values().cloned().collect()))
    }

    pub(super) fn runs(_name: &str) -> Result<Vec<Run>, HostError> {
        Ok(Vec::new())
    }
}
