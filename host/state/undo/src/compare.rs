//! Compares the state of each path after a call with the current state, and decides how an undo
//! treats the path.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::access::Access;
use super::caches::is_created_in_cache;
use super::changes::{ChangeKind, UndoChange, UndoConflict};
use super::files::{DirEntryRef, Meta};
use super::folder::Folder;
use super::journal::{After, contents, staged_at};
use super::later::LaterSaves;
use super::lines::{Line, Move, changed_paths, first_saved, path_after, saved_file};
use super::progress::Step;
use super::saved::SavedCall;
use super::state::{Identity, State};
use super::tasks::{Action, Task};

/// Most bytes of a text that is shown or merged.
const MAX_SHOWN_BYTES: u64 = 1 << 20;

/// Most undone calls that are checked for a restored path.
const MAX_UNDONE: usize = 50;

/// Checks whether a move may have put another object at a path, or must be undone before the path
/// is restored. For example, a call creates a directory, moves an object into it, and removes it.
fn may_affect(made_move: &Move, path: &Path) -> bool {
    [&made_move.from, &made_move.to]
        .iter()
        .any(|end| path.starts_with(end) || end.starts_with(path))
}

fn touches(made_move: &Move, path: &Path) -> bool {
    path.starts_with(&made_move.from) || path.starts_with(&made_move.to)
}

pub(crate) struct Compared<'a> {
    pub(crate) access: &'a Access,
    pub(crate) store: &'a Folder,
    pub(crate) saved_call: &'a SavedCall,
    pub(crate) moves: &'a [Move],
    /// The paths after the call that aren't restored yet.
    pub(crate) open: &'a HashSet<PathBuf>,
    pub(crate) earlier: EarlierUndo<'a>,
    pub(crate) only: Option<&'a Path>,
    pub(crate) undone_moves: &'a [&'a Move],
    pub(crate) later: LaterSaves<'a>,
    pub(crate) undone: OnceCell<Vec<SavedCall>>,
}

pub(crate) struct EarlierUndo<'a> {
    begun: HashSet<&'a Path>,
    /// The files that were at these paths before or after the call. Their identities are kept,
    /// because the files may have other names now.
    begun_files: HashSet<Identity>,
    restored: Vec<(&'a Path, &'a State)>,
}

impl<'a> EarlierUndo<'a> {
    /// Finds the paths and files that an earlier undo of the call may have changed.
    pub(crate) fn new(saved_call: &'a SavedCall, tasks: &'a [Task], steps: &[Step]) -> Self {
        let mut earlier =
            Self { begun: HashSet::new(), begun_files: HashSet::new(), restored: Vec::new() };
        for (Task { after, action }, step) in tasks.iter().zip(steps) {
            if *step == Step::Open {
                continue;
            }
            // An undo that ends with unrestored paths sets `left`. If `left` is still 0, the undo
            // may have been killed while it changed this path. Otherwise, the user has changed the
            // path since the undo.
            let may_be_killed = saved_call.entry.left == 0;
            if may_be_killed {
                earlier.begun.insert(after);
                if let Some(ended) = &saved_call.after
                    && let Some(state) = ended.states.get(after)
                {
                    earlier.begun_files.extend(state.identity());
                }
            }
            if let Action::Restore { before, .. } = action
                && *step == Step::Done
            {
                earlier.restored.push((after, before));
            }
        }
        for task in tasks {
            if earlier.begun.contains(&*task.after)
                && let Action::Restore { before, .. } = &task.action
            {
                earlier.begun_files.extend(before.identity());
            }
        }
        earlier
    }

    /// Checks whether an earlier undo may have made the current state of a path.
    fn explains(&self, path: &Path, after_call: Option<&State>, now: &State) -> bool {
        if self.begun.contains(path) {
            return true;
        }
        let is_restored = self.restored.iter().any(|(restored, before)| {
            *restored == path && *now != State::Missing && before.same_contents(now)
        });
        let file = after_call.and_then(State::identity);
        is_restored || file.is_some_and(|file| self.begun_files.contains(&file))
    }
}

