//! `schedule_deferred`: makes a task that runs once.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use toolhold_sdk::schedule::{self, Task};
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

use crate::action::{ARGUMENTS, CHANGES_TASKS, NAMES, Wanted};
use crate::answer;
use crate::schedule_periodic::Missed;

/// Makes a task that runs once.
pub(crate) struct ScheduleDeferred;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The task's name: letters, digits, `.`, `_`, `-` and spaces. It replaces a task of that name.
    name: String,
    /// When it runs, in ISO 8601: a time such as 2030-05-01T09:00:00Z, or a duration from now such
    /// as PT15M or 15m, at most ten years. A time without an offset is one of the zone.
    when: String,
    /// The time zone, as in Europe/Berlin. Default: the machine's.
    zone: Option<String>,
    /// What becomes of it if nothing can run at that time: once (it runs late, the default) or
    /// skip.
    missed: Option<Missed>,
    /// The tool to call.
    tool: Option<String>,
    /// The tool's arguments.
    arguments: Option<Map<String, Value>>,
    /// What the agent has to do, if no tool is called.
    prompt: Option<String>,
}

impl Tool for ScheduleDeferred {
    const NAME: &str = "schedule_deferred";
    const TITLE: Option<&str> = Some("Make a task that runs once");
    const DESCRIPTION: &str = "\
        Makes a task that runs once, at a time or after a duration: it calls a tool with fixed arguments, or has the agent work on a prompt, \
        in this working directory. Nobody is there to approve then: what needs approval doesn't run. Returns the task with its time. Use \
        schedule_periodic for a task that repeats.";
    const PROMISES: Promises = CHANGES_TASKS;
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[
        NAMES,
        ARGUMENTS,
        ("when", &["run_at", "at", "delay", "after"]),
        ("zone", &["tz", "timezone", "time_zone"]),
    ];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let Arguments { name, when, zone, missed, tool, arguments, prompt } = arguments;
        let action = Wanted { tool, arguments, prompt, ..Wanted::default() }.action()?;
        let missed = Missed::word(missed.as_ref());
        let task = Task { zone, missed, ..Task::once(name, when, action) };
        Ok(Output::text(answer::task(&schedule::put(task)?)))
    }
}
