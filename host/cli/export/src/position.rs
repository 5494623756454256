//! Stores the last exported record of a receiver, so that the next export continues there.

use std::fs::{File, TryLockError};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toolhold_core::HostError;
use toolhold_core::audit::LogPosition;
use toolhold_core::config::Folders;
use toolhold_data_dir::PrivateFolder;

use crate::machine::short_hash;

/// The folder in Toolhold's data folder.
const FOLDER: &str = "export";

/// The progress of an export. While this value exists, no other export can use the same receiver.
pub(crate) struct Progress {
    folder: PrivateFolder,
    path: PathBuf,
    name: String,
    receiver: String,
    _lock: File,
}

#[derive(Default, Deserialize, Serialize)]
struct State {
    /// For a person who looks at the file.
    receiver: String,
    position: Option<LogPosition>,
}

impl Progress {
    /// Opens the progress of the export to a receiver.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] if the folder can't be trusted, or if another export uses this
    /// receiver.
    pub(crate) fn open(folders: &Folders, receiver: String) -> Result<Self, HostError> {
        let path = folders.data.join(FOLDER);
        let folder = PrivateFolder::make(&folders.data)
            .and_then(|data| data.folder(FOLDER))
            .map_err(HostError::io(path.display().to_string()))?;
        let name = short_hash(&receiver);
        let lock = folder
            .updated(&format!("{name}.lock"))
            .map_err(HostError::io(path.display().to_string()))?;
        match lock.try_lock() {
            Ok(()) => {
                Ok(Self { folder, path, name: format!("{name}.json"), receiver, _lock: lock })
            }
            Err(TryLockError::WouldBlock) => {
                let error = std::io::Error::other(
                    "another `toolhold audit export` writes to the same place; end it first",
                );
                Err(HostError::io(format!("exporting to {receiver}"))(error))
            }
            Err(TryLockError::Error(error)) => {
                Err(HostError::io(path.display().to_string())(error))
            }
        }
    }

    /// Returns the last exported record, or `None` if no record has been exported.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] if the file can't be trusted, or if it is damaged.
    pub(crate) fn load(&self) -> Result<Option<LogPosition>, HostError> {
        let state: State = toolhold_core::state::read(&self.path, &self.name)?;
        Ok(state.position)
    }

    /// Saves the last exported record.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] with the file's name if the file can't be written.
    pub(crate) fn save(&self, position: &LogPosition) -> Result<(), HostError> {
        let state = State { receiver: self.receiver.clone(), position: Some(position.clone()) };
        let text = serde_json::to_vec(&state).unwrap_or_default();
        let failed = HostError::io(self.path.join(&self.name).display().to_string());
        self.folder.put_lightly(&self.name, &text).map_err(failed)
    }
}
