//! Compares the state of each path after a call with the current state, and decides how an undo
//! treats the path.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::access::Access;
use super::caches::is_made_in_cache;
use super::changes::{ChangeKind, UndoChange, UndoConflict};
use super::files::{DirEntryRef, Meta};
use super::folder::Folder;
use super::journal::{After, contents, staged_at};
use super::later::LaterSaves;
use super::lines::{Line, Move, finals, first_saved, present, saved_file};
use super::progress::Step;
use super::saved::SavedCall;
use super::state::{Identity, State};
use super::tasks::{Action, Task};

/// Bytes of a text that is shown.
const SHOWN: u64 = 1 << 20;

/// The most calls that are checked for the reason why a path differs from its state after a call.
const MAX_UNDONE: usize = 50;

/// Checks whether a move may have put another object at a path, or must be undone before the path.
/// For example, a call may create a directory, move an object into it, and remove it.
fn may_affect(made: &Move, path: &Path) -> bool {
    [&made.from, &made.to].iter().any(|end| path.starts_with(end) || end.starts_with(path))
}

/// Checks whether a move may have put another object at a path.
fn touches(made: &Move, path: &Path) -> bool {
    path.starts_with(&made.from) || path.starts_with(&made.to)
}

/// A comparison of the states after the call with the current states.
pub(crate) struct Compared<'a> {
    pub(crate) access: &'a Access,
    pub(crate) all: &'a Folder,
    pub(crate) read: &'a SavedCall,
    pub(crate) moves: &'a [Move],
    /// The paths after the call that still need work.
    pub(crate) open: &'a HashSet<PathBuf>,
    pub(crate) earlier: EarlierUndo<'a>,
    pub(crate) only: Option<&'a Path>,
    /// The moves that are undone already.
    pub(crate) back: &'a [&'a Move],
    pub(crate) later: LaterSaves<'a>,
    /// The calls that are undone. Read at the first use.
    pub(crate) undone: OnceCell<Vec<SavedCall>>,
}

/// The results of earlier undos of the call.
pub(crate) struct EarlierUndo<'a> {
    /// The paths after the call that a killed undo has begun to restore.
    begun: HashSet<&'a Path>,
    /// The files that had these paths before or after the call. They may have other names now.
    begun_files: HashSet<Identity>,
    /// The restored paths after the call, with their states before the call.
    restored: Vec<(&'a Path, &'a State)>,
}

