//! `/undo` in `toolhold chat`: plans and undoes the calls of the last turn.

use std::path::Path;

use toolhold_core::HostError;
use toolhold_core::config::{Config, Folders};
use toolhold_core::jobs::{self, JobState};
use toolhold_core::text::{counted, neutral, neutral_line};
use toolhold_core::undo::{self, UndoEntry};

/// Paths that are shown.
const SHOWN: usize = 20;

/// The calls of the session's last turn that can be undone, the newest first, and a description of
/// the changes for the person. `None`: there is no such turn. Blocks.
///
/// # Errors
///
/// The saved changes can't be read, or the calls can't be undone now.
pub(crate) fn plan(
    config: &Config,
    folders: &Folders,
    session: &str,
) -> Result<Option<(Vec<UndoEntry>, String)>, HostError> {
    let store = undo::store(config, folders);
    let saved = store.list().map_err(HostError::io("reading what calls changed"))?;
    let next = saved.into_iter().find(|about| about.is_next() && about.session == session);
    let Some(about) = next else { return Ok(None) };
    let calls = store.turn_of(&about).map_err(HostError::io("reading what calls changed"))?;
    let running = jobs::list_running(folders)?;
    let of_calls = running.iter().flat_map(|(_, jobs)| jobs).find(|job| {
        job.state == JobState::Running && calls.iter().any(|about| about.call == job.call)
    });
    if let Some(job) = of_calls {
        return Err(HostError::Config(format!(
            "a job that this call started still runs; stop the job first: `toolhold jobs stop {}`",
            job.id
        )));
    }
    let mut lines = Vec::new();
    for (at, about) in calls.iter().enumerate() {
        let plan = store.plan(&about.call).map_err(|error| HostError::Config(error.to_string()))?;
        lines.extend(plan.changes.iter().map(|it| described(&it.path, it.what.as_str())));
        // The changes of an earlier call are compared when the later calls are undone.
        if at == 0 {
            let left = plan.conflicts.iter();
            lines.extend(left.map(|it| described(&it.path, &format!("not restored: {}", it.why))));
        }
    }
    let mut text = format!("Undo {} of the last turn?\n", counted(calls.len(), "call"));
    text.extend(lines.iter().take(SHOWN).map(String::as_str));
    if lines.len() > SHOWN {
        text.push_str(&format!("  and {}\n", counted(lines.len() - SHOWN, "more path")));
    }
    Ok(Some((calls, text)))
}

fn described(path: &Path, what: &str) -> String {
    format!("  {}: {}\n", neutral_line(&path.display().to_string()), neutral_line(what))
}

/// Undoes the calls, and records that. Returns what to tell the person. Blocks.
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
    let mut failed = String::new();
    for about in calls {
        let undone = store.undo(&about.call);
        let error = undone.as_ref().err().map(ToString::to_string);
        let by = "the person in the chat";
        undo::record(config, folders, about, by, error.as_deref(), front_end)?;
        match undone {
            Ok(plan) => paths += plan.changes.len(),
            Err(error) => failed.push_str(&format!("\n{}", neutral(&error.to_string()))),
        }
    }
    Ok(format!("Undone: {}.{failed}", counted(paths, "path")))
}
