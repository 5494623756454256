//! `toolhold memory`: searches, shows, edits, exports and deletes entries of the built-in memory,
//! in the file that running hosts use too.

pub(crate) mod command;
mod entries;

use std::io::Write;
use std::path::Path;

use serde_json::json;
use toolhold_core::config::{Config, Folders};
use toolhold_core::text::{neutral, neutral_line};
use toolhold_core::{project_id, user_id};
use toolhold_redaction::{Keys, text as redacted};
use toolhold_store::index::IndexQuery;
use toolhold_terminal::ask;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{FAINT, STRONG, WARNING};

use entries::{Entries, MemoryEntry};

use crate::arguments::memory::{EntryScope, MemoryCommand};

/// The most characters of an entry's text in a list.
const MAX_SHOWN: usize = 200;

pub(crate) fn run(
    command: &MemoryCommand,
    config: &Config,
    folders: &Folders,
    directory: &Path,
) -> Result<Exit, CommandError> {
    let entries = Entries::new(toolhold_core::memory(config, folders));
    let current_project = project_id(&directory.canonicalize()?);
    match command {
        MemoryCommand::Search { words, scope, limit, json } => search(
            &entries,
            &words.join(" "),
            &prefix(*scope, &current_project),
            *limit,
            &current_project,
            *json,
        ),
        MemoryCommand::Show { key, scope, json } => {
            show(&entries.find(key, &prefix(*scope, &current_project))?, &current_project, *json)
        }
        MemoryCommand::Edit { key, text, trusted, scope } => {
            let entry = entries.find(key, &prefix(*scope, &current_project))?;
            edit(&entries, entry, text.as_deref(), trusted.as_deref())
        }
        MemoryCommand::Export { scope } => export(&entries, &prefix(*scope, &current_project)),
        MemoryCommand::Delete { keys, all, scope, yes } => {
            if *all {
                delete_all(&entries, &prefix(*scope, &current_project), *scope, *yes)
            } else {
                delete(&entries, keys, &prefix(*scope, &current_project), &current_project)
            }
        }
    }
}

/// Returns the start of all IDs in a scope, which is empty for all scopes.
fn prefix(scope: Option<EntryScope>, current_project: &str) -> String {
    let user = user_id(None);
    match scope {
        None => String::new(),
        Some(EntryScope::User) => format!("user/{user}/"),
        Some(EntryScope::Session) => "session/".to_owned(),
        Some(EntryScope::Project) => format!("project/{user}/{current_project}/"),
    }
}

fn search(
    entries: &Entries,
    words: &str,
    prefix: &str,
    limit: u32,
    current_project: &str,
    as_json: bool,
) -> Result<Exit, CommandError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let query = IndexQuery { words, prefix, limit, ..IndexQuery::default() };
    let found = entries.search(&query)?;
    let mut out = anstream::stdout().lock();
    if as_json {
        let all: Vec<_> = found.iter().map(MemoryEntry::json).collect();
        writeln!(out, "{:#}", json!({ "entries": all }))?;
        return Ok(Exit::Success);
    }
    if found.is_empty() {
        writeln!(out, "No matching memories found")?;
    }
    for entry in &found {
        print_head(&mut out, entry, current_project)?;
        let content = shown(&entry.content);
        let first_line = content.lines().next().unwrap_or_default();
        let start: String = first_line.chars().take(MAX_SHOWN).collect();
        let more = if start.len() < content.trim_end().len() { " …" } else { "" };
        writeln!(out, "  {start}{more}")?;
    }
    Ok(Exit::Success)
}

/// Hides secrets, and removes control characters.
fn shown(text: &str) -> String {
    neutral(&redacted(text, Keys::Text)).into_owned()
}

fn print_head(
    out: &mut impl Write,
    entry: &MemoryEntry,
    current_project: &str,
) -> std::io::Result<()> {
    let key = neutral_line(entry.key());
    let about = about(entry, current_project);
    write!(out, "{STRONG}{key}{STRONG:#}  {FAINT}{about}{FAINT:#}")?;
    if entry.is_untrusted() {
        write!(out, "  {WARNING}untrusted{WARNING:#}")?;
    }
    writeln!(out)
}

/// Returns the day, the category and the scope of an entry.
fn about(entry: &MemoryEntry, current_project: &str) -> String {
    let scope = match entry.project() {
        Some(project) if project == current_project => "this project",
        Some(_) => "another project",
        None => entry.scope(),
    };
    neutral_line(&format!("{}, {}, {scope}", entry.day(), entry.category()))
}

/// Prints an entry with its origin.
fn show(entry: &MemoryEntry, current_project: &str, as_json: bool) -> Result<Exit, CommandError> {
    let mut out = anstream::stdout().lock();
    if as_json {
        writeln!(out, "{:#}", entry.json())?;
        return Ok(Exit::Success);
    }
    print_head(&mut out, entry, current_project)?;
    writeln!(out, "ID: {}", neutral_line(&entry.id))?;
    let front_end = neutral_line(&entry.text_of("front_end"));
    let call = neutral_line(&entry.text_of("call"));
    if call.is_empty() {
        writeln!(out, "saved by: {front_end}")?;
    } else {
        writeln!(out, "saved by: {front_end} in call {call}")?;
    }
    if entry.is_untrusted() {
        writeln!(
            out,
            "The entry was saved after the session had read untrusted text, so models get the \
             entry with marks around it. If the text is correct, run `toolhold memory edit {} \
             --trusted={}`.",
            neutral_line(&entry.id),
            entry.hash()
        )?;
    }
    writeln!(out, "\n{}", shown(&entry.content).trim_end())?;
    Ok(Exit::Success)
}

