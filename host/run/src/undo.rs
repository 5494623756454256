//! `/undo` in `toolhold chat`.

use toolhold_core::HostError;
use toolhold_core::config::{Folders, Loaded};
use toolhold_core::jobs::{self, JobState};
use toolhold_core::text::{counted, neutral, neutral_line};
use toolhold_core::undo::{self, UndoEntry};

/// Paths that are shown.
const SHOWN: usize = 20;

/// The last call of a session that can be undone, and what that would do, for the person. `None`:
/// there is none. Blocks.
///
/// # Errors
///
/// What was saved can't be read, or the call can't be undone now.
pub(crate) fn plan(
    config: &Loaded,
    folders: &Folders,
    session: &str,
) -> Result<Option<(UndoEntry, String)>, HostError> {
    let store = undo::store(config, folders);
    let saved = store.list().map_err(HostError::io("reading what calls changed"))?;
    let next = saved.into_iter().find(|about| about.is_next() && about.session == session);
    let Some(about) = next else { return Ok(None) };
    let running = jobs::list_running(folders)?;
    let mut running = running.iter().flat_map(|(_, jobs)| jobs);
    if let Some(job) = running.find(|job| job.state == JobState::Running && job.call == about.call)
    {
        return Err(HostError::Config(format!(
            "the job that this call started still runs; stop it first: `toolhold jobs stop {}`",
            job.id
        )));
    }
    let plan = store.plan(&about.call).map_err(|error| HostError::Config(error.to_string()))?;
    let mut text = format!("Undo what {} changed?\n", neutral_line(&about.tool));
    for change in plan.changes.iter().take(SHOWN) {
        let path = neutral_line(&change.path.display().to_string());
        text.push_str(&format!("  {path}: {}\n", change.what.as_str()));
    }
    if plan.changes.len() > SHOWN {
        text.push_str(&format!("  and {}\n", counted(plan.changes.len() - SHOWN, "more path")));
    }
    Ok(Some((about, text)))
}

/// Undoes the call, and records that. Returns what to tell the person. Blocks.
///
/// # Errors
///
/// It can't be recorded.
pub(crate) fn carry_out(
    config: &Loaded,
    folders: &Folders,
    about: &UndoEntry,
    front_end: &str,
) -> Result<String, HostError> {
    let undone = undo::store(config, folders).undo(&about.call);
    let error = undone.as_ref().err().map(ToString::to_string);
    undo::record(config, folders, about, "the person in the chat", error.as_deref(), front_end)?;
    Ok(match undone {
        Ok(plan) => format!("Undone: {}.", counted(plan.changes.len(), "path")),
        Err(error) => neutral(&error.to_string()).into_owned(),
    })
}
