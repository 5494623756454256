//! What an undo would do, and what stops it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::caches::MadeCaches;
use super::files::Place;
use super::folder::UndoEntry;
use super::journal::{contents, staged_at};
use super::lines::{Line, Move, finals, moves, present};
use super::saved::SavedCall;
use super::state::State;

/// What an undo does, and what stops it.
#[derive(Debug)]
pub struct UndoPlan {
    /// The call.
    pub about: UndoEntry,
    /// What changes, by path.
    pub changes: Vec<UndoChange>,
    /// What stops the undo. Where there is one, nothing changes.
    pub conflicts: Vec<UndoConflict>,
    pub(crate) tasks: Vec<Task>,
}

/// One change of an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoChange {
    /// What changes.
    pub path: PathBuf,
    /// What is done.
    pub what: ChangeKind,
    /// For small texts: what the file has now, and afterwards.
    pub texts: Option<(String, String)>,
}

/// What is done with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is removed.
    Removed,
    /// It is there again.
    Created,
    /// It is what it was.
    Restored,
    /// A later change of it stays, the call's goes.
    Merged,
    /// Only its permissions or times change.
    Permissions,
    /// It gets this path again.
    MovedBack(PathBuf),
}

impl ChangeKind {
    /// What is done, in words. After those of [`MovedBack`](Self::MovedBack) comes the path.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Created => "brought back",
            Self::Restored => "restored",
            Self::Merged => "merged with later changes",
            Self::Permissions => "permissions restored",
            Self::MovedBack(_) => "moved back to",
        }
    }
}

/// What stops an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoConflict {
    /// The path.
    pub path: PathBuf,
    /// Why it can't be restored.
    pub why: String,
}

impl fmt::Display for UndoConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

/// One step. Each leaves either the old or the new, and can be done once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The path becomes the state, whatever its permissions and times.
    Restore { path: PathBuf, before: State, merged: Option<Vec<u8>> },
    /// The path, a cache that the call made, is removed with everything in it.
    Clear { path: PathBuf },
    /// Its permissions and times.
    Meta { path: PathBuf, before: State },
    /// Something gets its earlier path.
    MoveBack(Move),
}

impl Task {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Restore { path, .. } | Self::Clear { path } | Self::Meta { path, .. } => path,
            Self::MoveBack(made) => &made.from,
        }
    }
}

/// Bytes of a text that is shown.
const SHOWN: u64 = 1 << 20;

impl UndoPlan {
    pub(crate) fn new(read: &SavedCall) -> io::Result<Self> {
        let moves = moves(&read.lines);
        let mut plan = Self {
            about: read.about.clone(),
            changes: Vec::new(),
            conflicts: Vec::new(),
            tasks: Vec::new(),
        };
        let finals = finals(&read.lines, &moves);
        let caches = MadeCaches::of_call(&finals, &read.lines, &moves);
        let mut merged = HashMap::new();
        // What was begun goes on: a part is as it was already.
        if !read.is_begun()? {
            merged = plan.compare(read, &moves, &finals, &caches)?;
        }
        plan.tasks = tasks(&read.lines, &moves, &merged, &caches);
        Ok(plan)
    }

    fn conflict(&mut self, path: &Path, why: impl Into<String>) {
        self.conflicts.push(UndoConflict { path: path.to_owned(), why: why.into() });
    }

    /// Compares what the call left with what is there. Returns the texts that are merged.
    fn compare(
        &mut self,
        read: &SavedCall,
        moves: &[Move],
        finals: &BTreeMap<PathBuf, State>,
        caches: &MadeCaches,
    ) -> io::Result<HashMap<PathBuf, Vec<u8>>> {
        for line in &read.lines {
            if let Line::Lost { path, lost } = line {
                self.conflict(path, format!("its state before the call wasn't saved: {lost}"));
            }
        }
        for (at, made) in moves.iter().enumerate().filter(|(at, _)| !caches.contain_move(*at)) {
            let now = present(&moves[at + 1..], &made.to);
            self.changes.push(UndoChange {
                path: now,
                what: ChangeKind::MovedBack(made.from.clone()),
                texts: None,
            });
        }
        let mut merged = HashMap::new();
        for (path, before) in finals {
            if caches.contain(path) {
                continue;
            }
            let is_moved = self.changes.iter().any(|change| {
                change.path == *path && matches!(change.what, ChangeKind::MovedBack(_))
            });
            let now = State::at(path)?;
            let then = read.after.as_ref().and_then(|after| after.states.get(path));
            let mut what = match (before, &now) {
                (State::Missing, State::Missing) => continue,
                (State::Missing, _) => ChangeKind::Removed,
                (_, State::Missing) => ChangeKind::Created,
                _ if before.same(&now) => continue,
                (State::Directory { .. }, State::Directory { .. }) => continue,
                _ if before.same_contents(&now) => ChangeKind::Permissions,
                _ => ChangeKind::Restored,
            };
            let mut wanted = copy_of(read, before)?;
            // Git notes the times of files in its index whenever it is asked.
            let is_refreshed = || {
                let staged = read.after.as_ref().and_then(|after| after.staged.get(path));
                staged.is_some_and(|staged| staged_at(path, &now).as_ref() == Some(staged))
            };
            let is_cache = caches.is_one(path);
            if let Some(then) =
                then.filter(|then| !is_cache && !then.same_contents(&now) && !is_refreshed())
            {
                let both = moves.is_empty().then(|| merge(read, path, before, then, &now));
                match both.transpose()?.flatten() {
                    Some(both) => {
                        what = ChangeKind::Merged;
                        merged.insert(path.clone(), both.clone());
                        wanted = Some(both);
                    }
                    None => {
                        self.conflict(path, "it was changed since the call");
                        continue;
                    }
                }
            }
            if is_moved {
                continue;
            }
            if what == ChangeKind::Removed
                && !is_cache
                && let State::Directory { .. } = now
            {
                for name in Place::find(path)?.entries()? {
                    let entry = path.join(name);
                    if !finals.contains_key(&entry) {
                        self.conflict(&entry, "it is new, in a directory that the call made");
                    }
                }
            }
            let texts = match what {
                ChangeKind::Permissions => None,
                _ => text_at(path, &now)
                    .zip(wanted.map_or(Some(String::new()), |bytes| text(&bytes))),
            };
            self.changes.push(UndoChange { path: path.clone(), what, texts });
        }
        Ok(merged)
    }
}

