use berth_sdk::schedule;
use berth_sdk::{Annotations, Call, Failure, Output, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::action::{CHANGES_TASKS, NAMES, unknown};
use crate::cancel_task::cancel;
use crate::list_tasks::list;

/// Changes a task that exists.
pub(crate) struct Schedule;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The task's name; for list, all tasks if it is left out.
    name: Option<String>,
    /// What to do: run (once, as soon as possible, beside its times), pause, resume, list or
    /// cancel.
    #[serde(default)]
    action: Action,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    #[default]
    Run,
    Pause,
    Resume,
    #[serde(alias = "get")]
    List,
    #[serde(alias = "remove")]
    Cancel,
}

impl Tool for Schedule {
    const NAME: &str = "schedule";
    const TITLE: Option<&str> = Some("Run, pause or resume a task");
    const DESCRIPTION: &str = "\
        Runs a task now, pauses it or resumes it. Times that pass while it is paused are not made up for. Use schedule_periodic and \
        schedule_deferred to make tasks, list_tasks to see them, and cancel_task to remove one.";
    const ANNOTATIONS: Annotations = CHANGES_TASKS;
    const ALIASES: &[&str] = &["cron_run"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[NAMES];
    const READS_WITH: &[(&str, &[&str])] = &[("action", &["list"])];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let name = || {
            arguments.name.as_deref().ok_or_else(|| {
                Failure::invalid("name is missing").with_suggestion("list_tasks lists the names.")
            })
        };
        let (known, now) = match arguments.action {
            Action::List => return list(arguments.name.as_deref()),
            Action::Cancel => return cancel(name()?),
            Action::Run => (schedule::run_soon(name()?)?, "runs as soon as possible"),
            Action::Pause => (schedule::pause(name()?, true)?, "is paused"),
            Action::Resume => (schedule::pause(name()?, false)?, "is resumed"),
        };
        match known {
            true => Ok(Output::text(format!("The task {:?} {now}.\n", name()?))),
            false => Err(unknown(name()?)),
        }
    }
}
