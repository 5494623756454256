//! Keeps the messages that a person typed in earlier chats, for each directory.

use std::path::Path;

use serde::{Deserialize, Serialize};
use toolhold_core::HostError;
use toolhold_core::config::Folders;
use toolhold_core::state;

/// The file in the folder of sessions' data.
const FILE: &str = "history.json";

const MAX_DIRECTORIES: usize = 50;

/// The most messages of one directory.
const MAX_MESSAGES: usize = 200;

/// The most bytes of a message.
const MAX_MESSAGE: usize = 4096;

#[derive(Default, Serialize, Deserialize)]
struct History {
    /// The directories. The last one has the newest message.
    directories: Vec<DirectoryHistory>,
}

#[derive(Serialize, Deserialize)]
struct DirectoryHistory {
    directory: String,
    messages: Vec<String>,
}

/// Reads the messages of a directory. The newest message is the last one. Blocks.
///
/// # Errors
///
/// Returns an error if the file is damaged, or if other users can write to it.
pub(crate) fn read(folders: &Folders, directory: &Path) -> Result<Vec<String>, HostError> {
    let history: History = state::read(&folders.data.join("chat"), FILE)?;
    let directory = directory.display().to_string();
    let entry = history.directories.into_iter().find(|entry| entry.directory == directory);
    Ok(entry.map(|entry| entry.messages).unwrap_or_default())
}

/// Adds a message. A long message isn't saved. Blocks.
///
/// # Errors
///
/// The file can't be changed.
pub(crate) fn add(folders: &Folders, directory: &Path, message: String) -> Result<(), HostError> {
    if message.len() > MAX_MESSAGE {
        return Ok(());
    }
    let directory = directory.display().to_string();
    state::update_lightly(&folders.data.join("chat"), FILE, |history: &mut History| {
        let index = history.directories.iter().position(|entry| entry.directory == directory);
        let mut entry = match index {
            Some(index) => history.directories.remove(index),
            None => DirectoryHistory { directory, messages: Vec::new() },
        };
        entry.messages.push(message);
        let old_messages = entry.messages.len().saturating_sub(MAX_MESSAGES);
        entry.messages.drain(..old_messages);
        history.directories.push(entry);
        let old_directories = history.directories.len().saturating_sub(MAX_DIRECTORIES);
        history.directories.drain(..old_directories);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_bounded_and_each_directory_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders {
            config: folder.path().join("config"),
            data: folder.path().join("data"),
            cache: folder.path().join("cache"),
            home: None,
        };
        let here = Path::new("/here");
        for number in 0..210 {
            add(&folders, here, format!("{number}")).unwrap();
        }
        add(&folders, here, "x".repeat(5000)).unwrap();
        for number in 0..49 {
            add(&folders, Path::new(&format!("/{number}")), "other".to_owned()).unwrap();
        }
        let messages = read(&folders, here).unwrap();
        assert_eq!((messages.len(), messages.last().map(String::as_str)), (200, Some("209")));
        add(&folders, Path::new("/more"), "other".to_owned()).unwrap();
        assert!(read(&folders, here).unwrap().is_empty(), "the oldest directory is forgotten");
    }
}
