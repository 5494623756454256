//! `toolhold doctor`: checks whether stored state (sessions, questions, approved plugins, trusted
//! files, tasks) can be read and trusted.

use toolhold_catalogue::plugins::PluginApprovals;
use toolhold_config::{self as config, Config, Folders};
use toolhold_contract::HostError;
use toolhold_schedule::Schedule;

use super::Finding;
use crate::approvals::Questions;
use crate::session;

/// Checks whether the state that is stored between runs can be read and trusted.
pub(super) fn findings(folders: &Folders, loaded: &Config) -> Vec<Finding> {
    let approved = PluginApprovals::open(folders).all().map(|all| (all.len(), Vec::new()));
    let questions =
        Questions::open(folders).waiting().map(|(waiting, wrong)| (waiting.len(), wrong));
    let trusted = config::trusted(folders).map(|files| (files.len(), Vec::new()));
    [
        finding("sessions", "kept", session::count(folders)),
        finding("questions", "waiting", questions),
        finding("approved plugins", "approved", approved),
        finding("trusted files", "trusted", trusted),
        vec![tasks(folders, loaded)],
    ]
    .concat()
}

/// Checks whether a process runs the scheduled tasks.
fn tasks(folders: &Folders, loaded: &Config) -> Finding {
    let name = "tasks";
    let schedule = Schedule::in_data(&folders.data);
    if !schedule.is_there() {
        return Finding::ok(name, "0 waiting");
    }
    let state = schedule.tasks(None).and_then(|tasks| Ok((tasks, schedule.runner()?)));
    let (tasks, runner) = match state {
        Ok(state) => state,
        Err(error) => return Finding::failure(name, error.to_string(), "follow the error message"),
    };
    let waiting = tasks.iter().filter(|task| task.is_waiting()).count();
    if waiting > 0 && !loaded.values.tools.scheduler.enabled {
        let found = format!("{waiting} waiting; tasks are disabled, so none runs");
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

fn finding(
    name: &str,
    what: &str,
    counted: Result<(usize, Vec<HostError>), HostError>,
) -> Vec<Finding> {
    let errors = match counted {
        Ok((count, errors)) if errors.is_empty() => {
            return vec![Finding::ok(name, format!("{count} {what}"))];
        }
        Ok((_, errors)) => errors,
        Err(error) => vec![error],
    };
    let fix = "fix the named file, or remove it to start again without its content";
    errors.iter().map(|error| Finding::failure(name, error.to_string(), fix)).collect()
}
