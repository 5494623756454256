//! Stores the last exported record for each receiver, after which the next export continues.

use std::fs::{File, TryLockError};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toolhold_core::HostError;
use toolhold_core::audit::LogPosition;
use toolhold_core::config::Folders;
use toolhold_data_dir::PrivateFolder;

use crate::machine::short_hash;

const FOLDER: &str = "export";

/// The progress of an export. The lock prevents two exports to the same receiver.
pub(crate) struct Progress {
    folder: PrivateFolder,
    path: PathBuf,
    name: String,
    receiver: String,
    _lock: File,
}

#[derive(Default, Deserialize, Serialize)]
struct State {
    /// The receiver's name, only for people who read the file.
    receiver: String,
    position: Option<LogPosition>,
}

impl Progress {
    /// Opens and locks the progress of the exports to a receiver. Fails if another export to the
    /// receiver is running.
    pub(crate) fn open(folders: &Folders, receiver: String) -> Result<Self, HostError> {
        let path = folders.data.join(FOLDER);
        let folder = PrivateFolder::make(&folders.data)
            .and_then(|data| data.folder(FOLDER))
            .map_err(HostError::io(path.display().to_string()))?;
        // A receiver's name may contain slashes, so it can't be a file name.
        let hash = short_hash(&receiver);
        let lock = folder
            .updated(&format!("{hash}.lock"))
            .map_err(HostError::io(path.display().to_string()))?;
        match lock.try_lock() {
            Ok(()) => {
                let name = format!("{hash}.json");
                Ok(Self { folder, path, name, receiver, _lock: lock })
            }
            Err(TryLockError::WouldBlock) => {
                let error = std::io::Error::other(
                    "another `toolhold audit export` writes to the same destination; end that \
                     process first",
                );
                Err(HostError::io(format!("exporting to {receiver}"))(error))
            }
            Err(TryLockError::Error(error)) => {
                Err(HostError::io(path.display().to_string())(error))
            }
        }
    }

    pub(crate) fn load(&self) -> Result<Option<LogPosition>, HostError> {
        let state: State = toolhold_core::state::read(&self.path, &self.name)?;
        Ok(state.position)
    }

    pub(crate) fn save(&self, position: &LogPosition) -> Result<(), HostError> {
        let state = State { receiver: self.receiver.clone(), position: Some(position.clone()) };
        let text = serde_json::to_vec(&state).unwrap_or_default();
        let failed = HostError::io(self.path.join(&self.name).display().to_string());
        self.folder.put_lightly(&self.name, &text).map_err(failed)
    }
}