/// The tasks of a journal, the last change first.
fn tasks(
    lines: &[Line],
    moves: &[Move],
    merged: &HashMap<PathBuf, Vec<u8>>,
    caches: &MadeCaches,
) -> Vec<Task> {
    let mut tasks = Vec::new();
    let mut segment: BTreeMap<&Path, &State> = BTreeMap::new();
    let mut segments = Vec::new();
    let mut cleared = HashSet::new();
    let mut later = moves;
    for line in lines {
        match line {
            Line::Before { path, before } => {
                if !caches.is_empty() {
                    let now = present(later, path);
                    let is_one = caches.is_one(&now);
                    if caches.contain(&now) || is_one && *before != State::Missing {
                        continue;
                    }
                    cleared.extend(is_one.then_some(path.as_path()));
                }
                segment.entry(path).or_insert(before);
            }
            Line::Move(made) if later.first() == Some(made) => {
                if !caches.contain_move(moves.len() - later.len()) {
                    let ended = (std::mem::take(&mut segment), std::mem::take(&mut cleared));
                    segments.push((ended, Some(made)));
                }
                later = &later[1..];
            }
            Line::Move(_) | Line::Moved { .. } | Line::Lost { .. } => {}
        }
    }
    segments.push(((segment, cleared), None));
    for ((segment, cleared), made) in segments.into_iter().rev() {
        tasks.extend(made.map(|made| Task::MoveBack(made.clone())));
        let restore = |path: &Path, before: &State| match cleared.contains(path) {
            true => Task::Clear { path: path.to_owned() },
            false => Task::Restore {
                path: path.to_owned(),
                before: before.clone(),
                merged: merged.get(path).cloned(),
            },
        };
        // What is in a directory goes before it, and comes after it.
        let of = |wanted: fn(&State) -> bool| {
            segment.iter().filter(move |(_, before)| wanted(before)).collect::<Vec<_>>()
        };
        let missing = of(|before| *before == State::Missing);
        let directories = of(|before| matches!(before, State::Directory { .. }));
        let others = of(|before| matches!(before, State::File { .. } | State::Link { .. }));
        tasks.extend(missing.iter().rev().map(|(path, before)| restore(path, before)));
        tasks.extend(directories.iter().map(|(path, before)| restore(path, before)));
        tasks.extend(others.iter().map(|(path, before)| restore(path, before)));
        tasks.extend(segment.iter().rev().filter(|(_, before)| ***before != State::Missing).map(
            |(path, before)| Task::Meta { path: (*path).to_owned(), before: (*before).clone() },
        ));
    }
    tasks
}

pub(crate) fn copy_of(read: &SavedCall, state: &State) -> io::Result<Option<Vec<u8>>> {
    match state {
        State::File { copy: Some(copy), .. } => contents(&read.folder, *copy).map(Some),
        _ => Ok(None),
    }
}

/// Takes the call's change out of what a file has now. `None`: they touch.
fn merge(
    read: &SavedCall,
    path: &Path,
    before: &State,
    then: &State,
    now: &State,
) -> io::Result<Option<Vec<u8>>> {
    if !matches!(now, State::File { size, .. } if *size <= SHOWN) {
        return Ok(None);
    }
    let (Some(then), Some(before)) = (copy_of(read, then)?, copy_of(read, before)?) else {
        return Ok(None);
    };
    let mut now = Vec::new();
    Place::find(path)?.open()?.take(SHOWN + 1).read_to_end(&mut now)?;
    // Parts of two binary files are no valid file.
    if [&then, &now, &before].iter().any(|bytes| bytes.contains(&0)) {
        return Ok(None);
    }
    Ok(diffy::merge_bytes(&then, &now, &before).ok())
}

fn text_at(path: &Path, now: &State) -> Option<String> {
    match now {
        State::Missing => Some(String::new()),
        State::File { size, .. } if *size <= SHOWN => {
            let mut bytes = Vec::new();
            Place::find(path).ok()?.open().ok()?.take(SHOWN).read_to_end(&mut bytes).ok()?;
            text(&bytes)
        }
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    if bytes.len() as u64 > SHOWN || bytes.contains(&0) {
        return None;
    }
    String::from_utf8(bytes.to_vec()).ok()
}
