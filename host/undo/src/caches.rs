//! Caches that tools make again by themselves. They are large: what changes in one isn't saved, and
//! one that a call has made is removed as a whole.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::FileType;

use super::files::Place;
use super::lines::{Line, Move, present};
use super::state::State;

/// Names of folders that are caches if they have a valid `CACHEDIR.TAG`.
const CACHES: [&str; 6] = ["target", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"];

/// The mark of a cache, and its beginning, by its specification.
const TAG: &str = "CACHEDIR.TAG";
const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// The caches that were there before the commands of a call.
#[derive(Debug, Default)]
pub(crate) struct Caches(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Whether a folder is such a cache, by its path. It is looked at before anything changes in
    /// it, so a tag or a name that a command gives to a folder makes none of it.
    folders: HashMap<PathBuf, bool>,
    /// What was moved into one.
    moved_in: HashSet<PathBuf>,
}

impl Caches {
    /// Whether something that is about to change lies in a cache.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        let mut seen = self.seen();
        seen.look(path);
        !path.ancestors().any(|above| seen.moved_in.contains(above))
            && path.ancestors().skip(1).any(|folder| seen.look(folder))
    }

    /// Something is about to be moved. What comes from outside of a cache into it isn't a part of
    /// it.
    pub(crate) fn moves(&self, from: &Path, to: &Path, into_cache: bool) {
        let mut seen = self.seen();
        if into_cache {
            seen.moved_in.insert(to.to_owned());
        }
        let inner = |(folder, known): (&PathBuf, &bool)| {
            Some((to.join(folder.strip_prefix(from).ok()?), *known))
        };
        let inner: Vec<_> = seen.folders.iter().filter_map(inner).collect();
        seen.folders.extend(inner);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn look(&mut self, folder: &Path) -> bool {
        if !is_named(folder) {
            return false;
        }
        let is_there = folder.symlink_metadata().is_ok_and(|there| there.is_dir());
        let known = self.folders.entry(folder.to_owned()).or_insert_with(|| is_tagged(folder));
        // What is made there is new.
        *known &= is_there;
        *known
    }
}

/// The caches that a call has made, by their paths after it.
#[derive(Debug, Default)]
pub(crate) struct MadeCaches {
    folders: HashSet<PathBuf>,
    /// Which of the call's moves were made within one.
    moves: HashSet<usize>,
}

impl MadeCaches {
    /// Finds them by what the call changed. None is a cache into which something was moved.
    pub(crate) fn of_call(
        finals: &BTreeMap<PathBuf, State>,
        lines: &[Line],
        moves: &[Move],
    ) -> Self {
        let is_new = |(path, before): &(&PathBuf, &State)| {
            **before == State::Missing
                && is_named(path)
                && is_tagged(path)
                && is_made(lines, moves, path)
        };
        let found = finals.iter().filter(is_new).map(|(path, _)| path.clone());
        let mut made = Self { folders: found.collect(), ..Self::default() };
        let ends = |at: usize, made: &Move| {
            let later = &moves[at + 1..];
            (present(later, &made.from), present(later, &made.to))
        };
        if made.folders.is_empty() {
            return made;
        }
        for (at, one) in moves.iter().enumerate() {
            let (from, to) = ends(at, one);
            match (made.inside(&from), made.inside(&to)) {
                (one, other) if one == other => {}
                (one, other) => {
                    for cache in [one, other].into_iter().flatten() {
                        made.folders.remove(&cache);
                    }
                }
            }
        }
        let within = moves.iter().enumerate().filter(|(at, one)| {
            let (from, to) = ends(*at, one);
            made.inside(&from).is_some() && made.inside(&to).is_some()
        });
        made.moves = within.map(|(at, _)| at).collect();
        made
    }

    /// Whether a path is one.
    pub(crate) fn is_one(&self, path: &Path) -> bool {
        self.folders.contains(path)
    }

    /// Whether a path is in one, and goes with it.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        self.inside(path).is_some()
    }

    /// Whether a move goes with one, by its number.
    pub(crate) fn contain_move(&self, at: usize) -> bool {
        self.moves.contains(&at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let mut around = path.ancestors().skip(1);
        around.find(|folder| self.folders.contains(*folder)).map(Path::to_owned)
    }
}

/// Whether a call has made what is at a path after its moves.
fn is_made(lines: &[Line], moves: &[Move], path: &Path) -> bool {
    let back = |path: PathBuf, made: &Move| match path.strip_prefix(&made.to) {
        Ok(rest) => made.from.join(rest),
        Err(_) => path,
    };
    let origin = moves.iter().rev().fold(path.to_owned(), back);
    // What the name had later says nothing about what was moved away before.
    let there = lines.iter().take_while(|line| match line {
        Line::Move(made) => !origin.starts_with(&made.from),
        _ => true,
    });
    let is_origin = |line: &Line| matches!(line, Line::Before { path, before: State::Missing } if *path == origin);
    there.into_iter().any(is_origin)
}

/// Removes a cache with everything in it, its mark last: until then, an undo that was stopped knows
/// it again.
pub(crate) fn clear(path: &Path) -> io::Result<()> {
    let place = match Place::find(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        place => place?,
    };
    let Some(stat) = place.stat()? else { return Ok(()) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return place.remove();
    }
    let mut names = place.entries()?;
    names.sort_by_key(|name| name == TAG);
    for name in names {
        clear(&path.join(name))?;
    }
    place.remove_directory()
}

fn is_named(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| CACHES.iter().any(|cache| name == *cache))
}

fn is_tagged(folder: &Path) -> bool {
    let mut begin = Vec::new();
    let read = Place::find(&folder.join(TAG))
        .and_then(|place| place.open())
        .and_then(|file| file.take(SIGNATURE.len() as u64).read_to_end(&mut begin));
    read.is_ok() && begin == SIGNATURE
}
