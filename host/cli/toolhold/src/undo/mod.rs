//! `toolhold undo`: restores files that calls changed.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use similar::TextDiff;
use toolhold_core::HostError;
use toolhold_core::config::{self, Config, Folders, Inputs};
use toolhold_core::jobs::{self, JobState, JobSummary};
use toolhold_core::text::{counted, neutral, neutral_line};
use toolhold_core::undo::{
    self, ChangeKind, UndoChange, UndoConflict, UndoEntry, UndoError, UndoStore,
};

use crate::arguments::UndoArguments;
use crate::ask;
use crate::call;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::shown;
use crate::style::{FAINT, STRONG};

/// The most listed calls.
const MAX_LISTED: usize = 50;

/// The most listed paths of a call.
const MAX_PATHS: usize = 3;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// The most lines of a diff. More lines are only counted.
const SHOWN_LINES: usize = 60;

/// The unchanged lines around a change in a diff.
const CONTEXT_LINES: usize = 1;

/// Undoes the calls of the command line, or lists the calls that changed files.
pub(crate) fn run(arguments: &UndoArguments, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    // The call may have changed the project's `toolhold.toml`, so this file isn't loaded.
    let inputs = Inputs { working_directory: None, ..options.inputs()? };
    let config = config::load(&folders, &inputs).map_err(HostError::from)?;
    let store = undo::store(&config, &folders);
    if arguments.list {
        return list(&saved_calls(&store)?, &store, arguments.json);
    }
    let calls = calls_to_undo(arguments, &store, &folders)?;
    if calls.is_empty() {
        if let Some(name) = &arguments.session
            && !name.is_empty()
        {
            return Err(nothing_in_session(name));
        }
        return Err(Error::Usage(
            "there is nothing to undo in this directory; `toolhold undo --list` shows all calls \
             that changed files, including those that changed only times. Changes by MCP \
             servers can't be undone"
                .to_owned(),
        ));
    }
    check_no_job_runs(&calls, &folders)?;

    let mut undone = Vec::new();
    let mut errors = Vec::new();
    for entry in &calls {
        match undo_call(entry, arguments, &store, &config, &folders) {
            Ok(Some(changes)) => undone.push(json!({ "call": entry.call, "paths": changes })),
            // The person refused the change.
            Ok(None) => return Ok(Exit::Denied),
            // Other calls may still be undone.
            Err(Error::Usage(message)) => errors.push(message),
            Err(error) => return Err(error),
        }
    }
    if arguments.json {
        writeln!(anstream::stdout(), "{}", json!({ "undone": undone }))?;
    }
    if errors.is_empty() { Ok(Exit::Success) } else { Err(Error::Usage(errors.join("\n"))) }
}

fn saved_calls(store: &UndoStore) -> Result<Vec<UndoEntry>, HostError> {
    store.list().map_err(HostError::io("reading the saved changes"))
}

/// Returns the calls of the command line, the newest first.
fn calls_to_undo(
    arguments: &UndoArguments,
    store: &UndoStore,
    folders: &Folders,
) -> Result<Vec<UndoEntry>, Error> {
    let calls: Vec<UndoEntry> = if let Some(call) = &arguments.call {
        let entry = saved_calls(store)?.into_iter().find(|entry| entry.call == *call);
        vec![entry.ok_or_else(|| unknown_call(call))?]
    } else if let Some(name) = &arguments.session {
        let names = recorded_names(name, folders)?;
        let mut calls = saved_calls(store)?;
        calls.retain(|entry| !entry.undone && names.contains(&entry.session));
        calls
    } else {
        let found = store.latest_in(&config::working_directory()?);
        let latest_call = found.map_err(HostError::io("reading the saved changes"))?;
        latest_call.into_iter().collect()
    };
    // `--turn` adds the other calls of the agent's turn.
    if arguments.turn
        && let Some(entry) = calls.first()
    {
        return Ok(store.turn_of(entry).map_err(HostError::io("reading the saved changes"))?);
    }
    Ok(calls)
}

/// Returns the names under which calls of the session `name` may be recorded. An empty name stands
/// for this directory's session.
fn recorded_names(name: &str, folders: &Folders) -> Result<Vec<String>, Error> {
    if name.is_empty() {
        let no_name = None;
        return Ok(vec![call::session(no_name, folders)?.name().to_string()]);
    }
    // The list shows the recorded name, and the agent shows its session's ID.
    let mut names = vec![name.to_owned(), format!("agent {name}")];
    // A recorded name may be too long for a session of `toolhold call`.
    if let Ok(session) = call::session(Some(name), folders) {
        names.push(session.name().to_string());
    }
    Ok(names)
}

