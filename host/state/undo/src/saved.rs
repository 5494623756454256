//! Reads a saved call for its undo.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use toolhold_data_dir::PrivateFolder;

use super::folder::{Folder, JOURNAL, UndoEntry, now};
use super::journal::After;
use super::lines::{self, Line, Move, moves, path_after};
use super::progress::{self, Step};
use super::tasks::{Action, tasks};

pub(crate) struct SavedCall {
    pub(crate) folder: PrivateFolder,
    pub(crate) entry: UndoEntry,
    pub(crate) lines: Vec<Line>,
    /// `None` if the process was killed before the call ended.
    pub(crate) after: Option<After>,
}

impl SavedCall {
    /// Reads the saved changes of a call. Returns `None` if no changes are saved.
    pub(crate) fn read(store: &Folder, call: &str) -> io::Result<Option<Self>> {
        let Some((folder, entry)) = store.find(call)? else { return Ok(None) };
        let mut lines = lines::read(&folder)?;
        // The result of the last move is missing if the process was killed.
        if let Some(Line::Move(last)) = lines.last()
            && !is_running(&folder)
        {
            let result = record_result(&folder, last)?;
            lines.push(result);
        }
        let after = match folder.file("after.json") {
            Ok(file) => Some(serde_json::from_reader::<_, After>(BufReader::new(file))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Some(Self { folder, entry, lines, after }))
    }

    /// Returns the times of the first save and of the end of the call. If the process was killed,
    /// the end is the last save. Returns `None` if the call saved no state.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let began = self.lines.iter().find_map(Line::at)?;
        let ended = match &self.after {
            Some(after) => after.at,
            None => self.lines.iter().rev().find_map(Line::at)?,
        };
        Some((began, ended))
    }

    /// Returns the paths that a person regards as changed, by their names after the call.
    pub(crate) fn changed_paths(&self) -> Vec<PathBuf> {
        let moves = moves(&self.lines);
        let mut paths = BTreeSet::new();
        for (path, before) in lines::changed_paths(&self.lines, &moves) {
            let now = self.after.as_ref().and_then(|after| after.states.get(&path));
            // Without its state after the call, a path may have changed.
            if now.is_none_or(|now| before.is_changed_to(now)) {
                paths.insert(path);
            }
        }
        for (index, made_move) in moves.iter().enumerate() {
            paths.insert(path_after(&moves[index + 1..], &made_move.to));
        }
        for line in &self.lines {
            if let Line::Lost { path, .. } = line {
                paths.insert(path.clone());
            }
        }
        paths.into_iter().collect()
    }

    pub(crate) fn changes_below(&self, directory: &Path) -> bool {
        self.lines.iter().any(|line| match line {
            Line::Before { path, .. } | Line::Lost { path, .. } => path.starts_with(directory),
            Line::Move(made_move) => {
                made_move.from.starts_with(directory) || made_move.to.starts_with(directory)
            }
            Line::Moved { .. } => false,
        })
    }

    pub(crate) fn has_restored(&self, path: &Path) -> bool {
        if self.entry.undone {
            return true;
        }
        let tasks = tasks(&self.lines, &moves(&self.lines));
        let Ok(steps) = progress::read(&self.folder, tasks.len()) else { return false };
        for (task, step) in tasks.iter().zip(steps) {
            let is_of_path = match &task.action {
                Action::MoveBack(made_move) => made_move.to == path || made_move.from == path,
                action => action.path() == path,
            };
            if is_of_path && step != Step::Done {
                return false;
            }
        }
        true
    }

    pub(crate) fn is_running(&self) -> bool {
        is_running(&self.folder)
    }

    /// Records the undo of the call, and removes the copies and the preserved files.
    pub(crate) fn mark_undone(&self) -> io::Result<()> {
        let no_limit = usize::MAX;
        for name in self.folder.names(no_limit)? {
            // The name of a copy is a number, and the name of a preserved file is `kept-NUMBER`.
            let number = name.strip_prefix("kept-").unwrap_or(&name);
            let is_copy_or_preserved = number.bytes().all(|byte| byte.is_ascii_digit());
            if is_copy_or_preserved {
                self.folder.remove(&name)?;
            }
        }
        UndoEntry { undone: true, undo_at: Some(now()), ..self.entry.clone() }.save(&self.folder)
    }

    pub(crate) fn mark_left(&self, left: usize) -> io::Result<()> {
        UndoEntry { left, undo_at: Some(now()), ..self.entry.clone() }.save(&self.folder)
    }
}

/// Records the result of the last move of a call whose process was killed. The result is recorded
/// at the first read, because later changes could hide it. Returns the new line.
fn record_result(folder: &PrivateFolder, last: &Move) -> io::Result<Line> {
    let line = Line::Moved { moved: last.is_at(&last.to) };
    // The first line feed ends an incomplete line.
    let text = format!("\n{}\n", serde_json::to_string(&line)?);
    folder.appended(JOURNAL)?.write_all(text.as_bytes())?;
    Ok(line)
}

fn is_running(folder: &PrivateFolder) -> bool {
    let shared = FlockOperation::NonBlockingLockShared;
    let journal = folder.file(JOURNAL);
    journal.is_ok_and(|file| rustix::fs::flock(&file, shared) == Err(Errno::WOULDBLOCK))
}