/// The state of a path before the call, after the call, and now.
struct Seen<'s> {
    path: &'s Path,
    before: &'s State,
    after_call: Option<&'s State>,
    now: State,
    current_path: PathBuf,
    /// Whether no move of the call affects the path.
    is_plain: bool,
    /// Whether another undo or a cache explains the difference between `after_call` and `now`.
    is_explained: bool,
}

impl Seen<'_> {
    /// Checks whether others have changed the contents of the file, but the call hasn't.
    fn has_later_contents(&self) -> bool {
        let Some(after_call) = self.after_call else { return false };
        if !self.is_plain || self.is_explained {
            return false;
        }
        let is_unwritten_by_call = after_call.same_contents(self.before)
            && after_call.identity() == self.before.identity();
        let is_file = self.before.has_contents() && self.now.has_contents();
        is_unwritten_by_call && is_file && !self.now.same_contents(self.before)
    }

    /// Checks whether another call may have replaced the file, or changed it by another name.
    fn may_have_other_file(&self) -> bool {
        let now = &self.now;
        // A file with several names can be changed through each of them. If this call gave the file
        // this name or removed the name, another call may have changed the same file by another
        // name.
        let got_name =
            *self.before == State::Missing && self.after_call.is_some_and(State::is_shared);
        let lost_name = self.before.is_shared() && self.before.identity() != now.identity();
        // Another call may have written new contents or permissions by replacing the file. Its undo
        // puts the replaced file back, so the differences that we see now will go away.
        let is_other_file = self.after_call.and_then(State::identity) != now.identity();
        let has_later_mode = self.after_call.is_some_and(|after_call| {
            after_call.same_contents(now) && after_call.mode() != now.mode()
        });
        let is_replaced = is_other_file && (has_later_mode || self.has_later_contents());
        got_name || lost_name || is_replaced
    }

    fn is_as_before(&self) -> bool {
        self.is_plain
            && !self.is_explained
            && self.after_call.is_some_and(|after_call| self.before.same(after_call))
    }
}

/// The result of a comparison. The keys are the paths after the call.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<UndoChange>,
    pub(crate) conflicts: Vec<UndoConflict>,
    /// The paths that the undo of another call has changed in the meantime.
    pub(crate) explained: HashSet<PathBuf>,
    merged: HashMap<PathBuf, Vec<u8>>,
    pub(crate) unchanged: HashSet<PathBuf>,
    /// Permissions and owners that others have changed, but the call hasn't.
    modes: HashMap<PathBuf, Meta>,
    /// The current metadata of files whose contents others have changed, but the call hasn't.
    pub(crate) later_contents: HashMap<PathBuf, Meta>,
}

impl Outcome {
    pub(crate) fn adapt(&self, tasks: &mut [Task]) {
        for task in tasks {
            if let Action::Restore { path, merged, .. } = &mut task.action {
                *merged = self.merged.get(path).cloned();
            }
            // Later permissions and owners must stay.
            if let Some(later) = self.modes.get(&task.after)
                && let Action::Restore { before, .. } | Action::Meta { before, .. } =
                    &mut task.action
                && let State::File { meta, .. } | State::Directory { meta, .. } = before
            {
                meta.mode = later.mode;
                meta.owner = later.owner;
            }
            // The times of later contents must stay.
            if let Some(later) = self.later_contents.get(&task.after)
                && let Action::Meta { before: State::File { meta, .. }, .. } = &mut task.action
            {
                meta.modified = later.modified;
                meta.accessed = later.accessed;
            }
        }
    }
}