fn nothing_in_session(name: &str) -> Error {
    Error::Usage(format!(
        "the session `{}` has no calls to undo; `toolhold undo --list` shows the calls that \
         changed files, with their sessions",
        neutral_line(name)
    ))
}

/// Fails if the job of a call is still running, because the job may change the files again.
fn check_no_job_runs(calls: &[UndoEntry], folders: &Folders) -> Result<(), Error> {
    for (_, jobs) in jobs::list_running(folders)? {
        for JobSummary { id, call, state, .. } in jobs {
            let is_of_calls = calls.iter().any(|entry| entry.call == call);
            if is_of_calls && state == JobState::Running {
                return Err(Error::Usage(format!(
                    "a job of the call {call} still runs; stop the job first: `toolhold jobs stop \
                     {id}`"
                )));
            }
        }
    }
    Ok(())
}

fn unknown_call(call: &str) -> Error {
    Error::Usage(format!(
        "no changes of the call `{}` are saved; `toolhold undo --list` shows the calls with saved \
         changes",
        neutral_line(call)
    ))
}

/// Undoes a call. Returns the changes as JSON, or `None` if the user refuses.
fn undo_call(
    entry: &UndoEntry,
    arguments: &UndoArguments,
    store: &UndoStore,
    config: &Config,
    folders: &Folders,
) -> Result<Option<Vec<serde_json::Value>>, Error> {
    let mut out = anstream::stdout();
    let only_path = match &arguments.path {
        Some(path) => Some(std::path::absolute(path).map_err(HostError::io("finding the path"))?),
        None => None,
    };
    let plan = store.plan_only(&entry.call, only_path.as_deref()).map_err(undo_error)?;
    if only_path.is_some() && plan.changes.is_empty() && plan.conflicts.is_empty() {
        let message = "the call didn't change this path, or the path already has its earlier state";
        return Err(Error::Usage(message.to_owned()));
    }

    if !arguments.json {
        let tool = neutral_line(&entry.tool);
        let call = neutral_line(&entry.call);
        let caller = neutral_line(&entry.who());
        writeln!(out, "{STRONG}{tool}{STRONG:#} {FAINT}{call}, by {caller}{FAINT:#}")?;
        for change in &plan.changes {
            write!(out, "{}", describe_change(change, arguments.yes))?;
        }
        for conflict in &plan.conflicts {
            write!(out, "{}", describe_conflict(conflict))?;
        }
        out.flush()?;
    }
    if !arguments.yes {
        let Some(mut dialogue) = ask::open_dialogue("nothing was changed") else {
            let argument = match &arguments.session {
                Some(name) => format!("--session={name}"),
                None => entry.call.clone(),
            };
            return Err(Error::Unasked(format!(
                "there is no terminal to ask at, so nothing was changed; run: toolhold undo --yes {}",
                shown::shell_word(&neutral_line(&argument))
            )));
        };
        let default_answer = false;
        if !dialogue.yes_or_no("Undo this?", default_answer)? {
            writeln!(out, "Nothing was changed.")?;
            return Ok(None);
        }
    }

    let by = format!("user {}", rustix::process::geteuid().as_raw());
    let result = store.undo_only(&entry.call, only_path.as_deref());
    let error = result.as_ref().err().map(ToString::to_string);
    undo::record(config, folders, entry, &by, error.as_deref(), "cli")?;
    let plan = result.map_err(undo_error)?;
    if !arguments.json {
        writeln!(out, "Undone.")?;
    }
    Ok(Some(plan.changes.iter().map(change_as_json).collect()))
}

fn change_as_json(change: &UndoChange) -> serde_json::Value {
    let what = change.what.as_str();
    let mut object = json!({ "path": change.path.to_string_lossy(), "what": what });
    if let ChangeKind::MovedBack(path) = &change.what {
        object["to"] = path.to_string_lossy().into();
    }
    object
}

fn undo_error(error: UndoError) -> Error {
    match error {
        UndoError::Unreadable(error) => HostError::io("reading the saved changes")(error).into(),
        error => Error::Usage(neutral(&error.to_string()).into_owned()),
    }
}

/// Describes a change that is made without a question or, unless `is_decided` is set, a proposed
/// change.
fn describe_change(change: &UndoChange, is_decided: bool) -> String {
    let path = shown::path(&change.path);
    let what = if is_decided { change.what.as_str() } else { describe_proposal(&change.what) };
    let mut text = format!("  {path}: {what}");
    if let ChangeKind::MovedBack(other_path) = &change.what {
        text += &format!(" {}", shown::path(other_path));
    }
    text += "\n";
    text + &difference(change.texts.as_ref())
}

