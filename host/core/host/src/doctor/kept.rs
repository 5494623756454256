//! `toolhold doctor`: checks whether stored state, such as sessions and approvals, can be read.

use toolhold_catalogue::plugins::PluginApprovals;
use toolhold_config::{self as config, Config, Folders};
use toolhold_contract::HostError;
use toolhold_schedule::Schedule;

use super::Finding;
use crate::approvals::Questions;
use crate::session;

/// Reports the number of files of each kind of stored state, and unreadable files.
pub(super) fn findings(folders: &Folders, loaded: &Config) -> Vec<Finding> {
    let sessions = session::count(folders);
    let questions = count_questions(folders);
    let approved = PluginApprovals::open(folders).all().map(|all| (all.len(), Vec::new()));
    let trusted = config::trusted(folders).map(|files| (files.len(), Vec::new()));
    let mut findings = count_findings("sessions", "kept", sessions);
    findings.extend(count_findings("questions", "waiting", questions));
    findings.extend(count_findings("approved plugins", "approved", approved));
    findings.extend(count_findings("trusted files", "trusted", trusted));
    findings.push(tasks(folders, loaded));
    findings
}

/// Counts the waiting questions, also those of principals.
fn count_questions(folders: &Folders) -> Result<(usize, Vec<HostError>), HostError> {
    let mut count = 0;
    let mut errors = Vec::new();
    for questions in Questions::all(folders)? {
        let (waiting, unreadable) = questions.waiting()?;
        count += waiting.len();
        errors.extend(unreadable);
    }
    Ok((count, errors))
}

/// Reports the number of waiting tasks, and whether a process runs them.
fn tasks(folders: &Folders, loaded: &Config) -> Finding {
    let name = "tasks";
    let schedule = Schedule::in_data(&folders.data);
    if !schedule.is_there() {
        return Finding::ok(name, "0 waiting");
    }
    let tasks_and_runner = schedule.tasks(None).and_then(|tasks| Ok((tasks, schedule.runner()?)));
    let (tasks, runner) = match tasks_and_runner {
        Ok(found) => found,
        Err(error) => return Finding::failure(name, error.to_string(), "follow the error message"),
    };
    let waiting = tasks.iter().filter(|task| task.is_waiting()).count();
    if waiting > 0 && !loaded.values.tools.scheduler.enabled {
        let found = format!("{waiting} waiting; tasks are disabled, so no task runs");
        return Finding::ok(name, found);
    }
    match runner {
        Some(runner) => Finding::ok(name, format!("{waiting} waiting, run by {runner}")),
        None if waiting == 0 => Finding::ok(name, "0 waiting"),
        None => Finding::warning(
            name,
            format!("{waiting} waiting, but no process runs tasks"),
            "toolhold tasks daemon, or toolhold tasks daemon --install, or toolhold serve",
        ),
    }
}

/// Reports the number of stored files of one kind, or the errors of unreadable files. `state` is
/// the state of the files in words, such as `waiting`.
fn count_findings(
    name: &str,
    state: &str,
    counted: Result<(usize, Vec<HostError>), HostError>,
) -> Vec<Finding> {
    let errors = match counted {
        Ok((count, errors)) if errors.is_empty() => {
            return vec![Finding::ok(name, format!("{count} {state}"))];
        }
        Ok((_, errors)) => errors,
        Err(error) => vec![error],
    };
    let fix = "fix the named file, or remove the file to start without its content";
    errors.iter().map(|error| Finding::failure(name, error.to_string(), fix)).collect()
}
