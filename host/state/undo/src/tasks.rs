//! Makes the steps of an undo from the journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::lines::{Line, Move, is_line_of_first_move, path_after};
use super::state::State;

/// One step of an undo. A killed undo may repeat a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// The object's path after the call.
    pub(crate) after: PathBuf,
    pub(crate) action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Restores the state of the path, except permissions and times.
    Restore {
        path: PathBuf,
        before: State,
        merged: Option<Vec<u8>>,
    },
    Meta {
        path: PathBuf,
        before: State,
    },
    MoveBack(Move),
}

impl Action {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Restore { path, .. } | Self::Meta { path, .. } => path,
            Self::MoveBack(made_move) => &made_move.from,
        }
    }
}

pub(crate) fn tasks(lines: &[Line], moves: &[Move]) -> Vec<Task> {
    // A segment has the states that were saved between two moves. A segment is stored with the
    // moves after it.
    let mut segment: BTreeMap<&Path, &State> = BTreeMap::new();
    let mut segments = Vec::new();
    let mut later_moves = moves;
    for (at, line) in lines.iter().enumerate() {
        match line {
            Line::Before { path, before, .. } => {
                segment.entry(path).or_insert(before);
            }
            Line::Move(_) if is_line_of_first_move(later_moves, lines, at) => {
                segments.push((std::mem::take(&mut segment), later_moves));
                later_moves = &later_moves[1..];
            }
            Line::Move(_) | Line::Moved { .. } | Line::Lost { .. } => {}
        }
    }
    segments.push((segment, later_moves));

    let mut tasks = Vec::new();
    for (segment, later_moves) in segments.into_iter().rev() {
        if let Some(made_move) = later_moves.first() {
            let after = path_after(&later_moves[1..], &made_move.to);
            tasks.push(Task { after, action: Action::MoveBack(made_move.clone()) });
        }
        // Entries of a directory are removed before the directory, and restored after it.
        for (path, before) in segment.iter().rev() {
            if **before == State::Missing {
                tasks.push(restore(later_moves, path, before));
            }
        }
        for (path, before) in &segment {
            if matches!(before, State::Directory { .. }) {
                tasks.push(restore(later_moves, path, before));
            }
        }
        for (path, before) in &segment {
            if before.has_contents() {
                tasks.push(restore(later_moves, path, before));
            }
        }
        for (path, before) in segment.iter().rev() {
            if **before != State::Missing {
                let after = path_after(later_moves, path);
                let action = Action::Meta { path: (*path).to_owned(), before: (*before).clone() };
                tasks.push(Task { after, action });
            }
        }
    }
    tasks
}

fn restore(later_moves: &[Move], path: &Path, before: &State) -> Task {
    Task {
        after: path_after(later_moves, path),
        action: Action::Restore { path: path.to_owned(), before: before.clone(), merged: None },
    }
}