/// Describes a change before the user decides. For a change that was made, use
/// [`ChangeKind::as_str`].
fn describe_proposal(what: &ChangeKind) -> &'static str {
    match what {
        ChangeKind::Removed => "would be removed",
        ChangeKind::Created => "would be brought back",
        ChangeKind::Restored => "would be restored",
        ChangeKind::Merged => "would be merged with later changes",
        ChangeKind::Permissions => "permissions would be restored",
        ChangeKind::MovedBack(_) => "would be moved back to",
    }
}

fn describe_conflict(conflict: &UndoConflict) -> String {
    let reason = neutral_line(&conflict.why);
    let text = format!("  {}: not restored: {reason}\n", shown::path(&conflict.path));
    text + &difference(conflict.texts.as_ref())
}

/// Returns the start of a diff from the current to the earlier text of a file. Returns nothing if
/// the change has no text.
fn difference(texts: Option<&(String, String)>) -> String {
    let Some((current, earlier)) = texts else { return String::new() };
    let text_diff = TextDiff::from_lines(current.as_str(), earlier.as_str());
    let diff = text_diff.unified_diff().context_radius(CONTEXT_LINES).to_string();
    let mut text = String::new();
    for line in diff.lines().take(SHOWN_LINES) {
        text += &format!("    {FAINT}{}{FAINT:#}\n", neutral_line(line));
    }
    let line_count = diff.lines().count();
    if line_count > SHOWN_LINES {
        let more = counted(line_count - SHOWN_LINES, "more line");
        text += &format!("    {FAINT}{more}{FAINT:#}\n");
    }
    text
}

fn list(saved: &[UndoEntry], store: &UndoStore, as_json: bool) -> Result<Exit, Error> {
    let mut out = anstream::stdout().lock();
    if as_json {
        let mut calls = Vec::new();
        for entry in saved {
            calls.push(json!({
                "call": entry.call,
                "tool": entry.tool,
                "session": entry.session,
                "at": entry.at / NANOSECONDS_PER_SECOND,
                "undone": entry.undone,
                "only_times": entry.only_times,
            }));
        }
        writeln!(out, "{}", json!(calls))?;
        return Ok(Exit::Success);
    }
    if saved.is_empty() {
        writeln!(out, "No call changed files.")?;
    }
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = since_epoch.unwrap_or_default().as_secs();
    let directory = config::working_directory()?;
    for entry in saved.iter().take(MAX_LISTED) {
        let call = neutral_line(&entry.call);
        let tool = neutral_line(&entry.tool);
        let session = neutral_line(&entry.session);
        let age = format_seconds(now.saturating_sub(entry.at / NANOSECONDS_PER_SECOND));
        let times = if entry.only_times { ", changed only timestamps" } else { "" };
        let undone = if entry.undone { ", undone" } else { "" };
        writeln!(
            out,
            "{call}  {STRONG}{tool}{STRONG:#}  {FAINT}{session}, {age} ago{times}{undone}{FAINT:#}"
        )?;
        // The undo of an unreadable call tells the reason.
        let paths = store.changed_paths(&entry.call).unwrap_or_default();
        if !paths.is_empty() {
            writeln!(out, "  {}", describe_paths(&paths, &directory))?;
        }
    }
    if saved.len() > MAX_LISTED {
        writeln!(out, "{FAINT}{}{FAINT:#}", counted(saved.len() - MAX_LISTED, "older call"))?;
    }
    Ok(Exit::Success)
}

/// Names the first paths, and counts the others. Paths in `directory` are relative.
fn describe_paths(paths: &[PathBuf], directory: &Path) -> String {
    let mut names = Vec::new();
    for path in paths.iter().take(MAX_PATHS) {
        names.push(shown::path(path.strip_prefix(directory).unwrap_or(path)));
    }
    let text = names.join(", ");
    let left_out = paths.len() - names.len();
    if left_out > 0 { format!("{text} and {left_out} more") } else { text }
}

/// Returns a time in the largest unit of which at least one has passed.
fn format_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => counted(seconds / 86_400, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_paths_are_named_and_the_others_are_counted() {
        let mut paths: Vec<PathBuf> = ["/w/a", "/w/b/c", "/x\n"].map(PathBuf::from).to_vec();
        let named = describe_paths(&paths, Path::new("/w"));
        assert!(named.starts_with("a, b/c, /x") && !named.contains('\n'), "{named}");
        paths.extend(["/y", "/z"].map(PathBuf::from));
        let named = describe_paths(&paths, Path::new("/w"));
        assert!(named.starts_with("a, b/c, /x") && named.ends_with(" and 2 more"), "{named}");
    }
}
