//! Detects conflicting changes of concurrent calls: a call changes a path that another call moves,
//! or two calls change one file by different names. An undo can't restore such changes, because a
//! journal knows only the moves of its own call, and saves a file only under the name that its call
//! used.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::state::Identity;

/// The running calls of this process, by ID.
#[derive(Debug, Default)]
pub(crate) struct RunningCalls(Mutex<HashMap<String, Changes>>);

#[derive(Debug, Default)]
struct Changes {
    paths: HashSet<PathBuf>,
    /// The changed files, each with its name at its first change.
    files: HashMap<Identity, PathBuf>,
    /// Source and target of each move.
    moves: Vec<[PathBuf; 2]>,
}

impl RunningCalls {
    fn calls(&self) -> MutexGuard<'_, HashMap<String, Changes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a call changes a path, and the file at this path. Returns true if another
    /// running call has moved an object at, above or below the path, or has changed the file by
    /// another name.
    pub(crate) fn change(&self, call: &str, path: &Path, file: Option<Identity>) -> bool {
        let mut calls = self.calls();
        let mut others = calls.iter().filter(|(other, _)| *other != call);
        let is_shared = others.any(|(_, other)| other.conflict_with_change(path, file));
        let own = calls.entry(call.to_owned()).or_default();
        own.paths.insert(path.to_owned());
        if let Some(file) = file {
            own.files.entry(file).or_insert_with(|| path.to_owned());
        }
        is_shared
    }

    /// Records that a call moves an object. Returns true if another running call has changed or
    /// moved an object at one of the two paths.
    pub(crate) fn rename(&self, call: &str, from: &Path, to: &Path) -> bool {
        let mut calls = self.calls();
        let mut others = calls.iter().filter(|(other, _)| *other != call);
        let is_changed = others.any(|(_, other)| other.conflict_with_move(from, to));
        let own = calls.entry(call.to_owned()).or_default();
        own.moves.push([from.to_owned(), to.to_owned()]);
        is_changed
    }

    pub(crate) fn end(&self, call: &str) {
        self.calls().remove(call);
    }
}

impl Changes {
    /// Checks whether another call's change of a path conflicts with these changes. `file` is the
    /// file at the path.
    fn conflict_with_change(&self, path: &Path, file: Option<Identity>) -> bool {
        if let Some(file) = file
            && let Some(name) = self.files.get(&file)
            && name != path
        {
            return true;
        }
        let mut moved_paths = self.moves.iter().flatten();
        moved_paths.any(|moved| path.starts_with(moved) || moved.starts_with(path))
    }

    fn conflict_with_move(&self, from: &Path, to: &Path) -> bool {
        if self.paths.iter().any(|path| is_below(path, from, to)) {
            return true;
        }
        let mut moved_paths = self.moves.iter().flatten();
        moved_paths.any(|moved| is_below(moved, from, to) || from.starts_with(moved))
    }
}

fn is_below(path: &Path, from: &Path, to: &Path) -> bool {
    path.starts_with(from) || path.starts_with(to)
}
