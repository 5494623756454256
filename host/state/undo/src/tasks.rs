//! Makes the steps of an undo from the journal, the last change first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::lines::{Line, Move, is_first, present};
use super::state::State;

/// One step. Each leaves either the old or the new, and can be done once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// The path after the call of what it is about.
    pub(crate) after: PathBuf,
    pub(crate) action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The path becomes the state, whatever its permissions and times.
    Restore { path: PathBuf, before: State, merged: Option<Vec<u8>> },
    /// Its permissions and times.
    Meta { path: PathBuf, before: State },
    /// Something gets its earlier path.
    MoveBack(Move),
}

impl Action {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Restore { path, .. } | Self::Meta { path, .. } => path,
            Self::MoveBack(made) => &made.from,
        }
    }
}

/// The tasks of a journal, the last change first.
pub(crate) fn tasks(lines: &[Line], moves: &[Move]) -> Vec<Task> {
    let mut segment: BTreeMap<&Path, &State> = BTreeMap::new();
    let mut segments = Vec::new();
    let mut later = moves;
    for (at, line) in lines.iter().enumerate() {
        match line {
            Line::Before { path, before, .. } => {
                segment.entry(path).or_insert(before);
            }
            Line::Move(_) if is_first(later, lines, at) => {
                segments.push((std::mem::take(&mut segment), later));
                later = &later[1..];
            }
            Line::Move(_) | Line::Moved { .. } | Line::Lost { .. } => {}
        }
    }
    segments.push((segment, later));
    let mut tasks = Vec::new();
    for (segment, later) in segments.into_iter().rev() {
        if let Some(made) = later.first() {
            let after = present(&later[1..], &made.to);
            tasks.push(Task { after, action: Action::MoveBack(made.clone()) });
        }
        let restore = |(path, before): (&&Path, &&State)| Task {
            after: present(later, path),
            action: Action::Restore {
                path: (*path).to_owned(),
                before: (*before).clone(),
                merged: None,
            },
        };
        let all = || segment.iter();
        let is_directory = |state: &State| matches!(state, State::Directory { .. });
        // What is in a directory goes before it, and comes after it.
        tasks.extend(all().rev().filter(|(_, it)| ***it == State::Missing).map(restore));
        tasks.extend(all().filter(|(_, it)| is_directory(it)).map(restore));
        tasks.extend(all().filter(|(_, it)| it.has_contents()).map(restore));
        tasks.extend(all().rev().filter(|(_, it)| ***it != State::Missing).map(
            |(path, before)| Task {
                after: present(later, path),
                action: Action::Meta { path: (*path).to_owned(), before: (*before).clone() },
            },
        ));
    }
    tasks
}
