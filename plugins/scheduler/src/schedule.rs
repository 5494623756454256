//! `schedule`: changes a task that exists, and takes the arguments of other programs' tools.

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::{Map, Value};
use toolhold_sdk::schedule;
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

use crate::action::{CHANGES_TASKS, NAMES, Wanted, unknown};
use crate::cancel_task::cancel;
use crate::list_tasks::list;
use crate::made::{Change, JobType, NewTask, change, make};
use crate::schedule_periodic::Missed;
use crate::times::Given;

/// Changes a task that exists, and takes what the tools of other programs take.
pub(crate) struct Schedule;

/// The arguments without a description are those of `schedule` and `cron_*` in other programs. They
/// are accepted and not shown: a model that doesn't know them has the other tools.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = open)]
pub(crate) struct Arguments {
    /// The task's name; for list, all tasks if it is left out.
    name: Option<String>,
    /// What to do: run (once, as soon as possible, beside its times), pause, resume, list or
    /// cancel. Default: run.
    #[schemars(with = "Option<String>")]
    action: Option<Action>,
    #[schemars(skip)]
    schedule: Option<Value>,
    #[serde(alias = "expression", alias = "cron_expr", alias = "cron_expression")]
    #[schemars(skip)]
    cron: Option<String>,
    #[serde(alias = "at")]
    #[schemars(skip)]
    run_at: Option<String>,
    #[serde(alias = "after")]
    #[schemars(skip)]
    delay: Option<String>,
    #[serde(alias = "tz", alias = "timezone", alias = "time_zone")]
    #[schemars(skip)]
    zone: Option<String>,
    #[schemars(skip)]
    missed: Option<Missed>,
    #[schemars(skip)]
    job_type: Option<JobType>,
    #[schemars(skip)]
    command: Option<String>,
    #[schemars(skip)]
    prompt: Option<String>,
    #[schemars(skip)]
    tool: Option<String>,
    #[serde(alias = "args", alias = "input")]
    #[schemars(skip)]
    arguments: Option<Map<String, Value>>,
    #[schemars(skip)]
    patch: Option<Change>,
}

