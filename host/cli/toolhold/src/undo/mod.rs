//! `toolhold undo`: restores files that calls changed.

use std::io::Write;

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

/// Calls that are listed.
const LISTED: usize = 50;

/// Nanoseconds in a second.
const NANOSECONDS: u64 = 1_000_000_000;

/// Lines of a diff that are shown.
const SHOWN_LINES: usize = 60;

/// Runs the command.
pub(crate) fn run(arguments: &UndoArguments, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    // A call is undone whatever it did to the working directory and to a `toolhold.toml` in it.
    let inputs = Inputs { working_directory: None, ..options.inputs()? };
    let config = config::load(&folders, &inputs).map_err(HostError::from)?;
    let store = undo::store(&config, &folders);
    let saved = store.list().map_err(HostError::io("reading what calls changed"))?;
    if arguments.list {
        return list(&saved, arguments.json);
    }
    let calls: Vec<UndoEntry> = match (&arguments.call, &arguments.session) {
        (Some(call), _) => {
            let known = saved.into_iter().find(|about| about.call == *call);
            vec![known.ok_or_else(|| unknown(call))?]
        }
        (None, Some(name)) => {
            let session = call::session(Some(&**name).filter(|name| !name.is_empty()), &folders)?
                .name()
                .to_string();
            saved.into_iter().filter(|about| !about.undone && *about.session == *session).collect()
        }
        (None, None) => {
            let newest = store.latest_in(&config::working_directory()?);
            newest.map_err(HostError::io("reading what calls changed"))?.into_iter().collect()
        }
    };
    let calls = match calls.first() {
        Some(about) if arguments.turn => {
            store.turn_of(about).map_err(HostError::io("reading what calls changed"))?
        }
        _ => calls,
    };
    if calls.is_empty() {
        return Err(Error::Usage(
            "there is nothing to undo in this directory; `toolhold undo --list` shows all calls \
             that changed files, including those that changed only times"
                .to_owned(),
        ));
    }
    let running = jobs::list_running(&folders)?;
    let of_calls = running.iter().flat_map(|(_, jobs)| jobs).find(|job| {
        job.state == JobState::Running && calls.iter().any(|about| about.call == job.call)
    });
    if let Some(JobSummary { id, call, .. }) = of_calls {
        return Err(Error::Usage(format!(
            "a job that call {call} started still runs; stop the job first: `toolhold jobs stop \
             {id}`"
        )));
    }
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for about in &calls {
        match one(about, arguments, &store, &config, &folders) {
            Ok(Some(changes)) => done.push(json!({ "call": about.call, "paths": changes })),
            Ok(None) => return Ok(Exit::Denied),
            // A call that can't be undone holds up no other.
            Err(Error::Usage(text)) => failed.push(text),
            Err(error) => return Err(error),
        }
    }
    if arguments.json {
        writeln!(anstream::stdout(), "{}", json!({ "undone": done }))?;
    }
    if failed.is_empty() { Ok(Exit::Success) } else { Err(Error::Usage(failed.join("\n"))) }
}

fn unknown(call: &str) -> Error {
    Error::Usage(format!(
        "no changes of the call `{}` are saved; `toolhold undo --list` shows the calls with saved \
         changes",
        neutral_line(call)
    ))
}

