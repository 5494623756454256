//! `list_tasks`: lists tasks and their runs.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::schedule::{self, TaskState};
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

use crate::action::{NAMES, unknown};
use crate::answer;

/// Lists tasks and their runs.
pub(crate) struct ListTasks;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// A task, whose last runs are listed too. Default: all tasks.
    name: Option<String>,
    /// The most runs that are listed. Default: all that are kept, 20.
    limit: Option<u16>,
}

impl Tool for ListTasks {
    const NAME: &str = "list_tasks";
    const TITLE: Option<&str> = Some("List tasks");
    const DESCRIPTION: &str = "\
        Lists the tasks that schedule_periodic and schedule_deferred have made in this working directory: when each runs next, what it does, and how its last run ended. \
        With name, that task alone and its last runs, the latest first.";
    const PROMISES: Promises = Promises::READ_ONLY;
    const ALIASES: &[&str] = &["cron_list", "cron_runs"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[NAMES];
    const BARE_ARGUMENT: Option<&str> = Some("name");
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        list(arguments.name.as_deref(), arguments.limit)
    }
}

/// All tasks, or one with its last runs.
///
/// # Errors
///
/// There is no such task, or they can't be read.
pub(crate) fn list(name: Option<&str>, limit: Option<u16>) -> Result<Output, Failure> {
    let tasks = schedule::tasks()?;
    let Some(name) = name else {
        let text: String = tasks.iter().map(answer::task).collect();
        return Ok(if text.is_empty() {
            Output::text("No task was made in this directory.\n")
        } else {
            answer::stored(text)
        });
    };
    let task = tasks.into_iter().find(|state| state.task.name == name);
    let task: TaskState = task.ok_or_else(|| unknown(name))?;
    let mut text = answer::task(&TaskState { last: None, ..task });
    let runs = schedule::runs(name)?;
    if runs.is_empty() {
        text += "  It has not run yet.\n";
    }
    for run in runs.iter().take(limit.map_or(usize::MAX, usize::from)) {
        text += &format!("  {}\n", answer::run(run));
    }
    Ok(answer::stored(text))
}
