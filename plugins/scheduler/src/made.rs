//! Makes and changes tasks as the tools of other programs do.

use serde::Deserialize;
use serde_json::{Map, Value};
use toolhold_sdk::schedule::{self, Task, TaskState};
use toolhold_sdk::{Call, Failure, Output};

use crate::action::{Wanted, unknown};
use crate::answer;
use crate::schedule_periodic::Missed;
use crate::times::{Given, Times};

/// Bytes of a call's ID in the name of a task without a name.
const NAME: usize = 32;

/// The inputs of a new task.
pub(crate) struct NewTask {
    /// `None`: the task gets a name.
    pub(crate) name: Option<String>,
    pub(crate) given: Given,
    pub(crate) zone: Option<String>,
    pub(crate) missed: Option<Missed>,
    pub(crate) job_type: Option<JobType>,
    pub(crate) wanted: Wanted,
}

/// The kind of work of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JobType {
    Shell,
    Agent,
}

/// The changes of a task. What isn't named stays.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    enabled: Option<bool>,
    schedule: Option<Value>,
    command: Option<String>,
    prompt: Option<String>,
    tool: Option<String>,
    arguments: Option<Map<String, Value>>,
}

/// Makes a task.
///
/// # Errors
///
/// Something is missing or contradicts itself, or the host refuses it.
pub(crate) fn make(new: NewTask, call: &Call) -> Result<Output, Failure> {
    let NewTask { name, given, zone, missed, job_type, wanted } = new;
    let is_prompt = wanted.prompt.is_some();
    if job_type.is_some_and(|kind| (kind == JobType::Agent) != is_prompt) {
        return Err(Failure::invalid("job_type is shell for a command, and agent for a prompt"));
    }
    let Times { kind, when, zone: own } = given.times()?;
    if own.is_some() && zone.is_some() {
        return Err(Failure::invalid("the zone is given more than once"));
    }
    let action = wanted.action()?;
    // The call's ID is the task's name, so that a call that is repeated makes no second task.
    let name = name.unwrap_or_else(|| format!("task-{}", short(&call.id())));
    let missed = Missed::word(missed.as_ref());
    let task = Task { zone: own.or(zone), missed, ..Task::once(name, when, action) };
    let task = Task { kind: kind.to_owned(), ..task };
    Ok(Output::text(answer::task(&schedule::put(task)?)))
}

/// Changes a task.
///
/// # Errors
///
/// There is no such task, nothing changes, or the host refuses it.
pub(crate) fn change(name: &str, change: Change) -> Result<Output, Failure> {
    let Change { enabled, schedule: times, command, prompt, tool, arguments } = change;
    if name.is_empty() {
        return Err(
            Failure::invalid("name is missing").with_suggestion("list_tasks lists the names.")
        );
    }
    let known = schedule::tasks()?.into_iter().find(|state| state.task.name == name);
    let TaskState { task, paused, .. } = known.ok_or_else(|| unknown(name))?;
    let wanted = Wanted { tool, arguments, prompt, command };
    let is_changed = times.is_some() || !wanted.is_empty();
    if is_changed {
        let mut task = task;
        if let Some(schedule) = times {
            let given = Given { schedule: Some(schedule), ..Given::default() };
            let Times { kind, when, zone } = given.times()?;
            (task.kind, task.when, task.zone) = (kind.to_owned(), when, zone.or(task.zone));
        }
        if !wanted.is_empty() {
            task.action = wanted.action()?;
        }
        schedule::put(task)?;
    } else if enabled.is_none() {
        return Err(Failure::invalid("the patch changes nothing"));
    }
    // A task that replaces another one isn't paused.
    let enabled = if enabled.is_none() && paused && is_changed { Some(false) } else { enabled };
    if let Some(enabled) = enabled {
        schedule::pause(name, !enabled)?;
    }
    let now = schedule::tasks()?.into_iter().find(|state| state.task.name == name);
    Ok(answer::stored(answer::task(&now.ok_or_else(|| unknown(name))?)))
}

fn short(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).take(NAME).collect()
}
