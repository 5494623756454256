//! `/undo` and `/rewind` in `toolhold chat`: undo the calls of the last turn, or of all turns since
//! a message.

use std::collections::BTreeMap;

use toolhold_core::HostError;
use toolhold_core::config::{Config, Folders};
use toolhold_core::jobs::{self, JobState};
use toolhold_core::text::{counted, neutral, neutral_line};
use toolhold_core::undo::{self, UndoEntry, UndoStore};

/// The most shown paths. A small terminal must also show the choices below the paths.
const SHOWN: usize = 10;

/// The outcome of an undo.
pub(crate) struct UndoOutcome {
    /// The message for the person.
    pub(crate) text: String,
    /// Whether all paths are restored.
    pub(crate) is_complete: bool,
}

/// Returns the undoable calls of the session's last turn, the newest first, and the question about
/// the undo. Returns `None` if the session has no undoable call. Blocks.
pub(crate) fn plan(
    config: &Config,
    folders: &Folders,
    session: &str,
) -> Result<Option<(Vec<UndoEntry>, String)>, HostError> {
    let store = undo::store(config, folders);
    let saved = store.list().map_err(HostError::io("reading the saved changes"))?;
    let newest = saved.into_iter().find(|entry| {
        let can_be_undone = entry.is_next();
        can_be_undone && entry.session == session
    });
    let Some(newest) = newest else { return Ok(None) };
    let calls = store.turn_of(&newest).map_err(HostError::io("reading the saved changes"))?;
    let changes = describe(&store, folders, &calls)?;
    let question = format!("Undo {} of the last turn?\n{changes}", counted(calls.len(), "call"));
    Ok(Some((calls, question)))
}

/// Returns the session's calls since the turn `turn` that aren't undone, the newest first. Also
/// returns a description of their changes. Blocks.
///
/// # Errors
///
/// Returns the errors of [`plan`].
pub(crate) fn plan_since(
    config: &Config,
    folders: &Folders,
    session: &str,
    turn: u64,
) -> Result<(Vec<UndoEntry>, String), HostError> {
    let store = undo::store(config, folders);
    let mut calls = store.list().map_err(HostError::io("reading the saved changes"))?;
    calls.retain(|entry| !entry.undone && entry.session == session);
    calls.retain(|entry| entry.turn.is_some_and(|entry_turn| entry_turn >= turn));
    let changes = describe(&store, folders, &calls)?;
    Ok((calls, changes))
}

/// Describes the undo of these calls, with one path per line.
fn describe(
    store: &UndoStore,
    folders: &Folders,
    calls: &[UndoEntry],
) -> Result<String, HostError> {
    for (_, jobs) in jobs::list_running(folders)? {
        for job in jobs {
            let is_of_calls = calls.iter().any(|entry| entry.call == job.call);
            if is_of_calls && job.state == JobState::Running {
                return Err(HostError::Config(format!(
                    "a job of this call still runs; stop the job first: `toolhold jobs stop {}`",
                    job.id
                )));
            }
        }
    }

    // Several calls may have changed the same path.
    let mut paths = BTreeMap::new();
    for (index, entry) in calls.iter().enumerate() {
        let plan = store.plan(&entry.call).map_err(|error| HostError::Config(error.to_string()))?;
        for change in plan.changes {
            paths.insert(change.path, change.what.as_str().to_owned());
        }
        // Only the conflicts of the newest call count, because undoing the later calls removes
        // those of the earlier calls.
        if index == 0 {
            for conflict in plan.conflicts {
                paths.insert(conflict.path, format!("not restored: {}", conflict.why));
            }
        }
    }
    let mut text = String::new();
    if calls.is_empty() {
        text.push_str("  no saved changes\n");
    }
    for (path, change) in paths.iter().take(SHOWN) {
        let path = neutral_line(&path.display().to_string());
        text.push_str(&format!("  {path}: {}\n", neutral_line(change)));
    }
    if paths.len() > SHOWN {
        text.push_str(&format!("  and {}\n", counted(paths.len() - SHOWN, "more path")));
    }
    Ok(text)
}

/// Undoes the calls, and records each undo in the audit log. Errors of single calls are in the
/// outcome. Blocks.
///
/// # Errors
///
/// Returns an error if an undo can't be recorded.
pub(crate) fn carry_out(
    config: &Config,
    folders: &Folders,
    calls: &[UndoEntry],
    front_end: &str,
) -> Result<UndoOutcome, HostError> {
    let store = undo::store(config, folders);
    let mut restored_paths = 0;
    let mut errors = String::new();
    for entry in calls {
        let result = store.undo(&entry.call);
        let error = result.as_ref().err().map(ToString::to_string);
        let by = "the person in the chat";
        undo::record(config, folders, entry, by, error.as_deref(), front_end)?;
        match result {
            Ok(plan) => restored_paths += plan.changes.len(),
            Err(error) => errors.push_str(&format!("\n{}", neutral(&error.to_string()))),
        }
    }
    let text = format!("Undone: {}.{errors}", counted(restored_paths, "path"));
    Ok(UndoOutcome { text, is_complete: errors.is_empty() })
}
