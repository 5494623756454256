//! Notices changes of the files that a configuration is read from.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use toolhold_contract::HostError;
use toolhold_system::watch::{FileStamp, FolderWatch, MAX_DELAY, QUIET};

use super::{Folders, Inputs};

/// The files from which a configuration is read, with their stamps.
#[derive(Debug)]
pub struct ConfigWatch {
    files: Vec<PathBuf>,
    /// The approvals of servers, a file for each.
    servers: PathBuf,
    stamps: Vec<Option<FileStamp>>,
    folders: FolderWatch,
}

impl ConfigWatch {
    /// Starts to watch. Call this function before the configuration is loaded, so that no change is
    /// missed.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the kernel can't create a watch.
    pub fn new(folders: &Folders, inputs: &Inputs) -> Result<Self, HostError> {
        let own = inputs.file.clone().unwrap_or_else(|| folders.config_file());
        let project = inputs.working_directory.as_ref().map(|folder| folder.join("toolhold.toml"));
        let mut files = vec![own, folders.data.join("trusted.json")];
        files.extend(project.into_iter().chain(inputs.defaults.clone()));
        files.extend(inputs.ceiling_files());
        let files = files.into_iter().map(absolute).collect();
        let servers = absolute(folders.servers());
        let watched = FolderWatch::new().map_err(HostError::io("watching the configuration"))?;
        let mut watch = Self { files, servers, stamps: Vec::new(), folders: watched };
        watch.stamps = watch.read_stamps();
        watch.renew();
        Ok(watch)
    }

    /// Watches the folders of the files, and the folders that links lead to. For a missing folder,
    /// the nearest existing folder above is watched.
    fn renew(&self) {
        let real = self.files.iter().filter_map(|file| file.canonicalize().ok());
        for file in self.files.iter().cloned().chain(real) {
            let Some(folder) = file.parent() else { continue };
            let watched = self.folders.watch(folder);
            tracing::debug!(file = %file.display(), ?watched, "the configuration is watched");
        }
        let watched = self.folders.watch(&self.servers);
        tracing::debug!(folder = %self.servers.display(), ?watched, "approvals are watched");
    }

    fn read_stamps(&self) -> Vec<Option<FileStamp>> {
        let servers = std::fs::read_dir(&self.servers).into_iter().flatten();
        let mut approvals: Vec<PathBuf> = servers
            .filter_map(|file| Some(file.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
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
            let mut stamps = self.read_stamps();
            if stamps == self.stamps {
                continue;
            }
            // A file that is being written may contain only the beginning of its rules.
            let deadline = Instant::now() + MAX_DELAY;
            loop {
                std::thread::sleep(QUIET);
                let later = self.read_stamps();
                if later == stamps || Instant::now() >= deadline {
                    break;
                }
                stamps = later;
            }
            if stamps != self.stamps {
                self.stamps = stamps;
                return Ok(());
            }
        }
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Returns the stamp of a file, or `None` if the file is missing. A folder is treated as a missing
/// file: while a command runs, an empty folder prevents the command from creating a
/// `toolhold.toml`. This folder isn't a change of the configuration.
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
