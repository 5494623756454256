//! Notices that calls that run at the same time change what another one moves, or one file by two
//! names. The paths of a journal mean what its own call moved, and the state of a file is saved for
//! the name that the call used: such changes, no undo can bring back.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::state::Identity;

/// The calls of this process that run, by their ids.
#[derive(Debug, Default)]
pub(crate) struct RunningCalls(Mutex<HashMap<String, Changes>>);

/// What one of them has changed.
#[derive(Debug, Default)]
struct Changes {
    paths: HashSet<PathBuf>,
    /// Files, and the names by which they were changed first.
    files: HashMap<Identity, PathBuf>,
    /// From where, and to where.
    moves: Vec<[PathBuf; 2]>,
}

impl RunningCalls {
    fn calls(&self) -> MutexGuard<'_, HashMap<String, Changes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a call changes a path, and the file there. Whether another one has moved something
    /// there, or has changed the file by another name.
    pub(crate) fn change(&self, call: &str, path: &Path, file: Option<Identity>) -> bool {
        let mut calls = self.calls();
        let mut others = calls.iter().filter(|(other, _)| *other != call);
        let is_shared = others.any(|(_, other)| {
            let name = file.and_then(|file| other.files.get(&file));
            name.is_some_and(|name| name != path)
                || other
                    .moves
                    .iter()
                    .flatten()
                    .any(|it| path.starts_with(it) || it.starts_with(path))
        });
        let own = calls.entry(call.to_owned()).or_default();
        own.paths.insert(path.to_owned());
        if let Some(file) = file {
            own.files.entry(file).or_insert_with(|| path.to_owned());
        }
        is_shared
    }

    /// Notes that a call moves something. Whether another one has changed something there.
    pub(crate) fn rename(&self, call: &str, from: &Path, to: &Path) -> bool {
        let mut calls = self.calls();
        let is_near = |path: &PathBuf| path.starts_with(from) || path.starts_with(to);
        let mut others = calls.iter().filter(|(other, _)| *other != call);
        let is_changed = others.any(|(_, other)| {
            other.paths.iter().any(is_near)
                || other.moves.iter().flatten().any(|end| is_near(end) || from.starts_with(end))
        });
        let own = calls.entry(call.to_owned()).or_default();
        own.moves.push([from.to_owned(), to.to_owned()]);
        is_changed
    }

    /// The call has ended.
    pub(crate) fn end(&self, call: &str) {
        self.calls().remove(call);
    }
}