/// The schema doesn't refuse what it doesn't show. [`Arguments`] refuses what it doesn't know.
fn open(schema: &mut Schema) {
    schema.remove("additionalProperties");
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Action {
    Run,
    Pause,
    Resume,
    #[serde(alias = "get")]
    List,
    #[serde(alias = "remove")]
    Cancel,
    /// Makes a task of either kind.
    Create,
    /// Makes one that repeats.
    Add,
    /// Makes one that runs once.
    Once,
    /// Changes what a task does or when, as a patch says.
    #[serde(skip)]
    Update,
}

impl Arguments {
    /// The action of a call. `cron_add`, `cron_update` and `cron_run` don't name it.
    fn action(&self, is_new: bool) -> Action {
        match self.action {
            Some(action) => action,
            None if self.patch.is_some() => Action::Update,
            None if is_new => Action::Create,
            None => Action::Run,
        }
    }

    fn required_name(&self) -> Result<&str, Failure> {
        self.name.as_deref().ok_or_else(|| {
            Failure::invalid("name is missing").with_suggestion("list_tasks lists the names.")
        })
    }
}

impl Tool for Schedule {
    const NAME: &str = "schedule";
    const TITLE: Option<&str> = Some("Run, pause or resume a task");
    const DESCRIPTION: &str = "\
        Runs a task now, pauses it or resumes it. Times that pass while it is paused are not made up for. Use schedule_periodic and \
        schedule_deferred to make tasks, list_tasks to see them, and cancel_task to remove one.";
    const PROMISES: Promises = CHANGES_TASKS;
    const ALIASES: &[&str] = &["cron_add", "cron_update", "cron_run"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[NAMES];
    const READS_WITH: &[(&str, &[&str])] = &[("action", &["list", "get"])];
    type Arguments = Arguments;

    fn call(mut arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        let given = Given {
            schedule: arguments.schedule.take(),
            cron: arguments.cron.take(),
            run_at: arguments.run_at.take(),
            delay: arguments.delay.take(),
        };
        let wanted = Wanted {
            tool: arguments.tool.take(),
            arguments: arguments.arguments.take(),
            prompt: arguments.prompt.take(),
            command: arguments.command.take(),
        };
        let Arguments { zone, missed, job_type, .. } = &arguments;
        let is_new = !given.is_empty()
            || !wanted.is_empty()
            || zone.is_some()
            || missed.is_some()
            || job_type.is_some();
        let action = arguments.action(is_new);
        let makes = matches!(action, Action::Create | Action::Add | Action::Once);
        if is_new && !makes || arguments.patch.is_some() && action != Action::Update {
            // A person must not approve arguments that have no effect.
            return Err(Failure::invalid(
                "run, pause, resume, list and cancel take no more than a name",
            )
            .with_suggestion("To make a task, use schedule_periodic or schedule_deferred."));
        }
        if makes {
            match action {
                Action::Add => given.check_repeats()?,
                Action::Once => given.check_once()?,
                _ => {}
            }
            let Arguments { name, zone, missed, job_type, .. } = arguments;
            return make(NewTask { name, given, zone, missed, job_type, wanted }, call);
        }
        let (known, now) = match action {
            Action::List => return list(arguments.name.as_deref(), None),
            Action::Cancel => return cancel(arguments.required_name()?),
            Action::Pause => (schedule::pause(arguments.required_name()?, true)?, "is paused"),
            Action::Resume => (schedule::pause(arguments.required_name()?, false)?, "is resumed"),
            Action::Update => {
                let patch = arguments.patch.take().unwrap_or_default();
                let name = arguments.name.take().unwrap_or_default();
                return change(&name, patch);
            }
            _ => (schedule::run_soon(arguments.required_name()?)?, "runs as soon as possible"),
        };
        let name = arguments.required_name()?;
        if !known {
            return Err(unknown(name));
        }
        Ok(Output::text(format!("The task {name:?} {now}.\n")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::schedule::{Action, Task, TaskState};
    use toolhold_sdk::testing;

    use super::*;

    fn said(arguments: Value) -> String {
        testing::call::<Schedule>(arguments.clone())
            .unwrap_or_else(|failure| panic!("{arguments}: {failure:?}"))
            .joined_text()
    }

    fn refused(arguments: Value) -> String {
        match testing::call::<Schedule>(arguments.clone()) {
            Ok(output) => panic!("{arguments}: {}", output.joined_text()),
            Err(failure) => format!("{}\n{}", failure.message, failure.joined_text()),
        }
    }

    fn task(name: &str) -> TaskState {
        let tasks = schedule::tasks().unwrap();
        tasks.into_iter().find(|state| state.task.name == name).unwrap()
    }

    /// The one task that there is.
    fn only() -> TaskState {
        let mut tasks = schedule::tasks().unwrap();
        assert_eq!(tasks.len(), 1, "{tasks:?}");
        tasks.pop().unwrap()
    }

    #[test]
    fn each_action_of_schedule_in_other_programs_works() {
        said(json!({ "action": "create", "expression": "*/5 * * * *", "command": "echo a" }));
        let made = only().task;
        assert_eq!((&*made.kind, &*made.when), ("cron", "*/5 * * * *"));
        assert_eq!(made.action, Action::call("bash", json!({ "command": "echo a" })));
        for action in ["get", "list"] {
            assert!(said(json!({ "action": action, "name": made.name })).contains("echo a"));
        }
        assert!(said(json!({ "action": "list" })).contains("echo a"));
        said(json!({ "action": "pause", "name": made.name }));
        assert!(only().paused);
        said(json!({ "action": "resume", "name": made.name }));
        assert!(!only().paused);
        said(json!({ "action": "remove", "name": made.name }));
        assert!(schedule::tasks().unwrap().is_empty());
        for (action, when) in [
            ("once", json!({ "delay": "30m" })),
            ("create", json!({ "delay": "2h" })),
            ("once", json!({ "run_at": "2090-01-01T00:00:00Z" })),
            ("create", json!({ "run_at": "2090-01-01T00:00:00Z" })),
            ("once", json!({ "schedule": { "kind": "after", "seconds": 900 } })),
            ("once", json!({ "schedule": { "kind": "at", "at": "2090-01-01T00:00:00Z" } })),
            ("add", json!({ "expression": "@daily" })),
            ("add", json!({ "schedule": { "kind": "cron", "expr": "@daily" } })),
        ] {
            let mut arguments = json!({ "action": action, "name": "t", "command": "echo b" });
            arguments.as_object_mut().unwrap().extend(when.as_object().unwrap().clone());
            said(arguments);
            let kind = if action == "add" { "cron" } else { "once" };
            assert_eq!(task("t").task.kind, kind, "{action} {when}");
            said(json!({ "action": "cancel", "name": "t" }));
        }
    }

    #[test]
    fn action_has_its_own_times_and_no_others() {
        let command = "echo";
        for (arguments, why) in [
            (json!({ "action": "add", "delay": "1h", "command": command }), "repeats"),
            (json!({ "action": "once", "expression": "@daily", "command": command }), "once"),
            (json!({ "action": "once", "schedule": "@daily", "command": command }), "runs once"),
            (
                json!({ "action": "once", "schedule": { "kind": "every", "every_ms": 60_000 }, "command": command }),
                "runs once",
            ),
            (json!({ "action": "create", "command": command }), "when it runs"),
            (
                json!({ "action": "create", "expression": "@daily", "delay": "1h", "command": command }),
                "more than one time",
            ),
            (json!({ "action": "create", "expression": "@daily" }), "does nothing"),
            (json!({ "action": "create", "expression": "@daily", "command": " " }), "does nothing"),
            (json!({ "action": "pause" }), "name is missing"),
            (json!({ "action": "pause", "name": "t", "command": command }), "no more than a name"),
            (
                json!({ "action": "run", "name": "t", "patch": { "enabled": false } }),
                "no more than",
            ),
            (json!({ "action": "nonsense" }), "nonsense"),
            (json!({ "name": "t", "nonsense": 1 }), "nonsense"),
            // Approval comes from a person.
            (
                json!({ "action": "add", "expression": "@daily", "command": command, "approved": true }),
                "approved",
            ),
        ] {
            let message = refused(arguments.clone());
            assert!(message.contains(why), "{arguments}: {message}");
        }
        assert!(schedule::tasks().unwrap().is_empty());
    }

    #[test]
    fn cron_add_of_other_programs_makes_each_kind() {
        for (times, kind, when, zone) in [
            (
                json!({ "kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Berlin" }),
                "cron",
                "0 9 * * 1-5",
                Some("Europe/Berlin"),
            ),
            (json!({ "kind": "cron", "expr": "@daily" }), "cron", "@daily", None),
            (
                json!({ "kind": "at", "at": "2090-01-01T00:00:00Z" }),
                "once",
                "2090-01-01T00:00:00Z",
                None,
            ),
            (json!({ "kind": "after", "seconds": 90 }), "once", "PT90S", None),
            (json!({ "kind": "every", "every_ms": 120_000 }), "every", "120", None),
            (json!("*/5 * * * *"), "cron", "*/5 * * * *", None),
        ] {
            said(
                json!({ "name": "t", "schedule": times, "job_type": "shell", "command": "echo a" }),
            );
            let made = task("t").task;
            assert_eq!((&*made.kind, &*made.when, made.zone.as_deref()), (kind, when, zone));
        }
        said(
            json!({ "name": "p", "schedule": "@daily", "job_type": "agent", "prompt": "tidy up" }),
        );
        assert_eq!(task("p").task.action, Action::Prompt("tidy up".into()));
        for (arguments, why) in [
            (json!({ "schedule": { "kind": "every", "every_ms": 1500 } }), "whole seconds"),
            (json!({ "schedule": { "kind": "every", "every_ms": 0 } }), "whole seconds"),
            (json!({ "schedule": { "kind": "weekly" } }), "weekly"),
            (json!({ "schedule": { "kind": "cron", "expr": "@daily", "x": 1 } }), "`x`"),
            (json!({ "schedule": 5 }), "schedule"),
            (json!({ "schedule": "@daily", "cron": "@daily" }), "more than one time"),
            (json!({ "schedule": "@daily", "job_type": "agent" }), "job_type"),
            (
                json!({ "schedule": { "kind": "cron", "expr": "@daily", "tz": "UTC" }, "tz": "UTC" }),
                "zone",
            ),
        ] {
            let mut whole = json!({ "name": "x", "command": "echo" });
            whole.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
            let message = refused(whole);
            assert!(message.contains(why), "{arguments}: {message}");
        }
    }

    #[test]
    fn cron_update_changes_what_the_patch_names() {
        let action = Action::call("bash", json!({ "command": "echo a" }));
        schedule::put(Task::cron("t", "@daily", action)).unwrap();
        said(json!({ "name": "t", "patch": { "enabled": false } }));
        assert!(task("t").paused);
        said(json!({ "name": "t", "patch": { "enabled": true } }));
        assert!(!task("t").paused);
        said(json!({ "name": "t", "patch": { "command": "echo b" } }));
        let now = task("t").task;
        assert_eq!(now.action, Action::call("bash", json!({ "command": "echo b" })));
        assert_eq!(now.when, "@daily");
        let patch = json!({ "schedule": { "kind": "every", "every_ms": 60_000 }, "prompt": "x", "enabled": false });
        said(json!({ "name": "t", "patch": patch }));
        let now = task("t");
        assert_eq!((&*now.task.kind, &*now.task.when), ("every", "60"));
        assert_eq!(now.task.action, Action::Prompt("x".into()));
        assert!(now.paused);
        said(json!({ "name": "t", "patch": { "schedule": "@hourly" } }));
        let now = task("t");
        assert_eq!((&*now.task.kind, &*now.task.when), ("cron", "@hourly"));
        assert_eq!(now.task.action, Action::Prompt("x".into()));
        assert!(now.paused);
        said(json!({ "name": "t", "patch": { "command": "echo c" } }));
        assert!(task("t").paused);
        for (arguments, why) in [
            (json!({ "name": "t", "patch": {} }), "changes nothing"),
            (json!({ "name": "t", "patch": { "model": "m" } }), "model"),
            (json!({ "name": "no", "patch": { "enabled": true } }), "there is no task"),
            (json!({ "name": "no", "patch": { "command": "x" } }), "there is no task"),
            (json!({ "patch": { "enabled": true } }), "name is missing"),
        ] {
            let message = refused(arguments.clone());
            assert!(message.contains(why), "{arguments}: {message}");
        }
    }

    #[test]
    fn name_alone_runs_the_task() {
        schedule::put(Task::cron("t", "@daily", Action::Prompt("x".into()))).unwrap();
        assert!(said(json!({ "name": "t" })).contains("runs as soon as possible"));
        assert!(refused(json!({ "name": "no" })).contains("there is no task"));
    }

    #[test]
    fn arguments_of_other_programs_are_not_shown() {
        let definition = testing::definition::<Schedule>();
        let text = definition.to_string();
        assert!(!text.contains("job_type") && !text.contains("patch"), "{text}");
        assert!(!text.contains("additionalProperties"), "{text}");
    }
}
