//! Records the changes of `toolhold connect`, so that `--undo` can revert them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolhold_core::HostError;
use toolhold_core::config::Folders;
use toolhold_data_dir::state;
use toolhold_mcp_client::client_files::{Client, Format, revert};

use crate::changed_file::FileChange;
use crate::error::Error;

/// The most bytes of a file that is changed. Settings that people write are shorter.
const MAX_FILE: usize = 1 << 20;

/// The bytes of the hash in the name of a project's record. They are enough, because two projects
/// hardly ever have the same bytes.
const HASH_BYTES: usize = 8;

/// The connections of one client, for its user or for a project.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Connections {
    /// The connections, the newest last.
    #[serde(default)]
    connections: Vec<Connection>,
}

/// The changes that connect a client under one name.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Connection {
    /// The server's name in the client.
    name: String,
    pub(super) files: Vec<ChangedFile>,
    /// The client's command that removes the server. It is empty if no command added the server.
    pub(super) undo_command: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChangedFile {
    pub(super) path: PathBuf,
    /// The content before the change, or `None` if there was no file.
    pub(super) before: Option<String>,
    pub(super) after: String,
    /// Whether the folder was created for the file.
    pub(super) made_folder: bool,
}

/// The file name of a record.
pub(super) struct RecordKey(String);

impl RecordKey {
    /// Names the record of a client, for example `cursor.json`. Each project has a record of its
    /// own, whose name contains a hash.
    pub(super) fn new(client: &Client, in_project: bool) -> Result<Self, Error> {
        if !in_project {
            return Ok(Self(format!("{}.json", client.name)));
        }
        let file = client.project_file().map_err(Error::usage)?;
        let digest = Sha256::digest(file.as_os_str().as_encoded_bytes());
        let digits: String =
            digest[..HASH_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("{}-{digits}.json", client.name)))
    }
}

impl Connections {
    /// Reads the record. A missing record has no connections.
    ///
    /// # Errors
    ///
    /// Returns an error if the record can't be read or trusted.
    pub(super) fn read(folders: &Folders, key: &RecordKey) -> Result<Self, Error> {
        Ok(state::read(&folder(folders), &key.0)?)
    }

    /// Records the change of a file for the server `name`. If the newest connection has the same
    /// name and changed the same file, both changes are joined.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is too large, or if the record can't be written.
    pub(super) fn add_file(
        folders: &Folders,
        key: &RecordKey,
        name: &str,
        format: Format,
        change: &FileChange,
    ) -> Result<(), Error> {
        let path = change.path();
        let after = change.after().unwrap_or_default();
        let bytes = after.len().max(change.before().map_or(0, str::len));
        if bytes > MAX_FILE {
            return Err(Error::Usage(format!(
                "{} has {bytes} bytes, so the change can't be recorded for --undo; the limit is \
                 {MAX_FILE}",
                path.display()
            )));
        }
        let mut before = change.before().map(str::to_owned);
        let mut made_folder = !path.parent().is_some_and(Path::is_dir);
        let recorded = Self::read(folders, key)?;
        let newest = recorded.connections.last().filter(|newest| newest.name == name);
        let earlier = newest.and_then(|newest| newest.files.iter().find(|file| file.path == path));
        if let Some(earlier) = earlier {
            made_folder = made_folder || earlier.made_folder;
            before = earlier.undone(before, format)?;
        }
        let file =
            ChangedFile { path: path.to_owned(), before, after: after.to_owned(), made_folder };
        state::update(&folder(folders), &key.0, |recorded: &mut Self| {
            let files = &mut recorded.newest_named(name).files;
            files.retain(|known| known.path != file.path);
            files.push(file);
            Ok(())
        })?;
        Ok(())
    }

    /// Records that the client's own command added the server `name`, and that `undo_command`
    /// removes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the record can't be written.
    pub(super) fn add_command(
        folders: &Folders,
        key: &RecordKey,
        name: &str,
        undo_command: &[String],
    ) -> Result<(), Error> {
        state::update(&folder(folders), &key.0, |recorded: &mut Self| {
            recorded.newest_named(name).undo_command = undo_command.to_vec();
            Ok(())
        })?;
        Ok(())
    }

    /// Returns the newest connection if it has this name, or adds a connection with this name.
    fn newest_named(&mut self, name: &str) -> &mut Connection {
        let has_name = self.connections.last().is_some_and(|newest| newest.name == name);
        if !has_name {
            self.connections.push(Connection { name: name.to_owned(), ..Connection::default() });
        }
        let newest = self.connections.len() - 1;
        &mut self.connections[newest]
    }

    /// Removes and returns the connections named `name`, or all connections, the newest first. The
    /// changes of removed connections are also removed from later changes of the same files.
    ///
    /// # Errors
    ///
    /// Returns an error if a change can't be removed from a later change.
    pub(super) fn take(
        &mut self,
        name: Option<&str>,
        format: Format,
    ) -> Result<Vec<Connection>, Error> {
        let mut taken = Vec::new();
        for index in (0..self.connections.len()).rev() {
            let is_other = name.is_some_and(|name| self.connections[index].name != name);
            if is_other {
                continue;
            }
            let connection = self.connections.remove(index);
            for later_connection in &mut self.connections[index..] {
                later_connection.take_out(&connection, format)?;
            }
            taken.push(connection);
        }
        Ok(taken)
    }

    /// Replaces the stored record by this record.
    ///
    /// # Errors
    ///
    /// Returns an error if the record can't be written.
    pub(super) fn write(self, folders: &Folders, key: &RecordKey) -> Result<(), HostError> {
        state::update(&folder(folders), &key.0, |recorded: &mut Self| {
            *recorded = self;
            Ok(())
        })
    }
}

impl Connection {
    /// Removes the changes of an `earlier` connection from the recorded contents of this
    /// connection's files, because these contents include the earlier changes.
    fn take_out(&mut self, earlier: &Self, format: Format) -> Result<(), Error> {
        for file in &mut self.files {
            let removed = earlier.files.iter().find(|removed| removed.path == file.path);
            let Some(removed) = removed else { continue };
            file.before = removed.undone(file.before.take(), format)?;
            let after = removed.undone(Some(file.after.clone()), format)?;
            // If the earlier change created the file, the file now starts empty.
            file.after = after.unwrap_or_default();
            if removed.made_folder {
                // Undoing this connection must now remove the folder.
                file.made_folder = true;
            }
        }
        Ok(())
    }
}

impl ChangedFile {
    /// Removes this change from `content`, the content of the file, in which later changes stay.
    /// `None` stands for a missing file.
    ///
    /// # Errors
    ///
    /// Returns an error if the change can't be removed.
    pub(super) fn undone(
        &self,
        content: Option<String>,
        format: Format,
    ) -> Result<Option<String>, Error> {
        let Some(content) = content else { return Ok(None) };
        if content == self.after {
            return Ok(self.before.clone());
        }
        // A missing file counts as empty.
        let before = self.before.as_deref().unwrap_or_default();
        match revert(format, &content, before, &self.after) {
            Ok(text) => Ok(Some(text)),
            Err(why) => {
                let path = self.path.display();
                Err(Error::Usage(format!("{path} isn't changed: {why}")))
            }
        }
    }
}

fn folder(folders: &Folders) -> PathBuf {
    folders.data.join("connections")
}
