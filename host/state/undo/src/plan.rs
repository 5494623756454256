//! Plans an undo: what it would restore, and which paths it leaves as conflicts.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::access::Access;
use super::changes::{UndoChange, UndoConflict};
use super::compare::{Compared, EarlierUndo, Outcome};
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
        let mut open = open_tasks(access, read, &tasks, &steps);
        let open_paths = open.iter().map(|at| tasks[*at].after.clone()).collect();
        let earlier = EarlierUndo::new(read, &tasks, &steps);
        let back: Vec<&Move> = tasks
            .iter()
            .enumerate()
            .filter(|(at, _)| open.binary_search(at).is_err())
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
            open: &open_paths,
            earlier,
            only,
            now: &now,
            later: LaterSaves::new(all, &read.about.call, &read.lines),
            undone: OnceCell::new(),
        };
        let outcome = compared.compare()?;
        let left: HashSet<&Path> = outcome.conflicts.iter().map(|it| &*it.path).collect();
        open.retain(|at| {
            let Task { after, action } = &tasks[*at];
            // A moved file may have the contents that it should have, and not yet its name.
            let is_moved = || matches!(action, Action::MoveBack(made) if made.is_at(&now(after)));
            let needs_nothing = outcome.unchanged.contains(after) && !is_moved()
                || outcome.later_contents.contains_key(after)
                    && matches!(action, Action::Restore { .. });
            !left.contains(&**after)
                && !needs_nothing
                && only.is_none_or(|only| after.starts_with(only))
        });
        outcome.adapt(&mut tasks);
        let Outcome { changes, conflicts, explained, .. } = outcome;
        let left = conflicts.iter().filter(|it| !it.is_lost).map(|it| it.path.clone()).collect();
        let about = read.about.clone();
        Ok(Self { about, changes, conflicts, tasks, open, left, explained })
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
