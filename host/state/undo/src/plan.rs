//! Plans an undo: the paths that the undo would restore, and the conflicts.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::access::Access;
use super::changes::{UndoChange, UndoConflict};
use super::compare::{Compared, EarlierUndo, Outcome, path_now};
use super::folder::{Folder, UndoEntry};
use super::later::LaterSaves;
use super::lines::{Move, moves};
use super::progress::{self, Step};
use super::saved::SavedCall;
use super::state::{Depth, State};
use super::tasks::{Action, Task, tasks};

/// The changes of an undo, and the paths that the undo doesn't restore.
#[derive(Debug)]
pub struct UndoPlan {
    /// The call.
    pub about: UndoEntry,
    /// The changes, by path.
    pub changes: Vec<UndoChange>,
    /// The paths that can't be restored. All others are.
    pub conflicts: Vec<UndoConflict>,
    pub(crate) tasks: Vec<Task>,
    /// The numbers of the open tasks.
    pub(crate) open: Vec<usize>,
    /// The paths after the call that this undo doesn't restore, but another undo may restore.
    pub(crate) left: HashSet<PathBuf>,
    /// The paths after the call that the undo of another call has changed since.
    pub(crate) explained: HashSet<PathBuf>,
}

impl UndoPlan {
    /// Plans an undo of a call. `only`: the only path that is restored, with everything below it.
    /// Changes of this path since the call are lost.
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
        let mut back: Vec<&Move> = Vec::new();
        for (number, task) in tasks.iter().enumerate() {
            let is_open = open.binary_search(&number).is_ok();
            if !is_open && let Action::MoveBack(made) = &task.action {
                back.push(made);
            }
        }
        let compared = Compared {
            access,
            all,
            read,
            moves: &moves,
            open: &open_paths,
            earlier,
            only,
            back: &back,
            later: LaterSaves::new(all, &read.about.call, &read.lines),
            undone: OnceCell::new(),
        };
        let outcome = compared.compare()?;

        let conflicting: HashSet<&Path> = outcome.conflicts.iter().map(|it| &*it.path).collect();
        open.retain(|number| {
            let Task { after, action } = &tasks[*number];
            if conflicting.contains(&**after) {
                return false;
            }
            // A moved file may already have the right contents, but not its name.
            let needs_nothing = match action {
                Action::MoveBack(made) => {
                    outcome.unchanged.contains(after) && !made.is_at(&path_now(&back, after))
                }
                Action::Restore { .. } => {
                    outcome.unchanged.contains(after) || outcome.later_contents.contains_key(after)
                }
                Action::Meta { .. } => outcome.unchanged.contains(after),
            };
            let is_selected = match only {
                Some(only) => after.starts_with(only),
                None => true,
            };
            is_selected && !needs_nothing
        });
        outcome.adapt(&mut tasks);
        let Outcome { changes, conflicts, explained, .. } = outcome;
        let restorable = conflicts.iter().filter(|conflict| !conflict.is_lost);
        let left = restorable.map(|conflict| conflict.path.clone()).collect();
        let about = read.about.clone();
        Ok(Self { about, changes, conflicts, tasks, open, left, explained })
    }
}

/// Returns the numbers of the open tasks. `steps`: the progress of each task.
fn open_tasks(access: &Access, read: &SavedCall, tasks: &[Task], steps: &[Step]) -> Vec<usize> {
    // If a move isn't undone yet, the undo of another call may have created a removed object again.
    let unmoved: HashSet<&Path> = tasks
        .iter()
        .zip(steps)
        .filter_map(|(task, step)| match &task.action {
            Action::MoveBack(made) if *step != Step::Done => Some(&*made.from),
            _ => None,
        })
        .collect();
    let open = (0..tasks.len()).filter(|at| match (&steps[*at], &tasks[*at].action) {
        // A killed undo may or may not have made this move.
        (Step::Begun, Action::MoveBack(made)) => !is_moved_back(access, made),
        // After a killed undo, the reason why the path exists isn't known.
        (Step::Done, Action::Restore { path, before: State::Missing, .. }) => {
            read.about.left > 0
                && unmoved.contains(path.as_path())
                && State::at(access, path, Depth::Times).is_ok_and(|now| now != State::Missing)
        }
        (step, _) => *step != Step::Done,
    });
    open.collect()
}

/// Checks whether a moved object has its earlier path again.
fn is_moved_back(access: &Access, made: &Move) -> bool {
    let to = State::at(access, &made.to, Depth::Times);
    let from = State::at(access, &made.from, Depth::Times);
    matches!((to, from), (Ok(State::Missing), Ok(from)) if from != State::Missing)
}
