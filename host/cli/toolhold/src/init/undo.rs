//! `toolhold init --undo`: removes the file that `toolhold init` wrote, and takes back the
//! connections that it made.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
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

/// The name of the record in the data folder.
const RECORD: &str = "init.json";

/// The changes that `toolhold init` made.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct InitRecord {
    /// The file that was written. Empty: none was.
    file: PathBuf,
    text: String,
    /// The names of the clients that were connected.
    clients: Vec<String>,
}

/// Records the file that was written.
///
/// # Errors
///
/// The record can't be written.
pub(super) fn record(folders: &Folders, file: &Path, text: String) -> Result<(), Error> {
    let file = file.to_owned();
    state::update(&folders.data, RECORD, |record: &mut InitRecord| {
        *record = InitRecord { file, text, clients: Vec::new() };
        Ok(())
    })?;
    Ok(())
}

/// Records that a client was connected.
///
/// # Errors
///
/// The record can't be written.
pub(super) fn record_client(folders: &Folders, name: &str) -> Result<(), Error> {
    state::update(&folders.data, RECORD, |record: &mut InitRecord| {
        record.clients.push(name.to_owned());
        Ok(())
    })?;
    Ok(())
}

/// Takes back what `toolhold init` did, unless the file was edited since.
///
/// # Errors
///
/// The file was edited, or can't be removed.
pub(super) fn undo(folders: &Folders, yes: bool, options: &Options) -> Result<Exit, Error> {
    let record: InitRecord = state::read(&folders.data, RECORD)?;
    if record.file.as_os_str().is_empty() {
        writeln!(anstream::stderr(), "There is nothing to take back.")?;
        return Ok(Exit::Success);
    }
    let file = shown::path(&record.file);
    let removal = FileChange::removal(&record.file, false)?;
    if let Some(removal) = &removal
        && removal.before() != Some(record.text.as_str())
    {
        return Err(Error::Usage(format!(
            "{file} was edited since `toolhold init` wrote it, so it stays, and nothing was taken \
             back; remove the file yourself"
        )));
    }
    if removal.is_some() && !yes {
        let Some(mut dialogue) = ask::open_dialogue("nothing was changed") else {
            let message = "there is no terminal to ask at; `--yes` takes everything back";
            return Err(Error::Unasked(message.to_owned()));
        };
        if !dialogue.yes_or_no(&format!("Remove {file}?"), true)? {
            writeln!(anstream::stderr(), "Nothing was changed.")?;
            return Ok(Exit::Denied);
        }
    }
    for name in &record.clients {
        let arguments = ConnectArguments { undo: true, ..ConnectArguments::of_client(name, yes) };
        connect::run(&arguments, options)?;
    }
    if let Some(removal) = removal {
        removal.write()?;
        writeln!(anstream::stdout(), "Removed {file}.")?;
    }
    state::update(&folders.data, RECORD, |record: &mut InitRecord| {
        *record = InitRecord::default();
        Ok(())
    })?;
    Ok(Exit::Success)
}
