//! The arguments that say what a task does, and the names by which a task is called.

use serde_json::{Map, Value, json};
use toolhold_sdk::schedule::Action;
use toolhold_sdk::{Failure, Promises};

/// How tools that make or change tasks behave. They start nothing by themselves.
pub(crate) const CHANGES_TASKS: Promises =
    Promises { closed_world: true, idempotent: true, ..Promises::NONE };

/// The names of a task's name in other programs.
pub(crate) const NAMES: (&str, &[&str]) = ("name", &["job_id", "id", "task"]);

/// The names of a tool's arguments in other programs.
pub(crate) const ARGUMENTS: (&str, &[&str]) = ("arguments", &["args", "input"]);

/// The tool that runs a command.
const SHELL: &str = "bash";

/// The work that a caller asks for. Exactly one of `tool`, `prompt` and `command` is given.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) tool: Option<String>,
    pub(crate) arguments: Option<Map<String, Value>>,
    pub(crate) prompt: Option<String>,
    /// A call of `bash`, as other programs write it.
    pub(crate) command: Option<String>,
}

impl Wanted {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { tool, arguments, prompt, command } = self;
        tool.is_none() && arguments.is_none() && prompt.is_none() && command.is_none()
    }

    /// The action.
    ///
    /// # Errors
    ///
    /// The work is neither one call nor one prompt.
    pub(crate) fn action(self) -> Result<Action, Failure> {
        match (self.tool, self.prompt, self.command) {
            (Some(tool), None, None) => {
                Ok(Action::call(tool, Value::Object(self.arguments.unwrap_or_default())))
            }
            (None, _, _) if self.arguments.is_some() => {
                Err(Failure::invalid("arguments belong to a tool, and there is none")
                    .with_suggestion("Give tool and arguments, or prompt alone."))
            }
            (None, Some(prompt), None) => Ok(Action::Prompt(prompt)),
            (None, None, Some(command)) if !command.trim().is_empty() => {
                Ok(Action::call(SHELL, json!({ "command": command })))
            }
            (None, None, _) => Err(Failure::invalid("the task does nothing").with_suggestion(
                "Give tool with arguments for a call, or prompt for work of the agent.",
            )),
            _ => Err(Failure::invalid("a task has tool and prompt, or a command beside them")
                .with_suggestion("Give tool with arguments, or prompt, and not both.")),
        }
    }
}

/// The failure for a name that no task has.
pub(crate) fn unknown(name: &str) -> Failure {
    Failure::invalid(format!("there is no task {name:?}"))
        .with_suggestion("list_tasks lists the tasks.")
}
