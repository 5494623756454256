//! Stores the messages that the person typed in earlier chats, for each directory.

use std::path::Path;

use serde::{Deserialize, Serialize};
use toolhold_core::HostError;
use toolhold_core::config::Folders;
use toolhold_core::state;

const FILE: &str = "history.json";

const MAX_DIRECTORIES: usize = 50;

const MAX_MESSAGES: usize = 200;

/// The most bytes of a message. Longer messages aren't stored.
const MAX_MESSAGE: usize = 4096;

#[derive(Default, Serialize, Deserialize)]
struct History {
    /// The directories in the order of their newest messages. The newest of all is in the last.
    directories: Vec<DirectoryHistory>,
}

#[derive(Serialize, Deserialize)]
struct DirectoryHistory {
    directory: String,
    messages: Vec<String>,
}

/// Returns the messages, the newest last. Blocks.
pub(crate) fn read(folders: &Folders, directory: &Path) -> Result<Vec<String>, HostError> {
    let history: History = state::read(&folders.data.join("chat"), FILE)?;
    let directory = directory.display().to_string();
    let entry = history.directories.into_iter().find(|entry| entry.directory == directory);
    Ok(entry.map(|entry| entry.messages).unwrap_or_default())
}

/// Adds a message that isn't too long to the history of a directory. Above the limits, removes the
/// oldest messages and directories. Blocks.
pub(crate) fn add(folders: &Folders, directory: &Path, message: String) -> Result<(), HostError> {
    if message.len() > MAX_MESSAGE {
        return Ok(());
    }
    let directory = directory.display().to_string();
    state::update_lightly(&folders.data.join("chat"), FILE, |history: &mut History| {
        // The directory now has the newest message of all, so it moves to the end.
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
        let folders = Folders::inside(folder.path());
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
