//! `schedule_periodic`: makes a task that runs again and again.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use toolhold_sdk::schedule::{self, Task};
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

use crate::action::{ARGUMENTS, CHANGES_TASKS, NAMES, Wanted};
use crate::answer;

/// Makes a task that runs again and again.
pub(crate) struct SchedulePeriodic;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The task's name: letters, digits, `.`, `_`, `-` and spaces. It replaces a task of that name.
    name: String,
    /// When it runs, as a cron expression: minute hour day month weekday, as in `30 9 * * 1-5`. A
    /// sixth field in front is the second. Or @hourly, @daily, @weekly, @monthly, @yearly. Words
    /// such as "every morning" have to be translated to this form first.
    cron: String,
    /// The time zone, as in Europe/Berlin. Default: the machine's.
    zone: Option<String>,
    /// What becomes of times that pass while nothing can run: once (one run makes up for all, the
    /// default), all (one run for each, at most 100) or skip.
    missed: Option<Missed>,
    /// The tool to call.
    tool: Option<String>,
    /// The tool's arguments.
    arguments: Option<Map<String, Value>>,
    /// What the agent has to do, if no tool is called.
    prompt: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Missed {
    Once,
    All,
    Skip,
}

impl Missed {
    /// The host's word.
    pub(crate) fn word(missed: Option<&Self>) -> String {
        match missed {
            None | Some(Self::Once) => "once",
            Some(Self::All) => "all",
            Some(Self::Skip) => "skip",
        }
        .to_owned()
    }
}

impl Tool for SchedulePeriodic {
    const NAME: &str = "schedule_periodic";
    const TITLE: Option<&str> = Some("Make a task that repeats");
    const DESCRIPTION: &str = "\
        Makes a task that runs again and again by a cron expression: it calls a tool with fixed arguments, or has the agent work on a \
        prompt, in this working directory. Nobody is there to approve then: what needs approval doesn't run. Returns the task with its \
        next time. Use schedule_deferred for a task that runs once.";
    const PROMISES: Promises = CHANGES_TASKS;
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[
        NAMES,
        ARGUMENTS,
        ("cron", &["schedule", "cron_expr", "cron_expression", "expression"]),
        ("zone", &["tz", "timezone", "time_zone"]),
    ];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let Arguments { name, cron, zone, missed, tool, arguments, prompt } = arguments;
        let action = Wanted { tool, arguments, prompt, ..Wanted::default() }.action()?;
        let missed = Missed::word(missed.as_ref());
        let task = Task { zone, missed, ..Task::cron(name, cron, action) };
        Ok(Output::text(answer::task(&schedule::put(task)?)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::{Category, testing};

    use super::*;

    #[test]
    fn task_is_a_call_or_a_prompt() {
        let make = |more: Value| {
            let mut arguments = json!({ "name": "t", "cron": "@daily" });
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            testing::call::<SchedulePeriodic>(arguments)
        };
        let made = make(json!({ "tool": "read", "arguments": { "path": "a" } })).unwrap();
        assert!(made.joined_text().contains("calls read {\"path\":\"a\"}"));
        let made = make(json!({ "prompt": "tidy up" })).unwrap();
        assert!(made.joined_text().contains("has the agent do: tidy up"));
        assert!(made.joined_text().starts_with("t: cron @daily (the machine's zone)"));
        let made = make(json!({ "prompt": "x", "zone": "Asia/Tokyo" })).unwrap();
        assert!(made.joined_text().starts_with("t: cron @daily (Asia/Tokyo)"));
        for wrong in [
            json!({}),
            json!({ "tool": "read", "prompt": "x" }),
            json!({ "arguments": {}, "prompt": "x" }),
        ] {
            assert_eq!(make(wrong).unwrap_err().category, Category::InvalidParameters);
        }
    }
}
