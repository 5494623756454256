//! Plans an undo.

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

/// The changes of an undo, and the paths that it doesn't restore.
#[derive(Debug)]
pub struct UndoPlan {
    /// The call that is undone.
    pub about: UndoEntry,
    /// The changes, by path.
    pub changes: Vec<UndoChange>,
    /// The paths that can't be restored.
    pub conflicts: Vec<UndoConflict>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) open: Vec<usize>,
    /// The paths after the call that this undo doesn't restore, but a later undo may.
    pub(crate) left: HashSet<PathBuf>,
    pub(crate) explained: HashSet<PathBuf>,
}

impl UndoPlan {
    /// Plans an undo of a call. With `only`, only this path and all paths below it are restored,
    /// and their later changes are lost.
    pub(crate) fn new(
        access: &Access,
        store: &Folder,
        saved_call: &SavedCall,
        only: Option<&Path>,
    ) -> io::Result<Self> {
        let moves = moves(&saved_call.lines);
        let mut tasks = tasks(&saved_call.lines, &moves);
        let steps = progress::read(&saved_call.folder, tasks.len())?;
        let mut open = open_tasks(access, saved_call, &tasks, &steps);
        let open_paths = open.iter().map(|at| tasks[*at].after.clone()).collect();
        let earlier = EarlierUndo::new(saved_call, &tasks, &steps);
        let mut undone_moves: Vec<&Move> = Vec::new();
        for (number, task) in tasks.iter().enumerate() {
            let is_open = open.binary_search(&number).is_ok();
            if !is_open && let Action::MoveBack(made_move) = &task.action {
                undone_moves.push(made_move);
            }
        }
        let compared = Compared {
            access,
            store,
            saved_call,
            moves: &moves,
            open: &open_paths,
            earlier,
            only,
            undone_moves: &undone_moves,
            later: LaterSaves::new(store, &saved_call.entry.call, &saved_call.lines),
            undone: OnceCell::new(),
        };
        let outcome = compared.compare()?;

        let conflicting: HashSet<&Path> = outcome.conflicts.iter().map(|it| &*it.path).collect();
        open.retain(|number| {
            let Task { after, action } = &tasks[*number];
            if conflicting.contains(&**after) {
                return false;
            }
            // The contents of a moved file may be right although it is still at the wrong path. So
            // a move is needless only if the object isn't at the path to which the call moved it.
            let needs_nothing = match action {
                Action::MoveBack(made_move) => {
                    outcome.unchanged.contains(after)
                        && !made_move.is_at(&path_now(&undone_moves, after))
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
        let about = saved_call.entry.clone();
        Ok(Self { about, changes, conflicts, tasks, open, left, explained })
    }
}

/// Returns the indexes of the tasks that aren't done, or must be done again.
fn open_tasks(
    access: &Access,
    saved_call: &SavedCall,
    tasks: &[Task],
    steps: &[Step],
) -> Vec<usize> {
    // The paths to which objects must still be moved back.
    let mut unmoved: HashSet<&Path> = HashSet::new();
    for (task, step) in tasks.iter().zip(steps) {
        if let Action::MoveBack(made_move) = &task.action
            && *step != Step::Done
        {
            unmoved.insert(&made_move.from);
        }
    }
    // An undo that ends with unrestored paths sets `left`. After a killed undo, `left` is still 0.
    let has_ended = saved_call.entry.left > 0;
    let mut open = Vec::new();
    for (index, (task, step)) in tasks.iter().zip(steps).enumerate() {
        let is_open = match (step, &task.action) {
            (Step::Begun, Action::MoveBack(made_move)) => !is_moved_back(access, made_move),
            // The earlier undo removed the object here, but the undo of another call may have
            // created it again. If another object must still move back to this path, it must be
            // removed once more. After a killed undo, it is unknown who created the object, so it
            // stays.
            (Step::Done, Action::Restore { path, before: State::Missing, .. }) => {
                has_ended
                    && unmoved.contains(path.as_path())
                    && State::at(access, path, Depth::Times).is_ok_and(|now| now != State::Missing)
            }
            (step, _) => *step != Step::Done,
        };
        if is_open {
            open.push(index);
        }
    }
    open
}

/// Checks whether the moved object is at its earlier path.
fn is_moved_back(access: &Access, made_move: &Move) -> bool {
    let to = State::at(access, &made_move.to, Depth::Times);
    let from = State::at(access, &made_move.from, Depth::Times);
    matches!((to, from), (Ok(State::Missing), Ok(from)) if from != State::Missing)
}
