//! A saved call, as it is read for its undo.

use std::io::{self, BufReader};
use std::path::Path;

use toolhold_private::PrivateFolder;

use super::folder::{Folder, UndoEntry};
use super::journal::After;
use super::lines::{self, Line};

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
        let lines = lines::read(&folder)?;
        let after = match folder.file("after.json") {
            Ok(file) => Some(serde_json::from_reader::<_, After>(BufReader::new(file))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Some(Self { folder, about: entry, lines, after }))
    }

    /// When the first change was saved, and when the call ended, as far as is known.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let began = self.lines.iter().find_map(Line::at)?;
        let ended = match &self.after {
            Some(after) => after.at,
            None => self.lines.iter().rev().find_map(Line::at)?,
        };
        Some((began, ended))
    }

    /// Whether the call changed something in a directory.
    pub(crate) fn changes_below(&self, directory: &Path) -> bool {
        self.lines.iter().any(|line| match line {
            Line::Before { path, .. } | Line::Lost { path, .. } => path.starts_with(directory),
            Line::Move(made) => [&made.from, &made.to].iter().any(|it| it.starts_with(directory)),
            Line::Moved { .. } => false,
        })
    }

    /// The call is undone. Its copies make room.
    pub(crate) fn mark_undone(&self) -> io::Result<()> {
        for name in self.folder.names(usize::MAX)? {
            let number = name.strip_prefix("kept-").unwrap_or(&name);
            if number.bytes().all(|byte| byte.is_ascii_digit()) {
                self.folder.remove(&name)?;
            }
        }
        UndoEntry { undone: true, ..self.about.clone() }.save(&self.folder)
    }

    /// So many paths are left.
    pub(crate) fn mark_left(&self, left: usize) -> io::Result<()> {
        UndoEntry { left, ..self.about.clone() }.save(&self.folder)
    }
}
