//! Reads a saved call for its undo: whether the call still runs, when it changed files, and whether
//! it was undone.

use std::io::{self, BufReader, Write as _};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use toolhold_data_dir::PrivateFolder;

use super::folder::{Folder, JOURNAL, UndoEntry, now};
use super::journal::After;
use super::lines::{self, Line, moves};
use super::progress::{self, Step};
use super::tasks::{Action, tasks};

/// A saved call with its journal.
pub(crate) struct SavedCall {
    pub(crate) folder: PrivateFolder,
    pub(crate) about: UndoEntry,
    pub(crate) lines: Vec<Line>,
    /// The states after the call. `None` if the process was killed before the call ended.
    pub(crate) after: Option<After>,
}

impl SavedCall {
    /// Reads a call. Returns `None` if the call isn't saved.
    pub(crate) fn read(all: &Folder, call: &str) -> io::Result<Option<Self>> {
        let Some((folder, entry)) = all.find(call)? else { return Ok(None) };
        let mut lines = lines::read(&folder)?;
        if let Some(Line::Move(last)) = lines.last()
            && !is_running(&folder)
        {
            // The process was killed before it recorded the result. Later, the result of the move
            // can't be determined.
            let line = Line::Moved { moved: last.is_at(&last.to) };
            let text = format!("\n{}\n", serde_json::to_string(&line)?);
            folder.appended(JOURNAL)?.write_all(text.as_bytes())?;
            lines.push(line);
        }
        let after = match folder.file("after.json") {
            Ok(file) => Some(serde_json::from_reader::<_, After>(BufReader::new(file))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Some(Self { folder, about: entry, lines, after }))
    }

    /// Returns the time when the first change was saved and the time when the call ended. Returns
    /// `None` if no change was saved.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let began = self.lines.iter().find_map(Line::at)?;
        let ended = match &self.after {
            Some(after) => after.at,
            None => self.lines.iter().rev().find_map(Line::at)?,
        };
        Some((began, ended))
    }

    /// Checks whether the call changed something in a directory.
    pub(crate) fn changes_below(&self, directory: &Path) -> bool {
        self.lines.iter().any(|line| match line {
            Line::Before { path, .. } | Line::Lost { path, .. } => path.starts_with(directory),
            Line::Move(made) => [&made.from, &made.to].iter().any(|it| it.starts_with(directory)),
            Line::Moved { .. } => false,
        })
    }

    /// Checks whether an undo of the call has restored a path.
    pub(crate) fn has_restored(&self, path: &Path) -> bool {
        if self.about.undone {
            return true;
        }
        let tasks = tasks(&self.lines, &moves(&self.lines));
        let Ok(steps) = progress::read(&self.folder, tasks.len()) else { return false };
        let mut of_path = tasks.iter().zip(steps).filter(|(task, _)| match &task.action {
            Action::MoveBack(made) => made.to == path || made.from == path,
            action => action.path() == path,
        });
        of_path.all(|(_, step)| step == Step::Done)
    }

    /// Checks whether the call still runs, in any process.
    pub(crate) fn is_running(&self) -> bool {
        is_running(&self.folder)
    }

    /// Records that the call is undone, and removes its copies to make room.
    pub(crate) fn mark_undone(&self) -> io::Result<()> {
        for name in self.folder.names(usize::MAX)? {
            let number = name.strip_prefix("kept-").unwrap_or(&name);
            if number.bytes().all(|byte| byte.is_ascii_digit()) {
                self.folder.remove(&name)?;
            }
        }
        UndoEntry { undone: true, undo_at: Some(now()), ..self.about.clone() }.save(&self.folder)
    }

    /// Records the number of paths that were not restored.
    pub(crate) fn mark_left(&self, left: usize) -> io::Result<()> {
        UndoEntry { left, undo_at: Some(now()), ..self.about.clone() }.save(&self.folder)
    }
}

fn is_running(folder: &PrivateFolder) -> bool {
    let shared = FlockOperation::NonBlockingLockShared;
    let journal = folder.file(JOURNAL);
    journal.is_ok_and(|file| rustix::fs::flock(&file, shared) == Err(Errno::WOULDBLOCK))
}
