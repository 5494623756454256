//! Plans an undo: what it would restore, and which paths it leaves as conflicts.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::access::Access;
use super::compare::{Compared, EarlierUndo};
use super::folder::{Folder, UndoEntry};
use super::later::LaterSaves;
use super::lines::{Move, moves};
use super::progress::{self, Step};
use super::saved::SavedCall;
use super::state::{Depth, State};
use super::tasks::{Action, Task, tasks};

/// What an undo does, and what it leaves.
#[derive(Debug)]
pub struct UndoPlan {
    /// The call.
    pub about: UndoEntry,
    /// What changes, by path.
    pub changes: Vec<UndoChange>,
    /// The paths that can't be restored. All others are.
    pub conflicts: Vec<UndoConflict>,
    pub(crate) tasks: Vec<Task>,
    /// The tasks that are not done yet, by their number.
    pub(crate) open: Vec<usize>,
    /// The paths after the call that are left, but may be restored by another undo.
    pub(crate) left: HashSet<PathBuf>,
    /// The paths after the call that the undo of another one has changed since.
    pub(crate) explained: HashSet<PathBuf>,
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

/// A path that isn't restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoConflict {
    /// The path.
    pub path: PathBuf,
    /// Why it can't be restored.
    pub why: String,
    /// How to restore it nevertheless.
    pub fix: String,
    /// For small texts: what the file has now, and what it had before the call.
    pub texts: Option<(String, String)>,
    /// Whether no other undo can restore it either.
    pub(crate) is_lost: bool,
}

impl UndoConflict {
    /// What the system said about a path.
    pub(crate) fn from_error(path: &Path, error: &io::Error) -> Self {
        let fix = match error.kind() {
            io::ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
                "remove what protects it (see `lsattr`) and undo the call again"
            }
            io::ErrorKind::PermissionDenied => "its owner, or root, can undo the call",
            io::ErrorKind::ReadOnlyFilesystem => "mount it writable and undo the call again",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "make room there and undo the call again"
            }
            io::ErrorKind::NotFound => "make its directory again and undo the call again",
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
                "move what is there now away and undo the call again"
            }
            _ => "undo the call again when the reason is gone",
        };
        let (path, fix) = (path.to_owned(), fix.to_owned());
        Self { path, why: error.to_string(), fix, texts: None, is_lost: false }
    }

    /// A path that was moved together with something that is left.
    pub(crate) fn stuck(path: &Path) -> Self {
        let why = "something that was moved with it is left";
        Self::later(path, why, "undo the call again when that is restored")
    }

    /// A path that the undo of another call brings back.
    pub(crate) fn until_undone(path: &Path, what: &str) -> Self {
        let why = format!("another call has {what} it since");
        Self::later(path, &why, "undo that call, and then this one again")
    }

    pub(crate) fn later(path: &Path, why: &str, fix: &str) -> Self {
        let [why, fix] = [why, fix].map(str::to_owned);
        Self { path: path.to_owned(), why, fix, texts: None, is_lost: false }
    }
}

impl fmt::Display for UndoConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path.display(), self.why, self.fix)
    }
}

impl UndoPlan {
    /// `only`: the one path that is restored with what is below it, without what was changed there
    /// since.
    pub(crate) fn new(
        access: &Access,
        all: &Folder,
        read: &SavedCall,
        only: Option<&Path>,
    ) -> io::Result<Self> {
        let moves = moves(&read.lines);
        let mut tasks = tasks(&read.lines, &moves);
        let steps = progress::read(&read.folder, tasks.len())?;
        let open = open_tasks(access, read, &tasks, &steps);
        let mut plan = Self {
            about: read.about.clone(),
            changes: Vec::new(),
            conflicts: Vec::new(),
            open,
            tasks: Vec::new(),
            left: HashSet::new(),
            explained: HashSet::new(),
        };
        let open: HashSet<PathBuf> = plan.open.iter().map(|at| tasks[*at].after.clone()).collect();
        let earlier = EarlierUndo::new(read, &tasks, &steps);
        let back: Vec<&Move> = tasks
            .iter()
            .enumerate()
            .filter(|(at, _)| plan.open.binary_search(at).is_err())
            .filter_map(|(_, task)| match &task.action {
                Action::MoveBack(made) => Some(made),
                _ => None,
            })
            .collect();
        let now = |path: &Path| back.iter().fold(path.to_owned(), |path, made| made.undone(path));
        let compared = Compared {
            access,
            all,
            read,
            moves: &moves,
            open: &open,
            earlier,
            only,
            now: &now,
            later: LaterSaves::new(all, &read.about.call, &read.lines),
            undone: OnceCell::new(),
        };
        let outcome = compared.compare(&mut plan)?;
        let left: HashSet<PathBuf> = plan.conflicts.iter().map(|it| it.path.clone()).collect();
        plan.open.retain(|at| {
            let Task { after, action } = &tasks[*at];
            // A moved file may have the contents that it should have, and not yet its name.
            let is_moved = || matches!(action, Action::MoveBack(made) if made.is_at(&now(after)));
            let needs_nothing = outcome.unchanged.contains(after) && !is_moved()
                || outcome.later_contents.contains_key(after)
                    && matches!(action, Action::Restore { .. });
            !left.contains(after)
                && !needs_nothing
                && only.is_none_or(|only| after.starts_with(only))
        });
        outcome.adapt(&mut tasks);
        let left = plan.conflicts.iter().filter(|it| !it.is_lost);
        plan.left = left.map(|it| it.path.clone()).collect();
        plan.tasks = tasks;
        Ok(plan)
    }
}

/// The tasks about which something is left to do, by their numbers. `steps`: how far each of them is.
fn open_tasks(access: &Access, read: &SavedCall, tasks: &[Task], steps: &[Step]) -> Vec<usize> {
    // A move that an undo began before it was killed was made, or wasn't.
    let is_moved_back = |made: &Move| {
        let is_there = |path| State::at(access, path, Depth::Times);
        let ends = [is_there(&made.to), is_there(&made.from)];
        matches!(ends, [Ok(State::Missing), Ok(from)] if from != State::Missing)
    };
    // Something that was removed may be there again by the undo of another call, where a move
    // still has to be undone.
    let unmoved: HashSet<&Path> = tasks
        .iter()
        .zip(steps)
        .filter_map(|(task, step)| match &task.action {
            Action::MoveBack(made) if *step != Step::Done => Some(&*made.from),
            _ => None,
        })
        .collect();
    // Of a killed undo, nobody knows whether it is that.
    let is_there_again = |path: &Path| {
        let now = || State::at(access, path, Depth::Times);
        read.about.left > 0
            && unmoved.contains(path)
            && now().is_ok_and(|now| now != State::Missing)
    };
    let is_open = |at: &usize| match (&steps[*at], &tasks[*at].action) {
        (Step::Begun, Action::MoveBack(made)) => !is_moved_back(made),
        (Step::Done, Action::Restore { path, before: State::Missing, .. }) => is_there_again(path),
        (step, _) => *step != Step::Done,
    };
    (0..tasks.len()).filter(is_open).collect()
}
