//! Detects conflicting changes of concurrent calls: a call changes a path that another call moves,
//! or two calls change one file by different names.
//!
//! The paths of a journal depend only on the moves of its own call, and the state of a file is
//! saved for the name that the call used. So no undo could restore such changes.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::state::Identity;

/// The running calls of this process, by their ids.
#[derive(Debug, Default)]
pub(crate) struct RunningCalls(Mutex<HashMap<String, Changes>>);

/// The changes of one running call.
#[derive(Debug, Default)]
struct Changes {
    paths: HashSet<PathBuf>,
    /// The changed files, with the names by which they were first changed.
    files: HashMap<Identity, PathBuf>,
    /// From where, and to where.
    moves: Vec<[PathBuf; 2]>,
}

impl RunningCalls {
    fn calls(&self) -> MutexGuard<'_, HashMap<String, Changes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a call changes a path, and the file at this path. Returns `true` if another
    /// call has moved an object at the path, or has changed the file by another name.
    pub(crate) fn change(&self, call: &str, path: &Path, file: Option<Identity>) -> bool {
        let mut calls = self.calls();
        let mut others = calls.iter().filter(|(other, _)| *other != call);
        let is_shared = others.any(|(_, other)| {
            if let Some(file) = file
                && let Some(name) = other.files.get(&file)
                && name != path
            {
                return true;
            }
            let mut ends = other.moves.iter().flatten();
            ends.any(|end| path.starts_with(end) || end.starts_with(path))
        });
        let own = calls.entry(call.to_owned()).or_default();
        own.paths.insert(path.to_owned());
        if let Some(file) = file {
            own.files.entry(file).or_insert_with(|| path.to_owned());
        }
        is_shared
    }

    /// Records that a call moves an object. Returns `true` if another call has changed either path.
    pub(crate) fn rename(&self, call: &str, from: &Path, to: &Path) -> bool {
        let mut calls = self.calls();
        let mut others = calls.iter().filter(|(other, _)| *other != call);
        let is_changed = others.any(|(_, other)| {
            let mut ends = other.moves.iter().flatten();
            other.paths.iter().any(|path| is_below(path, from, to))
                || ends.any(|end| is_below(end, from, to) || from.starts_with(end))
        });
        let own = calls.entry(call.to_owned()).or_default();
        own.moves.push([from.to_owned(), to.to_owned()]);
        is_changed
    }

    /// Forgets a call that has ended.
    pub(crate) fn end(&self, call: &str) {
        self.calls().remove(call);
    }
}

/// Checks whether a path is one of the two paths of a move, or below one.
fn is_below(path: &Path, from: &Path, to: &Path) -> bool {
    path.starts_with(from) || path.starts_with(to)
}