impl<'a> EarlierUndo<'a> {
    /// Compares a call with the current states. `steps`: the progress of each task.
    pub(crate) fn new(read: &'a SavedCall, tasks: &'a [Task], steps: &[Step]) -> Self {
        let mut earlier =
            Self { begun: HashSet::new(), begun_files: HashSet::new(), restored: Vec::new() };
        for (Task { after, action }, step) in tasks.iter().zip(steps) {
            if *step == Step::Open {
                continue;
            }
            // Only a killed undo records no remaining paths. After any other undo, a change belongs
            // to the user.
            if read.about.left == 0 {
                earlier.begun.insert(after);
                if let Some(ended) = &read.after
                    && let Some(then) = ended.states.get(after)
                {
                    earlier.begun_files.extend(then.identity());
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

    /// Checks whether earlier undos may be the reason why a path differs from its state after the
    /// call.
    fn explains(&self, path: &Path, then: Option<&State>, now: &State) -> bool {
        if self.begun.contains(path) {
            return true;
        }
        let is_restored = self.restored.iter().any(|(restored, before)| {
            *restored == path && *now != State::Missing && before.same_contents(now)
        });
        let file = then.and_then(State::identity);
        is_restored || file.is_some_and(|file| self.begun_files.contains(&file))
    }
}

/// The state of a path before the call, after the call, and now.
struct Seen<'s> {
    path: &'s Path,
    before: &'s State,
    /// The state after the call. `None` if it is unknown.
    then: Option<&'s State>,
    now: State,
    /// Where the object of the path is now.
    at: PathBuf,
    /// Whether the call moved no object at the path.
    is_plain: bool,
    /// Whether the reason is known why the path differs from its state after the call: another
    /// undo, or a cache.
    is_explained: bool,
}

impl Seen<'_> {
    /// Checks whether the file's current contents differ from those before and after the call.
    fn has_later_contents(&self) -> bool {
        let Some(then) = self.then else { return false };
        if !self.is_plain || self.is_explained {
            return false;
        }
        let is_unwritten =
            then.same_contents(self.before) && then.identity() == self.before.identity();
        let is_file = self.before.has_contents() && self.now.has_contents();
        is_unwritten && is_file && !self.now.same_contents(self.before)
    }

    /// Checks whether the call didn't change the path, as far as is known.
    fn is_as_before(&self) -> bool {
        self.is_plain && !self.is_explained && self.then.is_some_and(|then| self.before.same(then))
    }
}

/// The changes of an undo, and its deviations from the journal, by the paths after the call.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The changes, by path.
    pub(crate) changes: Vec<UndoChange>,
    /// The paths that can't be restored.
    pub(crate) conflicts: Vec<UndoConflict>,
    /// The paths that the undo of another call has changed since.
    pub(crate) explained: HashSet<PathBuf>,
    /// The texts that are merged.
    merged: HashMap<PathBuf, Vec<u8>>,
    /// The paths that need nothing.
    pub(crate) unchanged: HashSet<PathBuf>,
    /// Permissions and owners that others changed and the call didn't.
    modes: HashMap<PathBuf, Meta>,
    /// The current metadata of files whose contents were changed by others and not by the call.
    pub(crate) later_contents: HashMap<PathBuf, Meta>,
}

impl Outcome {
    /// Changes the tasks to what the comparison found.
    pub(crate) fn adapt(&self, tasks: &mut [Task]) {
        for task in tasks {
            if let Action::Restore { path, merged: both, .. } = &mut task.action {
                *both = self.merged.get(path).cloned();
            }
            if let Some(mode) = self.modes.get(&task.after)
                && let Action::Restore { before, .. } | Action::Meta { before, .. } =
                    &mut task.action
                && let State::File { meta, .. } | State::Directory { meta, .. } = before
            {
                meta.mode = mode.mode;
                meta.owner = mode.owner;
            }
            if let Some(now) = self.later_contents.get(&task.after)
                && let Action::Meta { before: State::File { meta, .. }, .. } = &mut task.action
            {
                meta.modified = now.modified;
                meta.accessed = now.accessed;
            }
        }
    }
}

impl Compared<'_> {
    /// Decides what an undo does with each path.
    pub(crate) fn compare(&self) -> io::Result<Outcome> {
        let mut outcome = Outcome::default();
        let finals = finals(&self.read.lines, self.moves);
        self.add_lost(&mut outcome);

        let mut moved = HashSet::new();
        let mut left = HashSet::new();
        for (at, made) in self.moves.iter().enumerate() {
            let path = present(&self.moves[at + 1..], &made.to);
            if !self.is_wanted(&path) {
                continue;
            }
            if self.only.is_none() && self.later.have_changed_below(&path, made) {
                outcome.conflicts.push(UndoConflict::until_undone(&path, "changed"));
                left.insert(path);
            } else if self.only.is_none() && self.later.have_moved_above(made) {
                let why = "another call has moved a file into its place";
                let fix = "undo that call first, then this call again";
                outcome.conflicts.push(UndoConflict::later(&path, why, fix));
                left.insert(path);
            } else {
                moved.insert(path.clone());
                let what = ChangeKind::MovedBack(made.from.clone());
                outcome.changes.push(UndoChange { path, what, texts: None });
            }
        }

        // Directories that another call's undo brings back.
        let mut replaced: Vec<&Path> = Vec::new();
        for (path, before) in &finals {
            if !self.is_wanted(path) || left.contains(path) {
                continue;
            }
            if replaced.iter().any(|directory| path.starts_with(directory)) {
                outcome.conflicts.push(UndoConflict::until_undone(path, "replaced"));
                continue;
            }
            match self.change(path, before, &finals, moved.contains(path)) {
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
                Ok(Found::Change { change, both, mode, is_explained }) => {
                    if is_explained {
                        outcome.explained.insert(path.clone());
                    }
                    if let Some(both) = both {
                        outcome.merged.insert(path.clone(), both);
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

    /// Adds a conflict for each path whose state wasn't saved.
    fn add_lost(&self, outcome: &mut Outcome) {
        for line in &self.read.lines {
            let Line::Lost { path, lost } = line else { continue };
            if !self.is_selected(path) {
                continue;
            }
            let why = format!("its state before the call wasn't saved: {lost}");
            let mut conflict = UndoConflict::later(path, &why, "Toolhold can't restore it");
            conflict.is_lost = true;
            outcome.conflicts.push(conflict);
        }
    }

    /// Checks whether a path still needs work, and this undo may do it.
    fn is_wanted(&self, path: &Path) -> bool {
        self.open.contains(path) && self.is_selected(path)
    }

    /// Checks whether the undo includes a path. An undo is for all paths, or for those below one
    /// path.
    fn is_selected(&self, path: &Path) -> bool {
        match self.only {
            Some(only) => path.starts_with(only),
            None => true,
        }
    }

    /// Decides what an undo does with a path.
    fn change(
        &self,
        path: &Path,
        before: &State,
        finals: &BTreeMap<PathBuf, State>,
        is_moved: bool,
    ) -> io::Result<Found> {
        let Some(seen) = self.see(path, before)? else { return Ok(Found::Unchanged) };
        if let Some(what) = self.is_for_another(&seen) {
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
            return Ok(self.mode_alone(&seen));
        }

        let Seen { then, now, at, is_plain, is_explained, .. } = &seen;
        let Some(mut what) = kind(before, now) else { return Ok(Found::Nothing) };
        let is_whole = self.only.is_none();
        if what == ChangeKind::Permissions
            && *is_plain
            && !is_explained
            && is_whole
            && let Some(then) = then
        {
            let is_later = then.has_contents() && then.mode() != now.mode();
            if is_later && before.mode() != now.mode() {
                return Ok(self.left_for_its_mode(path));
            }
        }
        if is_whole && self.is_another(&seen) {
            let why = "another file was moved there after the call";
            return Ok(Found::Left(vec![UndoConflict::later(path, why, &self.restore_one(path))]));
        }
        let mut wanted = copy_of(self.read, before)?;

        let mut both = None;
        let is_restored = *is_plain && what == ChangeKind::Permissions;
        if let Some(then) = then
            && !then.same_contents(now)
            && !is_restored
            && is_whole
            && !is_explained
            && !self.is_refreshed(path, at, now)
        {
            if *is_plain {
                both = merge(self.access, self.read, at, before, then, now)?;
            }
            let Some(merged) = &both else {
                let why = "it was changed after the call";
                let mut conflict = UndoConflict::later(path, why, &self.restore_one(path));
                conflict.texts = texts(self.access, at, now, wanted);
                return Ok(Found::Left(vec![conflict]));
            };
            what = ChangeKind::Merged;
            wanted = Some(merged.clone());
        }
        if what == ChangeKind::Removed
            && !is_moved
            && let State::Directory { .. } = now
        {
            let left = self.new_entries(path, at, finals)?;
            if !left.is_empty() {
                return Ok(Found::Left(left));
            }
        }
        let texts = match what {
            ChangeKind::Permissions => None,
            _ => texts(self.access, at, now, wanted),
        };
        let change = UndoChange { path: path.to_owned(), what, texts };
        Ok(Found::Change { change, both, mode, is_explained: *is_explained })
    }

    /// Reads the current state of a path. Returns `None` if another undo has restored the state
    /// before both calls.
    fn see<'s>(&'s self, path: &'s Path, before: &'s State) -> io::Result<Option<Seen<'s>>> {
        let then = self.read.after.as_ref().and_then(|after| after.states.get(path));
        let is_plain = !self.moves.iter().any(|made| may_affect(made, path));
        let mut along = self.moves.iter().filter(|made| touches(made, path));
        let is_replaced = along.all(|made| made.to == path);
        let at = path_now(self.back, path);
        let now = State::at(self.access, &at, then.unwrap_or(before).depth())?;
        let compared = if is_replaced && self.only.is_none() { then } else { None };
        let is_explained = match compared.and_then(|then| self.undone_with(path, then, &now)) {
            Some(Order::Earlier) => return Ok(None),
            Some(Order::Later) => true,
            None => {
                self.earlier.explains(path, then, &now)
                    || self.is_explained_by_file(before, then, &now, &at)
            }
        };
        Ok(Some(Seen { path, before, then, now, at, is_plain, is_explained }))
    }

    /// Checks whether the file itself explains the current state, because an undo restored its
    /// contents by another name, or a call made it in a cache.
    fn is_explained_by_file(
        &self,
        before: &State,
        then: Option<&State>,
        now: &State,
        at: &Path,
    ) -> bool {
        let file = now.identity();
        let is_new_name = *before == State::Missing && then.and_then(State::identity) == file;
        let Some(file) = file else { return false };
        (is_new_name && self.has_saved(file, now))
            || is_made_in_cache(self.all, self.access, at, &file)
    }

    /// Checks whether an undo may have restored the contents of the file by another name.
    fn has_saved(&self, file: Identity, now: &State) -> bool {
        self.read.lines.iter().any(|line| match line {
            Line::Before { before, .. } => {
                before.identity() == Some(file) && before.same_contents(now)
            }
            _ => false,
        })
    }

    /// Checks whether the undo of another call restores a path. Returns the change that the other
    /// call has made.
    fn is_for_another(&self, seen: &Seen<'_>) -> Option<&'static str> {
        let Seen { path, before, then, now, .. } = seen;
        if self.only.is_some() {
            return None;
        }
        if then.is_some_and(|then| *then != State::Missing) && self.later.have_moved(path) {
            return Some("moved");
        }
        // The object that the other call has put at this path must be removed first, even if its
        // contents equal those before or after this call.
        let is_taken = then.is_some() && self.later.have_moved_to(path);
        let is_alike = **before != State::Missing && before.same_contents(now);
        if is_taken || (is_alike && self.later.have_made(path)) {
            return Some("replaced");
        }
        // After the undo of that call has restored this call's state, this undo removes the object.
        let is_open = seen.is_as_before()
            && !matches!(before, State::Directory { .. })
            && !before.same_contents(now)
            && self.later.have_seen_another(path, before);
        if is_open {
            return Some("changed");
        }
        // Through another name of the file, the other call may have written contents with this
        // name, or may have removed contents that this call wrote.
        let got_name = **before == State::Missing && then.is_some_and(State::is_shared);
        let lost_name = before.is_shared() && before.identity() != now.identity();
        // The path has another file now. The other call's undo restores the permissions that this
        // call set or kept.
        let has_other_file = then.and_then(State::identity) != now.identity();
        let has_later_mode =
            then.is_some_and(|then| then.same_contents(now) && then.mode() != now.mode());
        let is_replaced = has_other_file && (has_later_mode || seen.has_later_contents());
        if (got_name || lost_name || is_replaced) && self.later.have_changed(path) {
            return Some("changed");
        }
        None
    }

    /// Checks whether another object was moved to the path after the call. The current object was
    /// then elsewhere when the call ended, even if its contents are the same.
    fn is_another(&self, seen: &Seen<'_>) -> bool {
        let (Some(then), Some(now)) = (seen.then.and_then(State::object), seen.now.object()) else {
            return false;
        };
        let ended = self.read.after.as_ref().map_or(0, |after| after.at);
        if then == now || now.born() > ended || seen.is_explained {
            return false;
        }
        let undone = self.undone.get_or_init(|| self.undone_calls());
        let is_restored = undone.iter().any(|other| {
            let saved = first_saved(&other.lines, seen.path);
            saved.is_some_and(|(_, before)| before.same_contents(&seen.now))
        });
        !is_restored
    }

    /// Decides about a file whose contents were changed by others and not by the call. The contents
    /// are not restored.
    fn mode_alone(&self, seen: &Seen<'_>) -> Found {
        let before = seen.before.meta().map(Meta::permissions);
        let then = seen.then.and_then(State::meta).map(Meta::permissions);
        let now = seen.now.meta().map(Meta::permissions);
        match seen.now.meta() {
            Some(meta) if before != then && then == now => {
                let path = seen.path.to_owned();
                let what = ChangeKind::Permissions;
                Found::Mode { change: UndoChange { path, what, texts: None }, now: *meta }
            }
            Some(_) if before != then && before != now => self.left_for_its_mode(seen.path),
            _ => Found::Unchanged,
        }
    }

    fn left_for_its_mode(&self, path: &Path) -> Found {
        let why = "its permissions were changed after the call";
        Found::Left(vec![UndoConflict::later(path, why, &self.restore_one(path))])
    }

    /// Returns the permissions and owner of a path if others changed them and the call didn't. They
    /// are not restored.
    fn later_mode(&self, seen: &Seen<'_>) -> Option<Meta> {
        let then = seen.then.and_then(State::meta)?.permissions();
        let before = seen.before.meta()?.permissions();
        let now = seen.now.meta()?;
        let is_later = then == before && before != now.permissions();
        let is_moved = self.moves.iter().any(|made| touches(made, seen.path));
        if is_later && !is_moved && !seen.is_explained && self.only.is_none() {
            return Some(*now);
        }
        None
    }

    /// Returns the fix for a path that was changed since the call.
    fn restore_one(&self, path: &Path) -> String {
        let path = quoted(path);
        let call = &self.read.about.call;
        format!("to restore it and discard the later change: toolhold undo --path {path} {call}")
    }

    /// Finds another call that also changed a path and is undone, which explains the path's current
    /// state. Returns which of the two calls saved the path first, or `None` if there is no such
    /// call.
    fn undone_with(&self, path: &Path, then: &State, now: &State) -> Option<Order> {
        let (own, found) = self.later.first_saved(path)?;
        let undone = self.undone.get_or_init(|| self.undone_calls());
        let (began, ended) = self.read.span()?;
        let orders = undone.iter().filter_map(|other| {
            let (at, before) = first_saved(&other.lines, path)?;
            if !before.same_contents(now) {
                return None;
            }
            // The other call may have changed the same file by another name before.
            let file = before.identity().filter(|file| found.identity() == Some(*file));
            let at = file.and_then(|file| saved_file(&other.lines, file)).unwrap_or(at);
            if at < own {
                // The state that this call saved may come from the other call.
                let is_it = other.about.undo_at? > own
                    && before.same_but_for_times(now)
                    && other.has_restored(path);
                return is_it.then_some(Order::Earlier);
            }
            let (other_began, other_ended) = other.span()?;
            let is_beside = other_began <= ended && began <= other_ended;
            let after = other.after.as_ref()?.states.get(path)?;
            // The state after this call may come from the other call.
            let is_last = other_ended > ended || after.same_contents(then);
            (is_beside && is_last).then_some(Order::Later)
        });
        orders.min()
    }

    fn undone_calls(&self) -> Vec<SavedCall> {
        let saved = self.all.list().unwrap_or_default();
        let others = saved.into_iter().filter(|about| about.call != self.read.about.call);
        let undone = others.filter(|about| about.undone || about.left > 0);
        let read =
            undone.take(MAX_UNDONE).filter_map(|it| SavedCall::read(self.all, &it.call).ok());
        read.flatten().collect()
    }

    /// Checks whether a path is git's index and has the same staged files as after the call. Each
    /// git command may update the times of files in the index.
    fn is_refreshed(&self, path: &Path, at: &Path, now: &State) -> bool {
        let staged = self.read.after.as_ref().and_then(|After { staged, .. }| staged.get(path));
        staged.is_some_and(|staged| staged_at(self.access, at, now).as_ref() == Some(staged))
    }

    /// Returns conflicts for entries that others made in a directory of the call. If there are any,
    /// also returns a conflict for the directory.
    fn new_entries(
        &self,
        path: &Path,
        at: &Path,
        finals: &BTreeMap<PathBuf, State>,
    ) -> io::Result<Vec<UndoConflict>> {
        let why = "it is new, in a directory that the call made";
        let mut conflicts = Vec::new();
        for name in DirEntryRef::find(self.access, at)?.entries()? {
            let entry = path.join(name);
            if !finals.contains_key(&entry) {
                conflicts.push(UndoConflict::later(&entry, why, "move it away"));
            }
        }
        if !conflicts.is_empty() {
            let why = "it contains something new";
            let fix = "move the new files away and undo the call again";
            conflicts.push(UndoConflict::later(path, why, fix));
        }
        Ok(conflicts)
    }
}

/// Whether another call saved a path before or after this one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Earlier,
    Later,
}

/// The decision about a path.
enum Found {
    /// The call didn't change the path in the end, or the path has an even earlier state. The times
    /// of a directory change with its entries.
    Unchanged,
    /// The path has its earlier state.
    Nothing,
    Left(Vec<UndoConflict>),
    /// The undo of another call must come first. The text describes that call's change of the path.
    /// The same is true for everything below a directory.
    Waiting(&'static str),
    /// Only the permissions of the file change. The value has the current permissions and times.
    Mode {
        change: UndoChange,
        now: Meta,
    },
    Change {
        change: UndoChange,
        both: Option<Vec<u8>>,
        mode: Option<Meta>,
        is_explained: bool,
    },
}

pub(crate) fn copy_of(read: &SavedCall, state: &State) -> io::Result<Option<Vec<u8>>> {
    match state {
        State::File { copy: Some(copy), .. } => contents(&read.folder, *copy).map(Some),
        _ => Ok(None),
    }
}

/// Removes the call's change from the current contents of a file. Returns `None` if later changes
/// overlap the call's change.
fn merge(
    access: &Access,
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
    DirEntryRef::find(access, path)?.open()?.take(SHOWN + 1).read_to_end(&mut now)?;
    // Parts of two binary files are no valid file.
    if [&then, &now, &before].iter().any(|bytes| bytes.contains(&0)) {
        return Ok(None);
    }
    Ok(diffy::merge_bytes(&then, &now, &before).ok())
}

/// Returns the current path of the object that has a path after the call. `back`: the moves that
/// are already undone.
pub(crate) fn path_now(back: &[&Move], path: &Path) -> PathBuf {
    back.iter().fold(path.to_owned(), |path, made| made.undone(path))
}

/// Quotes a path for a shell, in one line.
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

/// Returns the kind of change that restores a path. Returns `None` if the path already has its
/// earlier state.
fn kind(before: &State, now: &State) -> Option<ChangeKind> {
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

/// Returns the current and the restored contents of a small text.
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

/// Reads the current contents of a small text. A missing file has empty contents.
fn text_at(access: &Access, path: &Path, now: &State) -> Option<String> {
    match now {
        State::Missing => Some(String::new()),
        State::File { size, .. } if *size <= SHOWN => {
            let place = DirEntryRef::find(access, path).ok()?;
            let file = place.open().ok()?;
            let mut bytes = Vec::new();
            file.take(SHOWN).read_to_end(&mut bytes).ok()?;
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
