//! `cancel_task`: removes a task.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::schedule;
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

use crate::action::{CHANGES_TASKS, NAMES, unknown};

/// Removes a task.
pub(crate) struct CancelTask;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The task's name.
    name: String,
}

impl Tool for CancelTask {
    const NAME: &str = "cancel_task";
    const TITLE: Option<&str> = Some("Remove a task");
    const DESCRIPTION: &str = "\
        Removes a task, so that it never runs again, and the record of its runs. A run that has begun is ended.";
    const PROMISES: Promises = CHANGES_TASKS;
    const ALIASES: &[&str] = &["cron_remove"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[NAMES];
    const BARE_ARGUMENT: Option<&str> = Some("name");
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        cancel(&arguments.name)
    }
}

/// Removes a task.
///
/// # Errors
///
/// There is no such task, or it can't be removed.
pub(crate) fn cancel(name: &str) -> Result<Output, Failure> {
    if !schedule::remove(name)? {
        return Err(unknown(name));
    }
    Ok(Output::text(format!("The task {name:?} is removed.\n")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::schedule::{Action, Task};
    use toolhold_sdk::testing;

    use super::*;

    #[test]
    fn task_is_removed_once() {
        schedule::put(Task::every("a", 60, Action::Prompt("x".into()))).unwrap();
        assert!(testing::call::<CancelTask>(json!({ "name": "a" })).is_ok());
        assert!(testing::call::<CancelTask>(json!({ "name": "a" })).is_err());
    }
}
