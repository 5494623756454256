//! `toolhold connect CLIENT --undo`: takes back what connected a client.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use toolhold_core::config::Folders;
use toolhold_core::text::neutral;
use toolhold_mcp_client::client_files::{Client, ClientFileError, revert, servers};

use super::record::{ChangedFile, Connection, RecordKey};
use super::{command_line, confirm, run_or_print};
use crate::arguments::connect::ConnectArguments;
use crate::ask;
use crate::changed_file::FileChange;
use crate::error::Error;
use crate::exit::Exit;
use crate::mcp::moved;

/// Shows the change, asks, and takes back what connected the client.
pub(super) fn undo(client: &Client, arguments: &ConnectArguments) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let key = RecordKey::new(client, arguments.project)?;
    let connection = Connection::read(&folders, &key)?;
    let mut changes = Vec::new();
    for file in &connection.files {
        if let Some(change) = plan_file(client, file, arguments.project)? {
            changes.push((file, change));
        }
    }
    let mut diffs = Vec::new();
    for (file, change) in &changes {
        let known = servers(client, change.before().unwrap_or_default()).map_err(Error::usage)?;
        let diff = moved(known, None).hide(&change.diff());
        diffs.push(json!({ "file": file.path, "diff": diff }));
    }

    let has_command = !connection.undo_command.is_empty();
    if !arguments.json {
        let mut out = std::io::stdout().lock();
        if has_command {
            writeln!(out, "$ {}", command_line(&connection.undo_command))?;
        }
        for diff in &diffs {
            write!(out, "{}", neutral(diff["diff"].as_str().unwrap_or_default()))?;
        }
    }
    let is_empty = changes.is_empty() && !has_command;
    if is_empty && !arguments.json {
        writeln!(anstream::stderr(), "There is nothing to take back.")?;
        return Ok(Exit::Success);
    }
    if !arguments.json && !arguments.yes {
        let mut dialogue = ask::open_dialogue("nothing was changed");
        if !confirm(dialogue.as_mut(), "Take this back?")? {
            writeln!(anstream::stderr(), "Nothing was changed.")?;
            return Ok(Exit::Denied);
        }
    }
    if arguments.yes || !arguments.json {
        for (file, change) in &changes {
            write_back(file, change)?;
        }
        run_or_print(&connection.undo_command)?;
        Connection::clear(&folders, &key)?;
    }
    if arguments.json {
        let report = json!({
            "client": client.name,
            "changed": !is_empty,
            "written": arguments.yes,
            "files": diffs,
            "commands": if has_command { vec![&connection.undo_command] } else { Vec::new() },
        });
        writeln!(std::io::stdout().lock(), "{report:#}")?;
    }
    Ok(Exit::Success)
}

/// Plans the change that takes back the change of a file. Other changes since then stay.
fn plan_file(
    client: &Client,
    file: &ChangedFile,
    in_project: bool,
) -> Result<Option<FileChange>, Error> {
    let Some(removal) = FileChange::removal(&file.path, in_project)? else { return Ok(None) };
    let is_unchanged = removal.before() == Some(file.after.as_str());
    if is_unchanged && file.before.is_none() {
        return Ok(Some(removal));
    }
    let before = file.before.as_deref().unwrap_or_default();
    FileChange::plan(&file.path, in_project, |now| -> Result<String, ClientFileError> {
        if is_unchanged {
            return Ok(before.to_owned());
        }
        revert(client.format, now, before, &file.after)
    })
}

fn write_back(file: &ChangedFile, change: &FileChange) -> Result<(), Error> {
    change.write()?;
    if change.after().is_none()
        && file.made_folder
        && let Some(folder) = file.path.parent()
    {
        remove_if_empty(folder);
    }
    Ok(())
}

/// Removes the folder that was made for a file. It stays if others use it now.
fn remove_if_empty(folder: &Path) {
    let _ = std::fs::remove_dir(folder);
}
