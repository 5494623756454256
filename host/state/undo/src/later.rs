//! Finds the states that other calls saved during or after a call, because an undo must not destroy
//! later changes.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::Path;

use super::folder::{Folder, read_entry};
use super::lines::{self, Line, Move, all_first_saved, first_saved, has_failed};
use super::state::State;

/// The states that other calls saved during or after the call.
pub(crate) struct LaterSaves<'a> {
    store: &'a Folder,
    call: &'a str,
    own: &'a [Line],
    first: HashMap<&'a Path, (u64, &'a State)>,
    others: OnceCell<Vec<OtherCall>>,
}

struct OtherCall {
    lines: Vec<Line>,
    is_undone: bool,
}

impl OtherCall {
    /// Returns the lines since a time, without failed moves.
    fn lines_since(&self, since: u64) -> Vec<&Line> {
        let mut lines = Vec::new();
        let mut time = 0;
        for (index, line) in self.lines.iter().enumerate() {
            // A line without a time has the time of the previous line.
            time = line.at().unwrap_or(time);
            if time > since && !has_failed(&self.lines, index) {
                lines.push(line);
            }
        }
        lines
    }
}

impl<'a> LaterSaves<'a> {
    pub(crate) fn new(store: &'a Folder, call: &'a str, own: &'a [Line]) -> Self {
        Self { store, call, own, first: all_first_saved(own), others: OnceCell::new() }
    }

    pub(crate) fn first_saved(&self, path: &Path) -> Option<(u64, &'a State)> {
        self.first.get(path).copied()
    }

    /// Returns the other calls that saved changes since this call began. The calls are read only
    /// once.
    fn others(&self) -> &[OtherCall] {
        self.others.get_or_init(|| self.read_others())
    }

    /// Reads the other calls. Unreadable calls are left out.
    fn read_others(&self) -> Vec<OtherCall> {
        // Only lines of unsaved states have no time. If the journal has only such lines, all calls
        // are read.
        let began = self.own.iter().find_map(Line::at).unwrap_or(0);
        let mut others = Vec::new();
        for folder in self.store.saved_since(self.call, began) {
            let is_undone = read_entry(&folder).is_ok_and(|entry| entry.undone);
            if let Ok(lines) = lines::read(&folder) {
                others.push(OtherCall { lines, is_undone });
            }
        }
        others
    }

    /// Checks whether another call saved the path after this call, in a state that differs from
    /// `before`. The undo of the other call restores this state.
    pub(crate) fn have_found_other_state(&self, path: &Path, before: &State) -> bool {
        let others = self.others();
        if others.is_empty() {
            return false;
        }
        let Some((own_time, _)) = self.first_saved(path) else { return false };
        let mut saves = others.iter().filter_map(|other| first_saved(&other.lines, path));
        saves.any(|(time, state)| time > own_time && !state.same_but_for_times(before))
    }

    /// Returns the lines of other calls since a time. Undone calls and failed moves are left out.
    fn lines_since(&self, since: u64) -> impl Iterator<Item = &Line> {
        let others = self.others().iter().filter(|other| !other.is_undone);
        others.flat_map(move |other| other.lines_since(since))
    }

    /// Returns the time of the last line before a move of this call, or 0 if there is no earlier
    /// line.
    fn time_of(&self, made_move: &Move) -> u64 {
        let mut time = 0;
        for line in self.own {
            if matches!(line, Line::Move(other) if other == made_move) {
                break;
            }
            time = line.at().unwrap_or(time);
        }
        time
    }

    /// Checks whether another call moved an object to the original path of `made_move`, or to a
    /// directory above it, after the move.
    pub(crate) fn have_moved_above(&self, made_move: &Move) -> bool {
        let mut later_lines = self.lines_since(self.time_of(made_move));
        later_lines
            .any(|line| matches!(line, Line::Move(other) if made_move.from.starts_with(&other.to)))
    }

    /// Checks whether another call changed a path or a path below it, after a move of this call.
    pub(crate) fn have_changed_below(&self, path: &Path, made_move: &Move) -> bool {
        self.lines_since(self.time_of(made_move)).any(|line| match line {
            Line::Before { path: changed, .. } | Line::Lost { path: changed, .. } => {
                changed.starts_with(path)
            }
            Line::Move(other) => other.from.starts_with(path) || other.to.starts_with(path),
            Line::Moved { .. } => false,
        })
    }

    /// Checks whether another call has moved away the object that this call left at a path.
    pub(crate) fn have_moved(&self, path: &Path) -> bool {
        let Some((own_time, _)) = self.first_saved(path) else { return false };
        let mut later_lines = self.lines_since(own_time);
        later_lines
            .any(|line| matches!(line, Line::Move(made_move) if path.starts_with(&made_move.from)))
    }

    /// Checks whether another call has moved an object to a path or its parent after this call.
    pub(crate) fn have_moved_to(&self, path: &Path) -> bool {
        let Some((own_time, _)) = self.first_saved(path) else { return false };
        let mut later_lines = self.lines_since(own_time);
        later_lines
            .any(|line| matches!(line, Line::Move(made_move) if path.starts_with(&made_move.to)))
    }

    /// Checks whether another call created an object at a path after this call had changed the
    /// path.
    pub(crate) fn have_created(&self, path: &Path) -> bool {
        let Some((own_time, _)) = self.first_saved(path) else { return false };
        let mut others = self.others().iter().filter(|other| !other.is_undone);
        others.any(|other| {
            let saved = first_saved(&other.lines, path);
            saved.is_some_and(|(time, state)| time > own_time && *state == State::Missing)
        })
    }

    pub(crate) fn have_changed(&self, path: &Path) -> bool {
        let Some((own_time, _)) = self.first_saved(path) else { return false };
        let mut later_lines = self.lines_since(own_time);
        later_lines
            .any(|line| matches!(line, Line::Before { path: changed, .. } if changed == path))
    }
}