impl Compared<'_> {
    pub(crate) fn compare(&self) -> io::Result<Outcome> {
        let mut outcome = Outcome::default();
        let changed_paths = changed_paths(&self.saved_call.lines, self.moves);
        self.add_lost(&mut outcome);

        let mut moved = HashSet::new();
        let mut left_paths = HashSet::new();
        for (at, made_move) in self.moves.iter().enumerate() {
            let path = path_after(&self.moves[at + 1..], &made_move.to);
            if !self.is_wanted(&path) {
                continue;
            }
            if self.only.is_none() && self.later.have_changed_below(&path, made_move) {
                outcome.conflicts.push(UndoConflict::until_undone(&path, "changed"));
                left_paths.insert(path);
            } else if self.only.is_none() && self.later.have_moved_above(made_move) {
                let why = "a later call has moved another file to this path";
                let fix = "undo that call first, then this call again";
                outcome.conflicts.push(UndoConflict::later(&path, why, fix));
                left_paths.insert(path);
            } else {
                moved.insert(path.clone());
                let what = ChangeKind::MovedBack(made_move.from.clone());
                outcome.changes.push(UndoChange { path, what, texts: None });
            }
        }

        // Directories that the undo of another call restores.
        let mut replaced: Vec<&Path> = Vec::new();
        for (path, before) in &changed_paths {
            if !self.is_wanted(path) || left_paths.contains(path) {
                continue;
            }
            if replaced.iter().any(|directory| path.starts_with(directory)) {
                outcome.conflicts.push(UndoConflict::until_undone(path, "replaced"));
                continue;
            }
            match self.change(path, before, &changed_paths, moved.contains(path)) {
                Ok(Found::Waiting(what)) => {
                    outcome.conflicts.push(UndoConflict::until_undone(path, what));
                    if matches!(before, State::Directory { .. }) {
                        replaced.push(path);
                    }
                }
                Ok(Found::Unchanged) => {
                    outcome.unchanged.insert(path.clone());
                }
                Ok(Found::Left(conflicts)) => outcome.conflicts.extend(conflicts),
                Ok(Found::Change { .. } | Found::Mode { .. } | Found::Nothing)
                    if moved.contains(path) => {}
                Ok(Found::Nothing) => {}
                Ok(Found::Mode { change, now }) => {
                    outcome.later_contents.insert(path.clone(), now);
                    outcome.changes.push(change);
                }
                Ok(Found::Change { change, merged, mode, is_explained }) => {
                    if is_explained {
                        outcome.explained.insert(path.clone());
                    }
                    if let Some(merged) = merged {
                        outcome.merged.insert(path.clone(), merged);
                    }
                    if let Some(mode) = mode {
                        outcome.modes.insert(path.clone(), mode);
                    }
                    outcome.changes.push(change);
                }
                Err(error) => outcome.conflicts.push(UndoConflict::from_error(path, &error)),
            }
        }
        Ok(outcome)
    }

    /// Adds a conflict for each path whose earlier state wasn't saved.
    fn add_lost(&self, outcome: &mut Outcome) {
        for line in &self.saved_call.lines {
            let Line::Lost { path, lost } = line else { continue };
            if !self.is_selected(path) {
                continue;
            }
            let why = format!("the earlier state wasn't saved: {lost}");
            let mut conflict = UndoConflict::later(path, &why, "Toolhold can't restore it");
            conflict.is_lost = true;
            outcome.conflicts.push(conflict);
        }
    }

    fn is_wanted(&self, path: &Path) -> bool {
        self.open.contains(path) && self.is_selected(path)
    }

    fn is_selected(&self, path: &Path) -> bool {
        match self.only {
            Some(only) => path.starts_with(only),
            None => true,
        }
    }

    fn change(
        &self,
        path: &Path,
        before: &State,
        changed_paths: &BTreeMap<PathBuf, State>,
        is_moved: bool,
    ) -> io::Result<Found> {
        let Some(seen) = self.compare_states(path, before)? else { return Ok(Found::Unchanged) };
        if let Some(what) = self.change_of_another(&seen) {
            return Ok(Found::Waiting(what));
        }
        let is_directory = matches!(before, State::Directory { .. });
        if seen.is_as_before() && !is_directory {
            return Ok(Found::Unchanged);
        }
        let mode = self.later_mode(&seen);
        if is_directory && mode.is_some() {
            return Ok(Found::Unchanged);
        }
        if seen.has_later_contents() && self.only.is_none() {
            return Ok(self.compare_mode(&seen));
        }

        let Seen { after_call, now, current_path, is_plain, is_explained, .. } = &seen;
        let Some(mut what) = change_kind(before, now) else { return Ok(Found::Nothing) };
        let is_whole = self.only.is_none();
        let is_metadata_change = *is_plain && what == ChangeKind::Permissions;
        if is_metadata_change
            && !is_explained
            && is_whole
            && let Some(after_call) = after_call
        {
            let is_changed_later = after_call.has_contents() && after_call.mode() != now.mode();
            if is_changed_later && before.mode() != now.mode() {
                return Ok(self.left_for_its_mode(path));
            }
        }
        if is_whole && self.is_other_object(&seen) {
            let why = "another file was moved to this path after the call";
            return Ok(Found::Left(vec![UndoConflict::later(path, why, &self.restore_one(path))]));
        }
        let mut wanted = copy_of(self.saved_call, before)?;

        let mut merged = None;
        if let Some(after_call) = after_call
            && !after_call.same_contents(now)
            && !is_metadata_change
            && is_whole
            && !is_explained
            && !self.is_refreshed(path, current_path, now)
        {
            if *is_plain {
                merged =
                    merge(self.access, self.saved_call, current_path, before, after_call, now)?;
            }
            let Some(merged_text) = &merged else {
                let why = "the file was changed after the call";
                let mut conflict = UndoConflict::later(path, why, &self.restore_one(path));
                conflict.texts = texts(self.access, current_path, now, wanted);
                return Ok(Found::Left(vec![conflict]));
            };
            what = ChangeKind::Merged;
            wanted = Some(merged_text.clone());
        }
        if what == ChangeKind::Removed
            && !is_moved
            && let State::Directory { .. } = now
        {
            let conflicts = self.new_entries(path, current_path, changed_paths)?;
            if !conflicts.is_empty() {
                return Ok(Found::Left(conflicts));
            }
        }
        let texts = match what {
            ChangeKind::Permissions => None,
            _ => texts(self.access, current_path, now, wanted),
        };
        let change = UndoChange { path: path.to_owned(), what, texts };
        Ok(Found::Change { change, merged, mode, is_explained: *is_explained })
    }

    /// Compares the state of a path before the call, after the call and now. Returns `None` if the
    /// undo of another call has restored the state from before both calls.
    fn compare_states<'s>(
        &'s self,
        path: &'s Path,
        before: &'s State,
    ) -> io::Result<Option<Seen<'s>>> {
        let after_call = self.saved_call.after.as_ref().and_then(|after| after.states.get(path));
        let is_plain = !self.moves.iter().any(|made_move| may_affect(made_move, path));
        let current_path = path_now(self.undone_moves, path);
        let now = State::at(self.access, &current_path, after_call.unwrap_or(before).depth())?;

        let mut touching_moves = self.moves.iter().filter(|made_move| touches(made_move, path));
        // If all these moves end at the path itself, they have only put another object there.
        let is_replaced = touching_moves.all(|made_move| made_move.to == path);
        let order = match after_call {
            Some(after_call) if is_replaced && self.only.is_none() => {
                self.undone_with(path, after_call, &now)
            }
            _ => None,
        };
        let is_explained = match order {
            Some(Order::Earlier) => return Ok(None),
            Some(Order::Later) => true,
            None => {
                self.earlier.explains(path, after_call, &now)
                    || self.is_explained_by_file(before, after_call, &now, &current_path)
            }
        };
        Ok(Some(Seen { path, before, after_call, now, current_path, is_plain, is_explained }))
    }

    /// Checks whether the file itself explains the current state: an undo restored its contents by
    /// another name, or a call created the file in a cache.
    fn is_explained_by_file(
        &self,
        before: &State,
        after_call: Option<&State>,
        now: &State,
        current_path: &Path,
    ) -> bool {
        let Some(file) = now.identity() else { return false };
        let is_same_file = after_call.and_then(State::identity) == Some(file);
        let is_new_name = *before == State::Missing && is_same_file;
        if is_new_name && self.has_saved(file, now) {
            return true;
        }
        is_created_in_cache(self.store, self.access, current_path, &file)
    }

    /// Checks whether the call saved the current contents of a file, under any name.
    fn has_saved(&self, file: Identity, now: &State) -> bool {
        for line in &self.saved_call.lines {
            if let Line::Before { before, .. } = line
                && before.identity() == Some(file)
                && before.same_contents(now)
            {
                return true;
            }
        }
        false
    }

    /// If the undo of another call restores a path, describes the change of the other call in a
    /// word.
    fn change_of_another(&self, seen: &Seen<'_>) -> Option<&'static str> {
        let Seen { path, before, after_call, now, .. } = seen;
        if self.only.is_some() {
            return None;
        }
        if after_call.is_some_and(|after_call| *after_call != State::Missing)
            && self.later.have_moved(path)
        {
            return Some("moved");
        }
        // If another call has moved an object to this path, its undo must take the object away
        // first, even if the contents are the same.
        let is_taken = after_call.is_some() && self.later.have_moved_to(path);
        let has_same_contents = **before != State::Missing && before.same_contents(now);
        if is_taken || (has_same_contents && self.later.have_created(path)) {
            return Some("replaced");
        }
        // If this call left the path as it was, there is nothing to restore now. But the undo of
        // the other call will restore a state that this undo must then change.
        let is_restored_later = seen.is_as_before()
            && !matches!(before, State::Directory { .. })
            && !before.same_contents(now)
            && self.later.have_found_other_state(path, before);
        if is_restored_later || (seen.may_have_other_file() && self.later.have_changed(path)) {
            return Some("changed");
        }
        None
    }

    /// Checks whether another object was moved to the path after the call, even if both objects
    /// have the same contents.
    fn is_other_object(&self, seen: &Seen<'_>) -> bool {
        let (Some(after_call), Some(now)) =
            (seen.after_call.and_then(State::object), seen.now.object())
        else {
            return false;
        };
        // If the end of the call is unknown, every object counts as new.
        let call_end = self.saved_call.after.as_ref().map_or(0, |after| after.at);
        let is_new = now.born() > call_end;
        if after_call == now || is_new || seen.is_explained {
            return false;
        }
        let undone = self.undone.get_or_init(|| self.undone_calls());
        let is_restored = undone.iter().any(|other| {
            let saved = first_saved(&other.lines, seen.path);
            saved.is_some_and(|(_, before)| before.same_contents(&seen.now))
        });
        !is_restored
    }

    /// Decides about a file whose contents others have changed, but the call hasn't. Only its
    /// permissions may be restored.
    fn compare_mode(&self, seen: &Seen<'_>) -> Found {
        let before = seen.before.meta().map(Meta::permissions);
        let after_call = seen.after_call.and_then(State::meta).map(Meta::permissions);
        let Some(meta) = seen.now.meta() else { return Found::Unchanged };
        let now = Some(meta.permissions());
        let is_changed_by_call = before != after_call;
        if !is_changed_by_call || before == now {
            return Found::Unchanged;
        }
        let is_changed_by_others = after_call != now;
        if is_changed_by_others {
            return self.left_for_its_mode(seen.path);
        }
        let path = seen.path.to_owned();
        let change = UndoChange { path, what: ChangeKind::Permissions, texts: None };
        Found::Mode { change, now: *meta }
    }

    fn left_for_its_mode(&self, path: &Path) -> Found {
        let why = "the permissions were changed after the call";
        Found::Left(vec![UndoConflict::later(path, why, &self.restore_one(path))])
    }

    /// Returns the current metadata of a path if others have changed the permissions or the owner,
    /// but the call hasn't. The undo keeps these changes.
    fn later_mode(&self, seen: &Seen<'_>) -> Option<Meta> {
        let after_call = seen.after_call.and_then(State::meta)?.permissions();
        let before = seen.before.meta()?.permissions();
        let now = seen.now.meta()?;
        let is_later = after_call == before && before != now.permissions();
        let is_moved = self.moves.iter().any(|made_move| touches(made_move, seen.path));
        if is_later && !is_moved && !seen.is_explained && self.only.is_none() {
            return Some(*now);
        }
        None
    }

    fn restore_one(&self, path: &Path) -> String {
        let path = quoted(path);
        let call = &self.saved_call.entry.call;
        format!("to restore it and discard the later change: toolhold undo --path {path} {call}")
    }

    /// Finds an undone call that also changed a path and explains the path's current state. Returns
    /// whether the other call saved the path before or after this call.
    fn undone_with(&self, path: &Path, after_call: &State, now: &State) -> Option<Order> {
        let own = self.later.first_saved(path)?;
        let undone = self.undone.get_or_init(|| self.undone_calls());
        undone.iter().filter_map(|other| self.order_of(other, path, own, after_call, now)).min()
    }

    /// Returns whether an undone call saved the path before or after this call. Returns `None` if
    /// its undo doesn't explain the current state. `own` is the time and the state that this call
    /// saved first.
    fn order_of(
        &self,
        other: &SavedCall,
        path: &Path,
        own: (u64, &State),
        after_call: &State,
        now: &State,
    ) -> Option<Order> {
        let (own_time, own_state) = own;
        let (began, ended) = self.saved_call.span()?;
        let (first_time, before) = first_saved(&other.lines, path)?;
        if !before.same_contents(now) {
            return None;
        }
        let mut other_time = first_time;
        if let Some(file) = before.identity()
            && own_state.identity() == Some(file)
            && let Some(file_time) = saved_file(&other.lines, file)
        {
            // The other call may have changed this file earlier by another name.
            other_time = file_time;
        }

        if other_time < own_time {
            // The other call came first, so this call changed the state that the other call had
            // made. If the undo of the other call has then restored an even earlier state, nothing
            // is left to undo here.
            let is_undone_later = other.entry.undo_at? > own_time;
            let has_restored =
                is_undone_later && before.same_but_for_times(now) && other.has_restored(path);
            return if has_restored { Some(Order::Earlier) } else { None };
        }
        let (other_began, other_ended) = other.span()?;
        let is_concurrent = other_began <= ended && began <= other_ended;
        let after_other_call = other.after.as_ref()?.states.get(path)?;
        // The other call may have made the last change of the path.
        let is_last = other_ended > ended || after_other_call.same_contents(after_call);
        if is_concurrent && is_last { Some(Order::Later) } else { None }
    }

    fn undone_calls(&self) -> Vec<SavedCall> {
        let mut undone_entries = self.store.list().unwrap_or_default();
        undone_entries.retain(|entry| {
            let is_undone_in_part = entry.left > 0;
            entry.call != self.saved_call.entry.call && (entry.undone || is_undone_in_part)
        });
        let mut calls = Vec::new();
        for entry in undone_entries.into_iter().take(MAX_UNDONE) {
            // An unreadable call explains nothing.
            if let Ok(Some(call)) = SavedCall::read(self.store, &entry.call) {
                calls.push(call);
            }
        }
        calls
    }

    /// Checks whether a path is git's index with the same staged files as after the call. Git
    /// commands update only times in the index. `path` is the path after the call.
    fn is_refreshed(&self, path: &Path, current_path: &Path, now: &State) -> bool {
        let Some(After { staged, .. }) = &self.saved_call.after else { return false };
        let Some(staged_after_call) = staged.get(path) else { return false };
        staged_at(self.access, current_path, now).as_ref() == Some(staged_after_call)
    }

    /// Returns a conflict for each entry that others created in a directory of the call, and a
    /// conflict for such a directory. `path` is the directory's path after the call.
    fn new_entries(
        &self,
        path: &Path,
        current_path: &Path,
        changed_paths: &BTreeMap<PathBuf, State>,
    ) -> io::Result<Vec<UndoConflict>> {
        let why_entry = "this file is new, in a directory that the call created";
        let mut conflicts = Vec::new();
        for name in DirEntryRef::find(self.access, current_path)?.entries()? {
            let entry = path.join(name);
            if !changed_paths.contains_key(&entry) {
                conflicts.push(UndoConflict::later(&entry, why_entry, "move the file away"));
            }
        }
        if !conflicts.is_empty() {
            let why_directory = "the directory contains new files";
            let fix = "move the new files away and undo the call again";
            conflicts.push(UndoConflict::later(path, why_directory, fix));
        }
        Ok(conflicts)
    }
}

