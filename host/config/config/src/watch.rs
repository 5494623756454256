//! Watches the files that a configuration is read from.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use toolhold_contract::HostError;
use toolhold_system::watch::{FileStamp, FolderWatch, MAX_DELAY, QUIET};

use super::{Folders, Inputs};

/// The files of a configuration, with their stamps.
#[derive(Debug)]
pub struct ConfigWatch {
    files: Vec<PathBuf>,
    /// The folders with the approvals of servers: the user's and the organisation's.
    servers: Vec<PathBuf>,
    stamps: Vec<Option<FileStamp>>,
    folders: FolderWatch,
}

impl ConfigWatch {
    /// Starts to watch the files of the configuration. Call this function before the configuration
    /// is loaded. Otherwise a change between the loading and the start would be missed.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Io`] if the kernel can't create a watch.
    pub fn new(folders: &Folders, inputs: &Inputs) -> Result<Self, HostError> {
        let user_file = inputs.file.clone().unwrap_or_else(|| folders.config_file());
        let project = inputs.working_directory.as_ref().map(|folder| folder.join("toolhold.toml"));
        let mut files = vec![user_file, folders.operator_data().join("trusted.json")];
        files.extend(project.into_iter().chain(inputs.defaults.clone()));
        files.extend(inputs.ceiling_files());

        let files = files.into_iter().map(absolute).collect();
        let servers = std::iter::once(folders.server_pins()).chain(inputs.organisation_servers());
        let servers = servers.map(absolute).collect();
        let folder_watch =
            FolderWatch::new().map_err(HostError::io("watching the configuration"))?;
        let mut watch = Self { files, servers, stamps: Vec::new(), folders: folder_watch };
        watch.stamps = watch.read_stamps();
        watch.renew();
        Ok(watch)
    }

    /// Watches the folders of the files, the folders to which links lead, and the folders of
    /// approvals. In place of a missing folder, the nearest existing parent folder is watched.
    fn renew(&self) {
        let real = self.files.iter().filter_map(|file| file.canonicalize().ok());
        for file in self.files.iter().cloned().chain(real) {
            let Some(folder) = file.parent() else { continue };
            let watched = self.folders.watch(folder);
            tracing::debug!(file = %file.display(), ?watched, "the configuration is watched");
        }
        for folder in &self.servers {
            let watched = self.folders.watch(folder);
            tracing::debug!(folder = %folder.display(), ?watched, "approvals are watched");
        }
    }

    /// Returns the states of the files and of the approvals, in a stable order.
    fn read_stamps(&self) -> Vec<Option<FileStamp>> {
        // Without a folder, there are no approvals.
        let listings = self.servers.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
        let entries = listings.flatten().flatten();
        let mut approvals: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        approvals.sort_unstable();
        self.files.iter().chain(&approvals).map(|file| stamp(file)).collect()
    }

    /// Waits until a file is replaced, or its contents change. Blocks.
    ///
    /// # Errors
    ///
    /// Returns the system's error if waiting fails.
    pub fn wait_for_change(&mut self) -> io::Result<()> {
        loop {
            self.folders.wait(&[])?;
            self.renew();
            let stamps = self.read_stamps();
            if stamps == self.stamps {
                continue;
            }
            let settled_stamps = self.wait_until_settled(stamps);
            if settled_stamps != self.stamps {
                self.stamps = settled_stamps;
                return Ok(());
            }
        }
    }

    /// Waits until the files stay the same, because a program may still be writing a file. Returns
    /// the last states.
    fn wait_until_settled(&self, mut stamps: Vec<Option<FileStamp>>) -> Vec<Option<FileStamp>> {
        let deadline = Instant::now() + MAX_DELAY;
        loop {
            std::thread::sleep(QUIET);
            let later = self.read_stamps();
            if later == stamps || Instant::now() >= deadline {
                return stamps;
            }
            stamps = later;
        }
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Returns `None` for a missing file and for a folder. While a command runs, an empty folder
/// prevents the command from creating a `toolhold.toml`, and this folder must not count as a change
/// of the configuration.
fn stamp(path: &Path) -> Option<FileStamp> {
    let metadata = path.metadata().ok()?;
    if metadata.is_file() { Some(FileStamp::from(&metadata)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_in_the_place_of_a_file_is_no_change() {
        let folder = tempfile::tempdir().expect("a folder is made");
        let path = folder.path().join("toolhold.toml");
        assert_eq!(stamp(&path), None);
        std::fs::create_dir(&path).expect("a folder is made");
        assert_eq!(stamp(&path), None);
        std::fs::remove_dir(&path).expect("it was there");
        std::fs::write(&path, "").expect("it is written");
        assert!(stamp(&path).is_some());
    }
}
