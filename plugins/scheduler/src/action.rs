//! What a task does, and how a task is named: as arguments of the tools.

use berth_sdk::schedule::Action;
use berth_sdk::{Annotations, Failure};
use serde_json::{Map, Value};

/// How tools that make or change tasks behave. They start nothing by themselves.
pub(crate) const CHANGES_TASKS: Annotations =
    Annotations { open_world: false, idempotent: true, ..Annotations::ACTING };

/// The names of a task's name in other programs.
pub(crate) const NAMES: (&str, &[&str]) = ("name", &["job_id", "id", "task"]);

/// The names of a tool's arguments in other programs.
pub(crate) const ARGUMENTS: (&str, &[&str]) = ("arguments", &["args", "input"]);

/// What is asked for.
///
/// # Errors
///
/// It is neither one call nor one prompt.
pub(crate) fn action(
    tool: Option<String>,
    arguments: Option<Map<String, Value>>,
    prompt: Option<String>,
) -> Result<Action, Failure> {
    match (tool, prompt) {
        (Some(tool), None) => Ok(Action::call(tool, Value::Object(arguments.unwrap_or_default()))),
        (None, Some(prompt)) if arguments.is_none() => Ok(Action::Prompt(prompt)),
        (None, Some(_)) => Err(Failure::invalid("arguments belong to a tool, and there is none")
            .with_suggestion("Give tool and arguments, or prompt alone.")),
        (Some(_), Some(_)) => Err(Failure::invalid("a task has tool and prompt")
            .with_suggestion("Give tool with arguments, or prompt, and not both.")),
        (None, None) => Err(Failure::invalid("the task does nothing").with_suggestion(
            "Give tool with arguments for a call, or prompt for work of the agent.",
        )),
    }
}

/// The failure for a name that no task has.
pub(crate) fn unknown(name: &str) -> Failure {
    Failure::invalid(format!("there is no task {name:?}"))
        .with_suggestion("list_tasks lists the tasks.")
}
