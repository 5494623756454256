//! `toolhold init --undo`: removes the written files, and reverts the connections.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolhold_core::NAME;
use toolhold_core::config::Folders;
use toolhold_data_dir::state;

use crate::arguments::connect::ConnectArguments;
use crate::ask;
use crate::changed_file::FileChange;
use crate::connect;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::shown;

const RECORD: &str = "init.json";

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct InitRecord {
    /// The configuration, and the secrets of imported servers.
    files: Vec<WrittenFile>,
    /// The folders that were made for imported servers.
    folders: Vec<PathBuf>,
    /// The names of the clients that were connected.
    clients: Vec<String>,
}

/// A file that was written.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct WrittenFile {
    path: PathBuf,
    /// The SHA-256 of the content in hexadecimal, because the content may be a secret.
    digest: String,
}

/// Records the files and folders that were just made, in place of an earlier record.
///
/// # Errors
///
/// Returns an error if a file can't be read, or if the record can't be written.
pub(super) fn record(
    folders: &Folders,
    written: &[PathBuf],
    made: Vec<PathBuf>,
) -> Result<(), Error> {
    let mut files = Vec::new();
    for path in written {
        let in_project = false;
        // The removal is only planned, because the plan contains the content.
        let Some(removal) = FileChange::removal(path, in_project)? else { continue };
        files.push(WrittenFile { path: path.clone(), digest: digest(&removal) });
    }
    state::update(&folders.data, RECORD, |record: &mut InitRecord| {
        *record = InitRecord { files, folders: made, clients: Vec::new() };
        Ok(())
    })?;
    Ok(())
}

pub(super) fn record_client(folders: &Folders, name: &str) -> Result<(), Error> {
    state::update(&folders.data, RECORD, |record: &mut InitRecord| {
        record.clients.push(name.to_owned());
        Ok(())
    })?;
    Ok(())
}

/// Reverts `toolhold init`. Files that were edited since stay.
///
/// # Errors
///
/// Fails if a file was edited or can't be removed. An edited file doesn't stop the rest.
pub(super) fn undo(folders: &Folders, yes: bool, options: &Options) -> Result<Exit, Error> {
    let record: InitRecord = state::read(&folders.data, RECORD)?;
    if record.files.is_empty() {
        writeln!(anstream::stderr(), "There is nothing to undo.")?;
        return Ok(Exit::Success);
    }
    let mut removals = Vec::new();
    let mut edited = Vec::new();
    for file in &record.files {
        let in_project = false;
        let Some(removal) = FileChange::removal(&file.path, in_project)? else { continue };
        if digest(&removal) == file.digest {
            removals.push(removal);
        } else {
            edited.push(shown::path(&file.path));
        }
    }
    if !removals.is_empty() && !yes {
        let Some(mut dialogue) = ask::open_dialogue("nothing was changed") else {
            let message = "there is no terminal to ask at; `--yes` undoes everything";
            return Err(Error::Unasked(message.to_owned()));
        };
        let paths: Vec<String> =
            removals.iter().map(|removal| shown::path(removal.path())).collect();
        let default_answer = true;
        if !dialogue.yes_or_no(&format!("Remove {}?", paths.join(", ")), default_answer)? {
            writeln!(anstream::stderr(), "Nothing was changed.")?;
            return Ok(Exit::Denied);
        }
    }
    for name in &record.clients {
        let arguments = ConnectArguments {
            undo: true,
            name: Some(NAME.to_owned()),
            ..ConnectArguments::of_client(name, yes)
        };
        connect::run(&arguments, options)?;
    }
    for removal in &removals {
        removal.write()?;
        writeln!(anstream::stdout(), "Removed {}.", shown::path(removal.path()))?;
    }
    for folder in &record.folders {
        remove_if_empty(folder);
    }
    state::update(&folders.data, RECORD, |record: &mut InitRecord| {
        *record = InitRecord::default();
        Ok(())
    })?;
    if edited.is_empty() {
        return Ok(Exit::Success);
    }
    Err(Error::Usage(format!(
        "these files were edited since `toolhold init` wrote them, so they were not removed: {}. \
         Everything else was taken back; remove these files yourself",
        edited.join(", ")
    )))
}

fn digest(removal: &FileChange) -> String {
    let digest = Sha256::digest(removal.before().unwrap_or_default());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes a folder that was made for a server, if the folder is empty.
fn remove_if_empty(folder: &Path) {
    let _ = std::fs::remove_dir(folder);
}
