//! `toolhold run sessions`: lists, shows, exports and deletes sessions of the agent.

use std::fs::File;
use std::io::Write;

use serde_json::json;
use toolhold_agent::{Corrected, Rewound, SessionEntry, SessionStore, StoredSession, read_entries};
use toolhold_core::text::{cut, neutral, neutral_line};
use toolhold_models::Part;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{FAINT, STRONG};
use toolhold_terminal::table::Table;

use crate::agent::printer::describe_spending;
use crate::agent::{Surroundings, failed};
use crate::arguments::agent::SessionsCommand;

/// The most bytes of a shown result.
const MAX_SHOWN: usize = 2000;

pub(crate) async fn sessions(
    command: &SessionsCommand,
    around: &Surroundings<'_>,
) -> Result<Exit, CommandError> {
    let store = SessionStore::new(around.folders);
    match command {
        SessionsCommand::List { limit, json } => {
            match store.list(usize::try_from(*limit).unwrap_or(usize::MAX)) {
                Ok(sessions) => list(&sessions, *json)?,
                Err(error) => return Err(failed(error, around)),
            }
        }
        SessionsCommand::Show { id } => {
            for entry in read_entries(open_file(&store, id, around).await?) {
                show(&entry.map_err(CommandError::Write)?)?;
            }
        }
        SessionsCommand::Export { id } => {
            let mut file = open_file(&store, id, around).await?;
            std::io::copy(&mut file, &mut std::io::stdout().lock())?;
        }
        SessionsCommand::Delete { ids } => {
            // A wrong ID must not leave only some sessions removed, so all IDs are checked first.
            for id in ids {
                open_file(&store, id, around).await?;
            }
            for id in ids {
                if let Err(error) = store.remove(id) {
                    return Err(failed(error, around));
                }
            }
        }
    }
    Ok(Exit::Success)
}

async fn open_file(
    store: &SessionStore,
    id: &str,
    around: &Surroundings<'_>,
) -> Result<File, CommandError> {
    match store.file(id) {
        Ok(file) => Ok(file),
        Err(error) => Err(failed(error, around)),
    }
}

fn list(sessions: &[StoredSession], as_json: bool) -> Result<(), CommandError> {
    if as_json {
        writeln!(std::io::stdout().lock(), "{:#}", json!(sessions))?;
        return Ok(());
    }
    let mut out = anstream::stdout().lock();
    if sessions.is_empty() {
        writeln!(out, "There are no sessions; `toolhold run` starts one.")?;
        return Ok(());
    }
    let mut table = Table::new(["ID", "CHANGED", "DIRECTORY", "TITLE"], &[]);
    for session in sessions {
        // A time outside the calendar's range becomes 1970.
        let seconds = i64::try_from(session.changed).unwrap_or_default();
        let changed = jiff::Timestamp::from_second(seconds).unwrap_or_default();
        let directory = session.directory.clone();
        table.row([session.id.clone(), changed.to_string(), directory, session.title.clone()]);
        if let Some(outer_session) = &session.within {
            table.detail(&format!("for {outer_session}"));
        }
    }
    table.print(&mut out)?;
    Ok(())
}

fn show(entry: &SessionEntry) -> Result<(), CommandError> {
    let mut out = anstream::stdout().lock();
    match entry {
        SessionEntry::Began(began) => {
            let directory = neutral_line(&began.directory);
            let id = neutral_line(&began.id);
            let outer = match &began.within {
                Some(outer) => format!(", for {}", neutral_line(outer)),
                None => String::new(),
            };
            writeln!(out, "{FAINT}session {id} in {directory}{outer}{FAINT:#}")?;
        }
        SessionEntry::Task(task) => {
            let model = neutral_line(&task.settings.model);
            writeln!(out, "\n{STRONG}Person{STRONG:#} {FAINT}(to {model}){FAINT:#}")?;
            writeln!(out, "{}", neutral(&text_of(&task.parts)))?;
        }
        SessionEntry::Answer(answer) => {
            writeln!(out, "\n{STRONG}Agent{STRONG:#}")?;
            let text = answer.text();
            if !text.trim().is_empty() {
                writeln!(out, "{}", neutral(&text))?;
            }
            for call in answer.calls() {
                let arguments = neutral_line(cut(&call.arguments, MAX_SHOWN));
                writeln!(out, "{STRONG}{}{STRONG:#} {arguments}", neutral_line(&call.name))?;
            }
        }
        SessionEntry::Result(recorded) => {
            let name = neutral_line(&recorded.result.name);
            let failed = if recorded.result.failed { " (failed)" } else { "" };
            let text = text_of(&recorded.result.content);
            let shown = cut(&text, MAX_SHOWN);
            writeln!(out, "\n{STRONG}Result of {name}{STRONG:#}{failed}")?;
            writeln!(out, "{FAINT}{}{FAINT:#}", neutral(shown))?;
            if shown.len() < text.len() {
                writeln!(out, "{FAINT}[{} more bytes]{FAINT:#}", text.len() - shown.len())?;
            }
        }
        SessionEntry::Summary(_) => {}
        SessionEntry::Notice(text)
        | SessionEntry::Corrected(Corrected { notice: text, .. })
        | SessionEntry::Rewound(Rewound { notice: text, .. }) => {
            writeln!(out, "\n{FAINT}note: {}{FAINT:#}", neutral_line(text))?;
        }
        SessionEntry::Note(text) => {
            writeln!(out, "\n{STRONG}Toolhold{STRONG:#}\n{}", neutral(text))?;
        }
        SessionEntry::Pruned(pruned) => {
            writeln!(out, "\n{FAINT}{} old results were left out{FAINT:#}", pruned.len())?;
        }
        SessionEntry::Compressed(compressed) => {
            writeln!(out, "\n{STRONG}Summary{STRONG:#}\n{}", neutral(&compressed.summary))?;
        }
        SessionEntry::Delegated(delegated) => {
            let session = neutral_line(&delegated.session);
            let spent = describe_spending(&delegated.spent);
            writeln!(out, "{FAINT}handed on to session {session}: {spent}{FAINT:#}")?;
        }
        SessionEntry::Ended(ended) => {
            let serialized = json!(ended.ending.kind);
            let kind = serialized.as_str().unwrap_or_default();
            let reason = neutral_line(&ended.ending.reason);
            let spent = describe_spending(&ended.spent);
            writeln!(out, "\n{FAINT}{kind} {reason} {spent}{FAINT:#}")?;
        }
    }
    Ok(())
}

fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.clone(),
        Part::Image { media_type, .. } => format!("[an image, {media_type}]"),
    });
    texts.collect::<Vec<_>>().join("\n")
}