/// Changes the text of an entry, or marks its text as trusted. The person's own text is trusted
/// too. `trusted` is the value of `--trusted`, the hash of the text that the person has read.
fn edit(
    entries: &Entries,
    entry: MemoryEntry,
    text: Option<&str>,
    trusted: Option<&str>,
) -> Result<Exit, CommandError> {
    let text = text.map(|text| redacted(text.trim(), Keys::Text).into_owned());
    match &text {
        Some(text) => check_length(text)?,
        None => check_can_trust(&entry, trusted)?,
    }
    let key = neutral_line(entry.key());
    entries.put(entry.edited(text))?;
    writeln!(anstream::stdout(), "Changed memory: {key}")?;
    Ok(Exit::Success)
}

fn check_length(text: &str) -> Result<(), CommandError> {
    let length = text.chars().count();
    let is_length_valid = (1..=entries::MAX_CONTENT).contains(&length);
    if !is_length_valid {
        return Err(CommandError::Usage(format!(
            "the text is {length} characters; it needs 1 to {}",
            entries::MAX_CONTENT
        )));
    }
    Ok(())
}

/// Checks that the entry's text may become trusted. `trusted` is the value of `--trusted`.
fn check_can_trust(entry: &MemoryEntry, trusted: Option<&str>) -> Result<(), CommandError> {
    let Some(hash) = trusted else {
        return Err(CommandError::Usage(
            "nothing to change: give the new text, or `--trusted`".to_owned(),
        ));
    };
    if !entry.is_untrusted() {
        return Err(CommandError::Usage(
            "nothing to change: the entry is already trusted".to_owned(),
        ));
    }
    check_seen(entry, hash)
}

/// Checks that the person has seen the current text. `hash` is the hash of the text that the person
/// has read. If it is empty, shows the text and asks.
fn check_seen(entry: &MemoryEntry, hash: &str) -> Result<(), CommandError> {
    let show = format!("toolhold memory show {}", neutral_line(&entry.id));
    if hash == entry.hash() {
        return Ok(());
    }
    if !hash.is_empty() {
        return Err(CommandError::Unasked(format!(
            "nothing is changed: the text has another hash. Read the text again: `{show}`"
        )));
    }
    let Some(mut dialogue) = ask::open_dialogue("nothing is changed") else {
        return Err(CommandError::Unasked(format!(
            "there is no terminal to ask at: read the text with `{show}`, then repeat the command \
             with the printed hash, `--trusted=HASH`"
        )));
    };
    let question =
        format!("{}\nMark this text as trusted for all models?", shown(&entry.content).trim_end());
    let default_answer = false;
    if dialogue.yes_or_no(&question, default_answer)? {
        Ok(())
    } else {
        Err(CommandError::Unasked("nothing is changed".to_owned()))
    }
}

fn export(entries: &Entries, prefix: &str) -> Result<Exit, CommandError> {
    let mut out = anstream::stdout().lock();
    entries.each(prefix, |entry| Ok(writeln!(out, "{}", entry.json())?))?;
    Ok(Exit::Success)
}

/// Deletes and prints the entries with these keys. An unknown key must not leave only some entries
/// deleted, so all keys are looked up first.
fn delete(
    entries: &Entries,
    keys: &[String],
    prefix: &str,
    current_project: &str,
) -> Result<Exit, CommandError> {
    let mut found = Vec::new();
    for key in keys {
        found.push(entries.find(key, prefix)?);
    }
    let mut out = anstream::stdout().lock();
    for entry in found {
        entries.delete(&entry.id)?;
        // There is no question, because the person can save the printed text again.
        writeln!(out, "Deleted memory: {}", neutral_line(entry.key()))?;
        let about = about(&entry, current_project);
        let untrusted = if entry.is_untrusted() { ", untrusted" } else { "" };
        writeln!(out, "{FAINT}{about}{untrusted}{FAINT:#}")?;
        writeln!(out, "{}", shown(&entry.content).trim_end())?;
    }
    Ok(Exit::Success)
}

/// Deletes all entries of a scope. Asks first, unless `--yes` is set.
fn delete_all(
    entries: &Entries,
    prefix: &str,
    scope: Option<EntryScope>,
    yes: bool,
) -> Result<Exit, CommandError> {
    let what = match scope {
        None => "all memories".to_owned(),
        Some(EntryScope::Project) => "all memories of this project".to_owned(),
        Some(EntryScope::User) => "all memories of the user, but not of projects".to_owned(),
        Some(EntryScope::Session) => "all memories of sessions".to_owned(),
    };
    if !yes {
        let Some(mut dialogue) = ask::open_dialogue("nothing is deleted") else {
            return Err(CommandError::Unasked(format!(
                "deleting {what} needs approval: repeat the command with `--yes`"
            )));
        };
        let default_answer = false;
        if !dialogue.yes_or_no(&format!("Delete {what}?"), default_answer)? {
            return Err(CommandError::Unasked("nothing is deleted".to_owned()));
        }
    }
    let count = entries.delete_prefix(prefix)?;
    let words = if count == 1 { "1 memory".to_owned() } else { format!("{count} memories") };
    writeln!(anstream::stdout(), "Deleted {words}")?;
    Ok(Exit::Success)
}
