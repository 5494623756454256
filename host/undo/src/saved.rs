//! A saved call, as it is read for its undo.

use std::io::{self, BufRead, BufReader};

use toolhold_private::PrivateFolder;

use super::folder::{Folder, UndoEntry};
use super::journal::After;
use super::lines::Line;

/// A journal as it was read.
pub(crate) struct SavedCall {
    pub(crate) folder: PrivateFolder,
    pub(crate) about: UndoEntry,
    pub(crate) lines: Vec<Line>,
    /// `None`: the process was killed before the call ended.
    pub(crate) after: Option<After>,
}

impl SavedCall {
    /// Reads a call. `None`: nothing of it is saved.
    pub(crate) fn read(all: &Folder, call: &str) -> io::Result<Option<Self>> {
        let Some((folder, entry)) = all.find(call)? else { return Ok(None) };
        let mut lines = Vec::new();
        for line in BufReader::new(folder.file("journal.jsonl")?).lines() {
            // If the process was killed, the last line may be incomplete; its change wasn't made.
            lines.extend(serde_json::from_str::<Line>(&line?).ok());
        }
        let after = match folder.file("after.json") {
            Ok(file) => Some(serde_json::from_reader::<_, After>(BufReader::new(file))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Some(Self { folder, about: entry, lines, after }))
    }

    /// The file that has a byte for each step of an undo that is done.
    pub(crate) fn progress(&self) -> io::Result<std::fs::File> {
        self.folder.appended("progress")
    }

    /// Whether an undo has begun.
    pub(crate) fn is_begun(&self) -> io::Result<bool> {
        match self.folder.file("progress") {
            Ok(file) => Ok(file.metadata()?.len() > 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn mark_undone(&self) -> io::Result<()> {
        UndoEntry { undone: true, ..self.about.clone() }.save(&self.folder)
    }
}
