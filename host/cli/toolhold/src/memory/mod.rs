//! `toolhold memory`: searches, shows, edits, exports and deletes entries of the built-in memory.
//! The command uses the same file and the same code as the tools, so it also works while hosts run.

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

/// Runs the command in the working `directory`. Blocks.
///
/// # Errors
///
/// Returns an error if the entry doesn't exist, if the entries can't be read or written, or if the
/// person doesn't confirm a deletion.
pub(crate) fn run(
    command: &MemoryCommand,
    config: &Config,
    folders: &Folders,
    directory: &Path,
) -> Result<Exit, CommandError> {
    let entries = Entries::new(toolhold_core::memory(config, folders));
    let here = project_id(&directory.canonicalize()?);
    match command {
        MemoryCommand::Search { words, scope, limit, json } => {
            search(&entries, &words.join(" "), &prefix(*scope, &here), *limit, &here, *json)
        }
        MemoryCommand::Show { key, scope, json } => {
            show(&entries.find(key, &prefix(*scope, &here))?, &here, *json)
        }
        MemoryCommand::Edit { key, text, trusted, scope } => {
            let entry = entries.find(key, &prefix(*scope, &here))?;
            edit(&entries, entry, text.as_deref(), trusted.as_deref())
        }
        MemoryCommand::Export { scope } => export(&entries, &prefix(*scope, &here)),
        MemoryCommand::Delete { keys, all, scope, yes } => {
            if *all {
                delete_all(&entries, &prefix(*scope, &here), *scope, *yes)
            } else {
                delete(&entries, keys, &prefix(*scope, &here), &here)
            }
        }
    }
}

/// Returns the prefix of a scope's keys in the project `here`. Without a scope, the prefix is empty
/// and fits the keys of all scopes, projects and principals.
fn prefix(scope: Option<EntryScope>, here: &str) -> String {
    let user = user_id(None);
    match scope {
        None => String::new(),
        Some(EntryScope::User) => format!("user/{user}/"),
        Some(EntryScope::Session) => "session/".to_owned(),
        Some(EntryScope::Project) => format!("project/{user}/{here}/"),
    }
}

fn search(
    entries: &Entries,
    words: &str,
    prefix: &str,
    limit: u32,
    here: &str,
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
        print_head(&mut out, entry, here)?;
        let content = shown(&entry.content);
        let first: String = content.lines().next().unwrap_or_default().chars().take(200).collect();
        let more = if first.len() < content.trim_end().len() { " …" } else { "" };
        writeln!(out, "  {first}{more}")?;
    }
    Ok(Exit::Success)
}

/// Returns a text of an entry without secrets, and without characters that steer a terminal.
fn shown(text: &str) -> String {
    neutral(&redacted(text, Keys::Text)).into_owned()
}

fn print_head(out: &mut impl Write, entry: &MemoryEntry, here: &str) -> std::io::Result<()> {
    let key = neutral_line(entry.key());
    let about = about(entry, here);
    write!(out, "{STRONG}{key}{STRONG:#}  {FAINT}{about}{FAINT:#}")?;
    if entry.is_untrusted() {
        write!(out, "  {WARNING}untrusted{WARNING:#}")?;
    }
    writeln!(out)
}

/// Describes the day, the category and the scope of an entry.
fn about(entry: &MemoryEntry, here: &str) -> String {
    let scope = match entry.project() {
        Some(project) if project == here => "this project",
        Some(_) => "another project",
        None => entry.scope(),
    };
    neutral_line(&format!("{}, {}, {scope}", entry.day(), entry.category()))
}

fn show(entry: &MemoryEntry, here: &str, as_json: bool) -> Result<Exit, CommandError> {
    let mut out = anstream::stdout().lock();
    if as_json {
        writeln!(out, "{:#}", entry.json())?;
        return Ok(Exit::Success);
    }
    print_head(&mut out, entry, here)?;
    writeln!(out, "ID: {}", neutral_line(&entry.id))?;
    let front_end = neutral_line(&entry.text_of("front_end"));
    match neutral_line(&entry.text_of("call")) {
        call if call.is_empty() => writeln!(out, "saved by: {front_end}")?,
        call => writeln!(out, "saved by: {front_end} in call {call}")?,
    }
    if entry.is_untrusted() {
        writeln!(
            out,
            "The entry was saved after the session had read untrusted text, so models get it \
             fenced. If the text is correct, run `toolhold memory edit {} --trusted={}`.",
            neutral_line(&entry.id),
            entry.hash()
        )?;
    }
    writeln!(out, "\n{}", shown(&entry.content).trim_end())?;
    Ok(Exit::Success)
}

fn edit(
    entries: &Entries,
    entry: MemoryEntry,
    text: Option<&str>,
    trusted: Option<&str>,
) -> Result<Exit, CommandError> {
    let text = text.map(|text| redacted(text.trim(), Keys::Text).into_owned());
    if text.is_none() {
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
        check_seen(&entry, hash)?;
    }
    if let Some(text) = &text {
        let length = text.chars().count();
        if !(1..=entries::MAX_CONTENT).contains(&length) {
            return Err(CommandError::Usage(format!(
                "the text is {length} characters; it needs 1 to {}",
                entries::MAX_CONTENT
            )));
        }
    }
    let key = neutral_line(entry.key());
    entries.put(entry.edited(text))?;
    writeln!(anstream::stdout(), "Changed memory: {key}")?;
    Ok(Exit::Success)
}

/// Checks that the person has seen the text that becomes trusted, because a session may have
/// changed the text.
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
    if dialogue.yes_or_no(&question, false)? {
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

fn delete(
    entries: &Entries,
    keys: &[String],
    prefix: &str,
    here: &str,
) -> Result<Exit, CommandError> {
    let mut found = Vec::new();
    for key in keys {
        found.push(entries.find(key, prefix)?);
    }
    let mut out = anstream::stdout().lock();
    for entry in found {
        entries.delete(&entry.id)?;
        // Named entries are deleted without a question. A shown entry can be saved again.
        writeln!(out, "Deleted memory: {}", neutral_line(entry.key()))?;
        let about = about(&entry, here);
        let untrusted = if entry.is_untrusted() { ", untrusted" } else { "" };
        writeln!(out, "{FAINT}{about}{untrusted}{FAINT:#}")?;
        writeln!(out, "{}", shown(&entry.content).trim_end())?;
    }
    Ok(Exit::Success)
}

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
        if !dialogue.yes_or_no(&format!("Delete {what}?"), false)? {
            return Err(CommandError::Unasked("nothing is deleted".to_owned()));
        }
    }
    let count = entries.delete_prefix(prefix)?;
    let words = if count == 1 { "1 memory".to_owned() } else { format!("{count} memories") };
    writeln!(anstream::stdout(), "Deleted {words}")?;
    Ok(Exit::Success)
}