/// The time at which an undone call saved a path, compared with this call.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Earlier,
    Later,
}

enum Found {
    /// The call left the path unchanged, or the path has an even earlier state.
    Unchanged,
    Nothing,
    Left(Vec<UndoConflict>),
    /// The undo of another call must come first. The text describes the other call's change. If the
    /// path is a directory, all paths below it wait too.
    Waiting(&'static str),
    /// Only permissions are restored. `now` is the current metadata.
    Mode {
        change: UndoChange,
        now: Meta,
    },
    Change {
        change: UndoChange,
        merged: Option<Vec<u8>>,
        mode: Option<Meta>,
        is_explained: bool,
    },
}

pub(crate) fn copy_of(saved_call: &SavedCall, state: &State) -> io::Result<Option<Vec<u8>>> {
    match state {
        State::File { copy: Some(copy), .. } => contents(&saved_call.folder, *copy).map(Some),
        _ => Ok(None),
    }
}

/// Merges the undo of the call with later changes of a text. Returns `None` if the texts conflict,
/// or if a file isn't a saved text.
fn merge(
    access: &Access,
    saved_call: &SavedCall,
    path: &Path,
    before: &State,
    after_call: &State,
    now: &State,
) -> io::Result<Option<Vec<u8>>> {
    if !matches!(now, State::File { size, .. } if *size <= MAX_SHOWN_BYTES) {
        return Ok(None);
    }
    let (Some(after_call), Some(before)) =
        (copy_of(saved_call, after_call)?, copy_of(saved_call, before)?)
    else {
        return Ok(None);
    };
    let mut now = Vec::new();
    // The file may grow during the read, so the read is limited.
    DirEntryRef::find(access, path)?.open()?.take(MAX_SHOWN_BYTES + 1).read_to_end(&mut now)?;
    // A merge of lines would damage a binary file.
    if [&after_call, &now, &before].iter().any(|bytes| bytes.contains(&0)) {
        return Ok(None);
    }
    Ok(diffy::merge_bytes(&after_call, &now, &before).ok())
}

/// Returns the current path of an object. `path` is the object's path after the call.
pub(crate) fn path_now(undone_moves: &[&Move], path: &Path) -> PathBuf {
    undone_moves.iter().fold(path.to_owned(), |path, made_move| made_move.undone(path))
}

/// Quotes a path for a shell. Control characters and bytes that aren't UTF-8 become escapes.
fn quoted(path: &Path) -> String {
    let text = path.to_str().filter(|text| !text.contains(char::is_control));
    if let Some(quoted) = text.and_then(|text| shlex::try_quote(text).ok()) {
        return quoted.into_owned();
    }
    let bytes = path.as_os_str().as_encoded_bytes();
    format!("$'{}'", bytes.iter().map(|byte| escaped(*byte)).collect::<String>())
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\'' | b'\\' => format!("\\x{byte:02x}"),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    }
}

