//! The record of what `toolhold connect` changed, so that it can be taken back.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolhold_core::HostError;
use toolhold_core::config::Folders;
use toolhold_data_dir::state;
use toolhold_mcp_client::client_files::{Client, Format, revert};

use crate::changed_file::FileChange;
use crate::error::Error;

/// Bytes of a file whose change can be recorded. Settings that people write are shorter.
const LONGEST: usize = 1 << 20;

/// The changes that connect one client, for its user or for a project.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Connection {
    pub(super) files: Vec<ChangedFile>,
    /// The command that takes the server out of the client. Empty: no command added it.
    #[serde(default)]
    pub(super) undo_command: Vec<String>,
}

/// A file that was changed.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChangedFile {
    pub(super) path: PathBuf,
    /// The content before. `None`: there was no file.
    pub(super) before: Option<String>,
    /// The content that was written.
    pub(super) after: String,
    /// Whether the file's folder was made for it.
    pub(super) made_folder: bool,
}

/// The name of a record.
pub(super) struct RecordKey(String);

impl RecordKey {
    /// Names the record of a client, for its user or for the project of the working directory.
    ///
    /// # Errors
    ///
    /// The client has no file in a project, or the working directory isn't known.
    pub(super) fn new(client: &Client, in_project: bool) -> Result<Self, Error> {
        if !in_project {
            return Ok(Self(format!("{}.json", client.name)));
        }
        let file = client.project_file().map_err(Error::usage)?;
        let digest = Sha256::digest(file.as_os_str().as_encoded_bytes());
        let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("{}-{digits}.json", client.name)))
    }
}

impl Connection {
    /// Reads the record. Without one, nothing was changed.
    ///
    /// # Errors
    ///
    /// The record can't be read or trusted.
    pub(super) fn read(folders: &Folders, key: &RecordKey) -> Result<Self, Error> {
        Ok(state::read(&folder(folders), &key.0)?)
    }

    /// Records the change of a file. An earlier change of the same file is taken back together with
    /// this one.
    ///
    /// # Errors
    ///
    /// The file is too large, or the record can't be written.
    pub(super) fn add_file(
        folders: &Folders,
        key: &RecordKey,
        format: Format,
        change: &FileChange,
    ) -> Result<(), Error> {
        let path = change.path();
        let after = change.after().unwrap_or_default();
        let bytes = after.len().max(change.before().map_or(0, str::len));
        if bytes > LONGEST {
            return Err(Error::Usage(format!(
                "{} has {bytes} bytes, so the change can't be recorded for --undo; the limit is \
                 {LONGEST}",
                path.display()
            )));
        }
        let mut before = change.before().map(str::to_owned);
        let mut made_folder = !path.parent().is_some_and(Path::is_dir);
        let earlier = Self::read(folders, key)?.files.into_iter().find(|file| file.path == path);
        if let Some(earlier) = earlier {
            made_folder |= earlier.made_folder;
            before = before_both(&earlier, before, format)
                .map_err(|error| Error::Usage(format!("{}: {error}", path.display())))?;
        }
        let file =
            ChangedFile { path: path.to_owned(), before, after: after.to_owned(), made_folder };
        state::update(&folder(folders), &key.0, |connection: &mut Self| {
            connection.files.retain(|known| known.path != file.path);
            connection.files.push(file);
            Ok(())
        })?;
        Ok(())
    }

    /// Records that a command of the client added the server.
    ///
    /// # Errors
    ///
    /// The record can't be written.
    pub(super) fn add_command(
        folders: &Folders,
        key: &RecordKey,
        undo_command: &[String],
    ) -> Result<(), Error> {
        state::update(&folder(folders), &key.0, |connection: &mut Self| {
            connection.undo_command = undo_command.to_vec();
            Ok(())
        })?;
        Ok(())
    }

    /// Removes the record.
    ///
    /// # Errors
    ///
    /// The record can't be written.
    pub(super) fn clear(folders: &Folders, key: &RecordKey) -> Result<(), HostError> {
        state::update(&folder(folders), &key.0, |connection: &mut Self| {
            *connection = Self::default();
            Ok(())
        })
    }
}

/// Returns the content of a file without an earlier change of it. `now` is the content with it.
fn before_both(
    earlier: &ChangedFile,
    now: Option<String>,
    format: Format,
) -> Result<Option<String>, toolhold_mcp_client::client_files::ClientFileError> {
    let Some(now) = now else { return Ok(None) };
    if now == earlier.after {
        return Ok(earlier.before.clone());
    }
    let before = earlier.before.as_deref().unwrap_or_default();
    revert(format, &now, before, &earlier.after).map(Some)
}

fn folder(folders: &Folders) -> PathBuf {
    folders.data.join("connections")
}