/// Undoes one call. Returns the changes. `None`: the user declined.
fn one(
    about: &UndoEntry,
    arguments: &UndoArguments,
    store: &UndoStore,
    config: &Config,
    folders: &Folders,
) -> Result<Option<Vec<serde_json::Value>>, Error> {
    let mut out = anstream::stdout();
    let only = arguments
        .path
        .as_deref()
        .map(std::path::absolute)
        .transpose()
        .map_err(HostError::io("finding the path"))?;
    let plan = store.plan_only(&about.call, only.as_deref()).map_err(failed)?;
    if only.is_some() && plan.changes.is_empty() && plan.conflicts.is_empty() {
        let message = "the call didn't change this path, or the path already has its earlier state";
        return Err(Error::Usage(message.to_owned()));
    }
    if !arguments.json {
        let tool = neutral_line(&about.tool);
        let call = neutral_line(&about.call);
        let who = about.who();
        let who = neutral_line(&who);
        writeln!(out, "{STRONG}{tool}{STRONG:#} {FAINT}{call}, by {who}{FAINT:#}")?;
        for change in &plan.changes {
            write!(out, "{}", described(change))?;
        }
        for conflict in &plan.conflicts {
            write!(out, "{}", described_conflict(conflict))?;
        }
        out.flush()?;
    }
    if !arguments.yes {
        let Some(mut dialogue) = ask::open_dialogue("nothing was changed") else {
            let session = arguments.session.as_ref().map(|name| format!("--session={name}"));
            return Err(Error::Unasked(format!(
                "there is no terminal to ask at, so nothing was changed; run: toolhold undo --yes {}",
                neutral_line(session.as_ref().unwrap_or(&about.call))
            )));
        };
        if !dialogue.yes_or_no("Undo this?", false)? {
            writeln!(out, "Nothing was changed.")?;
            return Ok(None);
        }
    }
    let by = format!("user {}", rustix::process::geteuid().as_raw());
    let undone = store.undo_only(&about.call, only.as_deref());
    let error = undone.as_ref().err().map(ToString::to_string);
    undo::record(config, folders, about, &by, error.as_deref(), "cli")?;
    let plan = undone.map_err(failed)?;
    if !arguments.json {
        writeln!(out, "Undone.")?;
    }
    let paths = plan.changes.iter().map(|change| {
        let (what, from) = word(&change.what);
        let mut said = json!({ "path": change.path.to_string_lossy(), "what": what });
        if let Some(from) = from {
            said["to"] = from.to_string_lossy().into();
        }
        said
    });
    Ok(Some(paths.collect()))
}

fn failed(error: UndoError) -> Error {
    match error {
        UndoError::Unreadable(error) => {
            HostError::io("reading what the call changed")(error).into()
        }
        error => Error::Usage(neutral(&error.to_string()).into_owned()),
    }
}

fn word(what: &ChangeKind) -> (&'static str, Option<&std::path::Path>) {
    match what {
        ChangeKind::MovedBack(from) => (what.as_str(), Some(from)),
        what => (what.as_str(), None),
    }
}

fn described(change: &UndoChange) -> String {
    let (what, from) = word(&change.what);
    let from = from.map_or(String::new(), |from| format!(" {}", shown::path(from)));
    let text = format!("  {}: {what}{from}\n", shown::path(&change.path));
    text + &difference(change.texts.as_ref())
}

/// A path that stays as it is, with both versions.
fn described_conflict(conflict: &UndoConflict) -> String {
    let why = neutral_line(&conflict.why);
    let text = format!("  {}: not restored: {why}\n", shown::path(&conflict.path));
    text + &difference(conflict.texts.as_ref())
}

fn difference(texts: Option<&(String, String)>) -> String {
    let mut text = String::new();
    if let Some((now, then)) = texts.filter(|(now, then)| now != then) {
        let diff = TextDiff::from_lines(now.as_str(), then.as_str())
            .unified_diff()
            .context_radius(1)
            .to_string();
        let lines = diff.lines().count();
        for line in diff.lines().take(SHOWN_LINES) {
            text += &format!("    {FAINT}{}{FAINT:#}\n", neutral_line(line));
        }
        if lines > SHOWN_LINES {
            text += &format!("    {FAINT}{}{FAINT:#}\n", counted(lines - SHOWN_LINES, "more line"));
        }
    }
    text
}

fn list(saved: &[UndoEntry], as_json: bool) -> Result<Exit, Error> {
    let mut out = anstream::stdout().lock();
    if as_json {
        let calls: Vec<_> = saved
            .iter()
            .map(|about| {
                json!({
                    "call": about.call,
                    "tool": about.tool,
                    "session": about.session,
                    "at": about.at / NANOSECONDS,
                    "undone": about.undone,
                    "only_times": about.only_times,
                })
            })
            .collect();
        writeln!(out, "{}", json!(calls))?;
        return Ok(Exit::Success);
    }
    if saved.is_empty() {
        writeln!(out, "No call changed files.")?;
    }
    for about in saved.iter().take(LISTED) {
        let ago = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |now| now.as_secs().saturating_sub(about.at / NANOSECONDS));
        let times = if about.only_times { ", changed only times" } else { "" };
        let undone = if about.undone { ", undone" } else { "" };
        writeln!(
            out,
            "{}  {STRONG}{}{STRONG:#}  {FAINT}{}, {} ago{times}{undone}{FAINT:#}",
            neutral_line(&about.call),
            neutral_line(&about.tool),
            neutral_line(&about.session),
            span(ago),
        )?;
    }
    if saved.len() > LISTED {
        writeln!(out, "{FAINT}{}{FAINT:#}", counted(saved.len() - LISTED, "older call"))?;
    }
    Ok(Exit::Success)
}

fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => counted(seconds / 86_400, "day"),
    }
}