/// Returns the change that restores `before`, or `None` if nothing changes.
fn change_kind(before: &State, now: &State) -> Option<ChangeKind> {
    match (before, now) {
        (State::Missing, State::Missing) => None,
        (State::Missing, _) => Some(ChangeKind::Removed),
        (_, State::Missing) => Some(ChangeKind::Created),
        _ if before.same(now) => None,
        (State::Directory { .. }, State::Directory { .. }) if before.mode() == now.mode() => None,
        _ if before.same_contents(now) => Some(ChangeKind::Permissions),
        _ => Some(ChangeKind::Restored),
    }
}

/// Returns the current text at a path, and the text of the restored contents `wanted`. Returns
/// `None` if one of the texts can't be shown. A missing file has an empty text.
fn texts(
    access: &Access,
    path: &Path,
    now: &State,
    wanted: Option<Vec<u8>>,
) -> Option<(String, String)> {
    let restored = match wanted {
        Some(bytes) => text(&bytes)?,
        None => String::new(),
    };
    Some((text_at(access, path, now)?, restored))
}

/// Returns the current text at a path, or `None` if the file isn't a text that can be shown.
fn text_at(access: &Access, path: &Path, now: &State) -> Option<String> {
    match now {
        State::Missing => Some(String::new()),
        State::File { size, .. } if *size <= MAX_SHOWN_BYTES => {
            let place = DirEntryRef::find(access, path).ok()?;
            let file = place.open().ok()?;
            let mut bytes = Vec::new();
            file.take(MAX_SHOWN_BYTES).read_to_end(&mut bytes).ok()?;
            text(&bytes)
        }
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    if bytes.len() as u64 > MAX_SHOWN_BYTES || bytes.contains(&0) {
        return None;
    }
    String::from_utf8(bytes.to_vec()).ok()
}
