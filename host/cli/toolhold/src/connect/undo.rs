//! `toolhold connect CLIENT --undo`: reverts the changes that connected a client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::path::Path;

use serde_json::json;
use toolhold_core::config::Folders;
use toolhold_core::text::neutral;
use toolhold_mcp_client::client_files::{Client, Format, servers};

use super::record::{ChangedFile, Connections, RecordKey};
use super::{command_line, confirm, run_or_print};
use crate::arguments::connect::ConnectArguments;
use crate::ask;
use crate::changed_file::FileChange;
use crate::error::Error;
use crate::exit::Exit;
use crate::mcp::moved;
use crate::shown;
use crate::style::STRONG;

/// Shows and reverts the changes that connected the client. Asks first, unless `--yes` is set.
pub(super) fn undo(client: &Client, arguments: &ConnectArguments) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let key = RecordKey::new(client, arguments.project)?;
    let mut recorded = Connections::read(&folders, &key)?;
    let undone = recorded.take(arguments.name.as_deref(), client.format)?;
    let mut files: BTreeMap<&Path, Vec<&ChangedFile>> = BTreeMap::new();
    let mut commands: Vec<&[String]> = Vec::new();
    for connection in &undone {
        for file in &connection.files {
            files.entry(&file.path).or_default().push(file);
        }
        let command = connection.undo_command.as_slice();
        if !command.is_empty() && !commands.contains(&command) {
            commands.push(command);
        }
    }
    let mut changes = Vec::new();
    for (path, files) in &files {
        if let Some(change) = plan_file(path, files, client.format, arguments.project)? {
            changes.push((files, change));
        }
    }
    let mut diffs = Vec::new();
    for (_, change) in &changes {
        let known = servers(client, change.before().unwrap_or_default()).map_err(Error::usage)?;
        let diff = moved(known, None).hide(&change.diff());
        diffs.push(json!({ "file": change.path(), "diff": diff }));
    }

    if !arguments.json {
        let mut out = std::io::stdout().lock();
        for command in &commands {
            writeln!(out, "$ {}", command_line(command))?;
        }
        for diff in &diffs {
            write!(out, "{}", neutral(diff["diff"].as_str().unwrap_or_default()))?;
        }
    }
    let is_empty = changes.is_empty() && commands.is_empty();
    if is_empty && !arguments.json {
        writeln!(anstream::stderr(), "There is nothing to undo.")?;
        return Ok(Exit::Success);
    }
    if !arguments.json && !arguments.yes {
        let mut dialogue = ask::open_dialogue("nothing was changed");
        if !confirm(dialogue.as_mut(), "Undo this change?")? {
            writeln!(anstream::stderr(), "Nothing was changed.")?;
            return Ok(Exit::Denied);
        }
    }
    if arguments.yes || !arguments.json {
        for (files, change) in &changes {
            write_back(files, change)?;
        }
        let mut done: Vec<String> = changes.iter().map(|(_, change)| undone_line(change)).collect();
        for command in &commands {
            if run_or_print(command)? {
                done.push(format!("Ran `{}`", command_line(command)));
            }
        }
        recorded.write(&folders, &key)?;
        if !arguments.json {
            describe_undo(client, &done)?;
        }
    }
    if arguments.json {
        let report = json!({
            "client": client.name,
            "changed": !is_empty,
            "written": arguments.yes,
            "files": diffs,
            "commands": commands,
        });
        writeln!(std::io::stdout().lock(), "{report:#}")?;
    }
    Ok(Exit::Success)
}

/// Returns a line that tells what a reverted change did to its file.
fn undone_line(change: &FileChange) -> String {
    let path = shown::path(change.path());
    match change.after() {
        Some(_) => format!("Restored {path}"),
        None => format!("Removed {path}, which `toolhold connect` had created"),
    }
}

/// Prints what was undone, and when it takes effect. If nothing was done, a command for the person
/// has been printed in its place.
fn describe_undo(client: &Client, done: &[String]) -> Result<(), Error> {
    if done.is_empty() {
        return Ok(());
    }
    let mut out = anstream::stderr();
    for line in done {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{STRONG}{} works as before from its next start on.{STRONG:#}", client.title)?;
    Ok(())
}

/// Plans the change that reverts `files`, the newest first. Other changes of the file stay. Returns
/// `None` if nothing changes.
fn plan_file(
    path: &Path,
    files: &[&ChangedFile],
    format: Format,
    in_project: bool,
) -> Result<Option<FileChange>, Error> {
    // A removal is planned in any case, because its plan contains the current content.
    let Some(removal) = FileChange::removal(path, in_project)? else { return Ok(None) };
    let mut text = removal.before().map(str::to_owned);
    for file in files {
        text = file.undone(text, format)?;
    }
    match text {
        None => Ok(Some(removal)),
        Some(text) => FileChange::plan(path, in_project, |_| Ok::<_, Infallible>(text)),
    }
}

/// Reverts `files`. If the file is removed, also removes a folder that was created for it and is
/// empty.
fn write_back(files: &[&ChangedFile], change: &FileChange) -> Result<(), Error> {
    change.write()?;
    let is_removed = change.after().is_none();
    let has_own_folder = files.iter().any(|file| file.made_folder);
    if is_removed
        && has_own_folder
        && let Some(folder) = change.path().parent()
    {
        remove_if_empty(folder);
    }
    Ok(())
}

/// Removes the folder, unless it has entries. In this case, `remove_dir` fails.
fn remove_if_empty(folder: &Path) {
    let _ = std::fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn undone_file_is_restored_or_removed() {
        let folder = tempfile::tempdir().expect("a folder is made");
        let path = folder.path().join("mcp.json");
        fs::write(&path, "{}\n").expect("a file is written");
        let in_project = false;
        let restored = FileChange::plan(&path, in_project, |_| Ok::<_, Infallible>(String::new()))
            .expect("the file can be read")
            .expect("its content changes");
        assert_eq!(undone_line(&restored), format!("Restored {}", path.display()));
        let removed = FileChange::removal(&path, in_project)
            .expect("the file can be read")
            .expect("the file is there");
        let line = undone_line(&removed);
        assert!(line.starts_with(&format!("Removed {}, ", path.display())), "{line}");
    }
}
