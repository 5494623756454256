//! Notices that calls that run at the same time change or move the same paths. The paths of a
//! journal mean what its own call moved: what one call moves and another one changes, no undo can
//! bring back.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The calls of this process that run, by their ids.
#[derive(Debug, Default)]
pub(crate) struct RunningCalls(Mutex<HashMap<String, Changes>>);

/// What one of them has changed.
#[derive(Debug, Default)]
struct Changes {
    paths: HashSet<PathBuf>,
    /// From where, and to where.
    moves: Vec<[PathBuf; 2]>,
}

impl RunningCalls {
    fn calls(&self) -> MutexGuard<'_, HashMap<String, Changes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a call changes a path. Whether another one has moved something there.
    pub(crate) fn change(&self, call: &str, path: &Path) -> bool {
        let mut calls = self.calls();
        let mut others = calls.iter().filter(|(other, _)| *other != call);
        let is_moved = others.any(|(_, other)| {
            other.moves.iter().flatten().any(|end| path.starts_with(end) || end.starts_with(path))
        });
        calls.entry(call.to_owned()).or_default().paths.insert(path.to_owned());
        is_moved
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
