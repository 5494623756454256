//! Finds the states that other calls saved during a call or after it, so that an undo doesn't
//! destroy later changes.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::Path;

use super::folder::{Folder, entry};
use super::lines::{self, Line, Move, all_first_saved, first_saved, has_failed};
use super::state::State;

/// The states that other calls saved during a call or after it.
pub(crate) struct LaterSaves<'a> {
    all: &'a Folder,
    call: &'a str,
    own: &'a [Line],
    first: HashMap<&'a Path, (u64, &'a State)>,
    others: OnceCell<Vec<OtherCall>>,
}

struct OtherCall {
    lines: Vec<Line>,
    is_undone: bool,
}

impl<'a> LaterSaves<'a> {
    pub(crate) fn new(all: &'a Folder, call: &'a str, own: &'a [Line]) -> Self {
        Self { all, call, own, first: all_first_saved(own), others: OnceCell::new() }
    }

    /// Returns the first state of a path that this call saved, with the time of the save.
    pub(crate) fn first_saved(&self, path: &Path) -> Option<(u64, &'a State)> {
        self.first.get(path).copied()
    }

    fn others(&self) -> &[OtherCall] {
        self.others.get_or_init(|| {
            let began = self.own.iter().find_map(Line::at).unwrap_or_default();
            let folders = self.all.saved_since(self.call, began);
            let others = folders.iter().filter_map(|folder| {
                let is_undone = entry(folder).is_ok_and(|entry| entry.undone);
                Some(OtherCall { lines: lines::read(folder).ok()?, is_undone })
            });
            others.collect()
        })
    }

    /// Checks whether another call found a state of a path that this call had made. The other
    /// call's undo restores that state, even if this call has restored the earlier state.
    pub(crate) fn have_seen_another(&self, path: &Path, before: &State) -> bool {
        let others = self.others();
        if others.is_empty() {
            return false;
        }
        let Some((own_time, _)) = self.first_saved(path) else { return false };
        let mut saves = others.iter().filter_map(|other| first_saved(&other.lines, path));
        saves.any(|(time, state)| time > own_time && !state.same_but_for_times(before))
    }

    /// Returns the changes since a time by other calls that aren't undone, without moves that
    /// failed.
    fn lines_since(&self, since: u64) -> impl Iterator<Item = &Line> {
        self.others().iter().filter(|other| !other.is_undone).flat_map(move |other| {
            let mut time = 0;
            let lines =
                other.lines.iter().enumerate().filter(|(at, _)| !has_failed(&other.lines, *at));
            lines.map(|(_, line)| line).filter(move |line| {
                time = line.at().unwrap_or(time);
                time > since
            })
        })
    }

    /// When this call has moved something, as far as is known.
    fn time_of(&self, made: &Move) -> u64 {
        let before =
            self.own.iter().take_while(|line| !matches!(line, Line::Move(it) if it == made));
        before.filter_map(Line::at).last().unwrap_or_default()
    }

    /// Checks whether another call has later moved an object to the source of this move, or to one
    /// of its parent directories.
    pub(crate) fn have_moved_above(&self, made: &Move) -> bool {
        let mut since = self.lines_since(self.time_of(made));
        since.any(|line| matches!(line, Line::Move(it) if made.from.starts_with(&it.to)))
    }

    /// Checks whether another call has changed an object at or below a path after it was moved to
    /// the path.
    pub(crate) fn have_changed_below(&self, path: &Path, made: &Move) -> bool {
        self.lines_since(self.time_of(made)).any(|line| match line {
            Line::Before { path: changed, .. } | Line::Lost { path: changed, .. } => {
                changed.starts_with(path)
            }
            Line::Move(made) => made.from.starts_with(path) || made.to.starts_with(path),
            Line::Moved { .. } => false,
        })
    }

    /// Checks whether another call has moved away the object that this call left at a path. The
    /// other call's undo moves the object back.
    pub(crate) fn have_moved(&self, path: &Path) -> bool {
        let Some((own, _)) = self.first_saved(path) else { return false };
        let mut since = self.lines_since(own);
        since.any(|line| matches!(line, Line::Move(made) if path.starts_with(&made.from)))
    }

    /// Checks whether another call has moved an object to a path, or to a parent of the path, after
    /// this call.
    pub(crate) fn have_moved_to(&self, path: &Path) -> bool {
        let Some((own, _)) = self.first_saved(path) else { return false };
        let mut since = self.lines_since(own);
        since.any(|line| matches!(line, Line::Move(made) if path.starts_with(&made.to)))
    }

    /// Checks whether another call found no object at a path that this call had changed, and
    /// created one.
    pub(crate) fn have_made(&self, path: &Path) -> bool {
        let Some((own, _)) = self.first_saved(path) else { return false };
        let mut others = self.others().iter().filter(|other| !other.is_undone);
        others.any(|other| {
            let first = first_saved(&other.lines, path);
            first.is_some_and(|(at, state)| at > own && *state == State::Missing)
        })
    }

    /// Checks whether another call has changed a path after this call. The other call's undo
    /// restores it.
    pub(crate) fn have_changed(&self, path: &Path) -> bool {
        let Some((own, _)) = self.first_saved(path) else { return false };
        let mut since = self.lines_since(own);
        since.any(|line| matches!(line, Line::Before { path: changed, .. } if changed == path))
    }
}
