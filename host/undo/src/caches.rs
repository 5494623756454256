//! Caches that tools make again by themselves. They are large, and aren't saved.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::files::Place;
use super::state::State;

/// Names of folders that are caches if they have a valid `CACHEDIR.TAG`.
const CACHES: [&str; 6] = ["target", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"];

/// The beginning of a valid `CACHEDIR.TAG`, by its specification.
const CACHE_TAG: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Which folders are caches, as a call sees them. Only those that were so before it and those that
/// it has made: a tag that it puts into another folder, or another name, makes none of that.
#[derive(Debug, Default)]
pub(crate) struct Caches(Mutex<HashMap<PathBuf, Seen>>);

#[derive(Clone, Copy, Debug)]
enum Seen {
    Cache,
    /// It has no tag so far.
    Untagged,
    Other,
}

impl Caches {
    /// Whether a path lies in a cache. `made`: whether the call has made a folder.
    pub(crate) fn contain(&self, path: &Path, made: impl Fn(&Path) -> bool) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        path.ancestors().skip(1).filter(|folder| is_named(folder)).any(|folder| {
            let now = match seen.get(folder) {
                Some(known @ (Seen::Cache | Seen::Other)) => *known,
                before => match (before, is_tagged(folder)) {
                    (_, false) => Seen::Untagged,
                    (None, true) => Seen::Cache,
                    (Some(_), true) if made(folder) => Seen::Cache,
                    (Some(_), true) => Seen::Other,
                },
            };
            seen.insert(folder.to_owned(), now);
            matches!(now, Seen::Cache)
        })
    }

    /// Whether a folder that gets another path is a cache from then on, as cargo and pytest make
    /// theirs.
    pub(crate) fn begin(&self, from: &Path, to: &Path, made: impl Fn(&Path) -> bool) -> bool {
        if !is_named(to) {
            return false;
        }
        let begins = is_tagged(from) && made(from);
        let now = if begins { Seen::Cache } else { Seen::Other };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(to.to_owned(), now);
        begins
    }
}

/// The caches that a call has made.
#[derive(Debug)]
pub(crate) struct MadeCaches(Vec<PathBuf>);

impl MadeCaches {
    /// Finds them by the paths that the call changed, with what was there before.
    pub(crate) fn of_call(finals: &BTreeMap<PathBuf, State>) -> Self {
        let made = finals.iter().filter(|(path, before)| {
            **before == State::Missing && is_named(path) && is_tagged(path)
        });
        Self(made.map(|(path, _)| path.clone()).collect())
    }

    /// Whether an undo leaves a path as it is: it is in a cache, or a folder that was made around
    /// one.
    pub(crate) fn keep(&self, path: &Path, before: &State) -> bool {
        let keeps = |cache: &PathBuf| path.starts_with(cache) || cache.starts_with(path);
        *before == State::Missing && self.0.iter().any(keeps)
    }
}

fn is_named(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| CACHES.iter().any(|cache| name == *cache))
}

fn is_tagged(folder: &Path) -> bool {
    let mut begin = Vec::new();
    let read = Place::find(&folder.join("CACHEDIR.TAG"))
        .and_then(|place| place.open())
        .and_then(|file| file.take(CACHE_TAG.len() as u64).read_to_end(&mut begin));
    read.is_ok() && begin == CACHE_TAG
}
