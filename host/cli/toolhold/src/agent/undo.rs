//! `/undo` in `toolhold chat`: undoes the calls of the last turn.

use std::path::Path;

use toolhold_core::HostError;
use toolhold_core::config::{Config, Folders};
use toolhold_core::jobs::{self, JobState};
use toolhold_core::text::{counted, neutral, neutral_line};
use toolhold_core::undo::{self, UndoEntry};

/// Paths that are shown.
const SHOWN: usize = 20;

/// Returns the calls of the session's last turn that can be undone, the newest first, with a
/// description of the changes. Returns `None` if there is no such turn. Blocks.
///
/// # Errors
///
/// Returns an error if the saved changes can't be read, or if the calls can't be undone now.
pub(crate) fn plan(
    config: &Config,
    folders: &Folders,
    session: &str,
) -> Result<Option<(Vec<UndoEntry>, String)>, HostError> {
    let store = undo::store(config, folders);
    let saved = store.list().map_err(HostError::io("reading what calls changed"))?;
    let newest = saved.into_iter().find(|entry| entry.is_next() && entry.session == session);
    let Some(newest) = newest else { return Ok(None) };
    let calls = store.turn_of(&newest).map_err(HostError::io("reading what calls changed"))?;
    for (_, jobs) in jobs::list_running(folders)? {
        for job in jobs {
            let is_of_turn = calls.iter().any(|entry| entry.call == job.call);
            if is_of_turn && job.state == JobState::Running {
                return Err(HostError::Config(format!(
                    "a job that this call started still runs; stop the job first: `toolhold jobs \
                     stop {}`",
                    job.id
                )));
            }
        }
    }

    let mut lines = Vec::new();
    for (index, entry) in calls.iter().enumerate() {
        let plan = store.plan(&entry.call).map_err(|error| HostError::Config(error.to_string()))?;
        for change in &plan.changes {
            lines.push(path_line(&change.path, change.what.as_str()));
        }
        // An earlier call conflicts with the later calls until these are undone.
        if index == 0 {
            for conflict in &plan.conflicts {
                lines.push(path_line(&conflict.path, &format!("not restored: {}", conflict.why)));
            }
        }
    }
    let mut text = format!("Undo {} of the last turn?\n", counted(calls.len(), "call"));
    text.extend(lines.iter().take(SHOWN).map(String::as_str));
    if lines.len() > SHOWN {
        text.push_str(&format!("  and {}\n", counted(lines.len() - SHOWN, "more path")));
    }
    Ok(Some((calls, text)))
}

fn path_line(path: &Path, change: &str) -> String {
    format!("  {}: {}\n", neutral_line(&path.display().to_string()), neutral_line(change))
}

/// Undoes the calls, and records that. Returns a message for the person. Blocks.
///
/// # Errors
///
/// The undo can't be recorded.
pub(crate) fn carry_out(
    config: &Config,
    folders: &Folders,
    calls: &[UndoEntry],
    front_end: &str,
) -> Result<String, HostError> {
    let store = undo::store(config, folders);
    let mut paths = 0;
    let mut errors = String::new();
    for entry in calls {
        let result = store.undo(&entry.call);
        let error = result.as_ref().err().map(ToString::to_string);
        let by = "the person in the chat";
        undo::record(config, folders, entry, by, error.as_deref(), front_end)?;
        match result {
            Ok(plan) => paths += plan.changes.len(),
            Err(error) => errors.push_str(&format!("\n{}", neutral(&error.to_string()))),
        }
    }
    Ok(format!("Undone: {}.{errors}", counted(paths, "path")))
}
