//! Saves the objects that one call changes in its journal before the change. If undo is required,
//! refuses a change that can't be saved.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolhold_contract::{ChangeRecorder, ChangedPath};
use toolhold_data_dir::PrivateFolder;

use super::access::Access;
use super::caches::{Caches, KnownCaches, file_identity};
use super::files::{DirEntryRef, Meta, reopened};
use super::folder::{Folder, JOURNAL, TICK, UndoEntry, now};
use super::git_index;
use super::given::noted_access;
use super::hex::hex;
use super::later::LaterSaves;
use super::lines::{Line, Move, finals, moves, present};
use super::progress;
use super::rules::Rule;
use super::saved_path;
use super::state::{Content, Depth, Identity, State, digest_of, kept_name};
use super::tasks::tasks;

/// The most bytes of a text whose contents after the call are also saved, so that a later change
/// can be merged.
const MERGED: u64 = 1 << 20;

/// The permission that the owner needs to read a file.
const OWNER_READS: u32 = 0o400;

/// The most paths of one call whose states are saved.
const MAX_PATHS: usize = 100_000;

/// The state when the call has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct After {
    /// The state of each changed path, by its path after the call.
    #[serde(with = "saved_path::map")]
    pub(crate) states: BTreeMap<PathBuf, State>,
    /// A digest of the staged files, for each of these paths that is git's index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "saved_path::map")]
    pub(crate) staged: BTreeMap<PathBuf, String>,
    /// The files that had several names, by the number of the copy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) kept: BTreeMap<u32, KeptFile>,
    /// When the call ended, in nanoseconds since 1970.
    pub(crate) at: u64,
}

/// A file with several names, when the call ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptFile {
    /// A digest of the contents.
    pub(crate) digest: String,
    pub(crate) meta: Meta,
}

impl KeptFile {
    /// Reads the current state.
    pub(crate) fn read(access: &Access, folder: &PrivateFolder, copy: u32) -> io::Result<Self> {
        let handle = folder.linked(&kept_name(copy))?;
        let stat = rustix::fs::fstat(&handle)?;
        let meta = Meta { mode: access.own_mode(&stat), ..Meta::from_stat(&stat) };
        let file = reopened(access, handle.as_fd(), OFlags::RDONLY)?;
        Ok(Self { digest: digest_of(file)?, meta })
    }
}

/// How much of a call's changes is saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedChanges {
    /// Paths that were changed.
    pub paths: usize,
    /// Changed paths that exist now and have new contents, and folders that were moved.
    pub written: Vec<PathBuf>,
    /// Bytes of copies.
    pub bytes: u64,
    /// Paths whose state could not be saved, with the reason.
    pub lost: Vec<(PathBuf, String)>,
    /// The store is almost full.
    pub warning: Option<String>,
}

/// The rules for a change whose old state can't be saved, and the size limit of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveRules {
    /// Whether such a change is refused. Otherwise, the change is made, and the call can't be
    /// undone.
    pub required: bool,
    /// The most bytes that are saved for one call.
    pub call_bytes: u64,
}

/// Saves what one call changes. Nothing is written before the first change.
#[derive(Debug)]
pub struct Journal {
    store: Arc<Folder>,
    about: UndoEntry,
    rules: SaveRules,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    open: Option<Arc<Open>>,
    /// The lines that were written so far.
    lines: Vec<Line>,
    /// The states of the current segment, which began after the last move. The paths are those
    /// within the segment.
    segment: HashMap<PathBuf, State>,
    /// A move whose result isn't known yet.
    pending: Option<Move>,
    /// Whether the call has ended. Its remaining processes then can't change anything.
    ended: bool,
    saved: SavedChanges,
    /// The first change that was refused, and the reason why its path can't be saved.
    refused: Option<(PathBuf, String)>,
    next: u32,
    /// The first state of each file, under any name.
    files: HashMap<Identity, State>,
    /// The available bytes of the store, for a call without approval.
    room: Option<u64>,
    /// Files with several names that can't be preserved, because the store is on another file
    /// system. Each has the changes that the call has made to it.
    unkept: HashMap<Identity, Done>,
}

/// The changes of a call in a file. After both, no name has the earlier contents.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Whether the contents may have changed.
    is_written: bool,
    /// Whether the file may have lost a name.
    is_unnamed: bool,
}

#[derive(Debug)]
struct Open {
    folder: PrivateFolder,
    journal: File,
}

impl Journal {
    pub(crate) fn new(store: Arc<Folder>, about: UndoEntry, rules: SaveRules) -> Self {
        Self { store, about, rules, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state of a call that hasn't ended.
    fn running(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let inner = self.inner();
        if inner.ended {
            return Err(rustix::io::Errno::CANCELED.into());
        }
        Ok(inner)
    }

    /// Returns the first change that was refused because the old state can't be saved, and the
    /// reason.
    pub fn refused(&self) -> Option<(PathBuf, String)> {
        self.inner().refused.clone()
    }

    /// Checks whether the call has changed something so far.
    pub fn has_changes(&self) -> bool {
        self.inner().open.is_some()
    }

    /// Ends the journal, and saves the state of each path after the call. Returns `None` if the
    /// call changed nothing.
    pub fn finish(&self) -> Option<SavedChanges> {
        let mut inner = self.inner();
        inner.ended = true;
        self.store.running.end(&self.about.call);
        if let Err(error) = self.settle(&mut inner) {
            tracing::warn!("the end of a call's changes can't be saved: {error}");
        }
        let open = inner.open.take()?;
        // A process that is just starting may have the file open for a moment.
        let _ = rustix::fs::flock(&open.journal, FlockOperation::Unlock);
        let inner = &mut *inner;
        let lines = std::mem::take(&mut inner.lines);
        let moves = moves(&lines);
        let mut after = After { at: now(), ..After::default() };
        let mut changed = !moves.is_empty() || !inner.saved.lost.is_empty();
        let mut only_times = !changed;
        inner.saved.paths = inner.saved.lost.len();
        let access = Access::default();
        let mut caches = KnownCaches::default();
        let later = LaterSaves::new(&self.store, &self.about.call, &lines);
        for (path, before) in finals(&lines, &moves) {
            // A build creates many large files. An undo removes them if they are unchanged, so
            // their contents aren't needed.
            let is_light = before == State::Missing && caches.contain(&access, &path);
            let depth = if is_light { Depth::Times } else { Depth::Contents };
            let Ok(now) = State::at(&access, &path, depth) else {
                only_times = false;
                continue;
            };
            let now = match (&before, now) {
                (State::File { .. }, now @ State::File { .. }) if !before.same_contents(&now) => {
                    inner.with_copy(&access, &open, &path, now)
                }
                (_, now) => now,
            };
            let is_directory = matches!(before, State::Directory { .. });
            let is_put_back = !is_directory && before.same_contents(&now);
            // Another call has seen other contents meanwhile, so this call did change the path.
            let is_seen = is_put_back && later.have_seen_another(&path, &before);
            if is_seen || !before.same(&now) {
                changed = true;
            }
            let staged = staged_at(&access, &path, &now);
            let has_same_staged =
                staged.is_some() && staged == staged_before(&open.folder, &before);
            if is_seen || !(before.same_but_for_times(&now) || has_same_staged) {
                only_times = false;
            }
            if let Some(staged) = staged {
                after.staged.insert(path.clone(), staged);
            }
            if before.is_changed_to(&now) {
                inner.saved.paths += 1;
            }
            if now.has_contents() && !before.same_contents(&now) {
                inner.saved.written.push(path.clone());
            }
            after.states.insert(path, now);
        }
        for (index, made) in moves.iter().enumerate() {
            let path_now = present(&moves[index + 1..], &made.to);
            if matches!(State::at(&access, &path_now, Depth::Times), Ok(State::Directory { .. })) {
                inner.saved.written.push(path_now);
            }
        }
        if !changed {
            self.store.forget(&self.about);
            return None;
        }

        for state in inner.files.values() {
            if let State::File { copy: Some(copy), is_shared: true, .. } = state
                && let Ok(kept) = KeptFile::read(&access, &open.folder, *copy)
            {
                after.kept.insert(*copy, kept);
            }
        }
        drop(access);
        let steps = tasks(&lines, &moves).len();
        if let Err(error) = self.save_after(&open.folder, &after, steps) {
            tracing::warn!("the end of a call's changes can't be saved: {error}");
        }
        if only_times {
            let about = UndoEntry { only_times, ..self.about.clone() };
            if let Err(error) = about.save(&open.folder) {
                tracing::warn!("the note that a call changed only times can't be saved: {error}");
            }
        }
        inner.saved.warning = self.store.end(&self.about, inner.saved.bytes, self.rules.required);
        Some(inner.saved.clone())
    }

    /// Saves the state after the call, and reserves space for the progress of an undo with `steps`
    /// steps.
    fn save_after(&self, folder: &PrivateFolder, after: &After, steps: usize) -> io::Result<()> {
        let text = serde_json::to_vec(after).unwrap_or_default();
        match folder.put_lightly("after.json", &text) {
            Err(error) if is_full(&error) => {
                self.store.use_reserve();
                folder.put_lightly("after.json", &text)?;
            }
            result => result?,
        }
        progress::reserve(folder, steps)
    }
}

#[cfg(test)]
impl Journal {
    /// As if the process were killed.
    pub(crate) fn kill(&self) {
        let mut inner = self.inner();
        inner.ended = true;
        if let Some(open) = inner.open.take() {
            let _ = rustix::fs::flock(&open.journal, FlockOperation::Unlock);
        }
        self.store.running.end(&self.about.call);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Of a call that nobody waited for.
        self.finish();
    }
}

impl ChangeRecorder for Journal {
    fn before_change(&self, changed: &ChangedPath<'_>) -> io::Result<()> {
        self.change(changed, self.rules)
    }

    fn before_rename(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()> {
        self.rename(from, to, self.rules)
    }

    fn is_required(&self) -> bool {
        self.rules.required
    }

    fn unrecorded(&self, reason: &str) {
        let mut inner = self.inner();
        let path = PathBuf::from("the files of a command");
        inner.saved.lost.push((path.clone(), reason.to_owned()));
        if let Err(error) = self.write(&mut inner, &Line::Lost { path, lost: reason.to_owned() }) {
            tracing::warn!("the changes of a call can't be saved: {error}");
        }
    }
}

impl Journal {
    pub(crate) fn change(&self, changed: &ChangedPath<'_>, rules: SaveRules) -> io::Result<()> {
        let mut inner = self.running()?;
        self.settle(&mut inner)?;
        self.save(&mut inner, changed, rules)
    }

    pub(crate) fn rename(
        &self,
        from: &ChangedPath<'_>,
        to: &ChangedPath<'_>,
        rules: SaveRules,
    ) -> io::Result<()> {
        let mut inner = self.running()?;
        self.settle(&mut inner)?;
        let object = from.object.ok_or(rustix::io::Errno::NOENT)?;
        let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH)?;
        if let Some(replaced) = to.object {
            let replaced = rustix::fs::statat(replaced, "", AtFlags::EMPTY_PATH)?;
            // Two names of one file: the kernel does nothing.
            if (replaced.st_dev, replaced.st_ino) == (stat.st_dev, stat.st_ino) {
                return Ok(());
            }
        }
        self.save(&mut inner, to, rules)?;
        self.save_parent(&mut inner, from)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // A file that the call made since the last move needs no note: an undo removes it by its
        // new name. A new name of an older file isn't such a file.
        let is_new = inner.segment.get(from.path) == Some(&State::Missing);
        let is_older =
            file_identity(from).is_some_and(|identity| inner.files.contains_key(&identity));
        let is_made_file = !is_directory && is_new && !is_older;
        if is_made_file || Rule::Moved.is_off() {
            return Ok(());
        }
        let is_changed = self.store.running.rename(&self.about.call, from.path, to.path);
        self.check_alone(&mut inner, from.path, is_changed, rules)?;
        let planned = Move {
            from: from.path.to_owned(),
            to: to.path.to_owned(),
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        inner.pending = Some(planned.clone());
        self.write(&mut inner, &Line::Move(planned))
    }

    /// Saves the state of a path, once in a segment.
    fn save(
        &self,
        inner: &mut Inner,
        changed: &ChangedPath<'_>,
        rules: SaveRules,
    ) -> io::Result<()> {
        // The parent comes first, since a directory that is removed may be known for its entries
        // alone.
        self.save_parent(inner, changed)?;
        self.check_unkept(inner, changed, rules)?;
        // The saved state of a file that is written over isn't enough for one that loses its name.
        let is_named = changed.parent.is_some();
        let is_saved = match inner.segment.get(changed.path) {
            Some(state) => !is_named || state.is_restorable(),
            None => false,
        };
        if is_saved || Rule::Saved.is_off() {
            return self.check_object(inner, changed, rules);
        }
        let file = file_identity(changed);
        let is_shared = self.store.running.change(&self.about.call, changed.path, file);
        self.check_alone(inner, changed.path, is_shared, rules)?;
        let path = changed.path.to_owned();
        let state = match changed.object {
            None => Ok(State::Missing),
            Some(_) if inner.lines.len() >= MAX_PATHS => {
                Err(io::Error::other(format!("the call changed more than {MAX_PATHS} paths")))
            }
            Some(object) => self.read_object(inner, changed, object, rules.call_bytes),
        };
        self.note(inner, path, state, rules)?;
        // The file may be known only now.
        self.check_unkept(inner, changed, rules)
    }

    /// Reads and copies the state of the object of a path. `max`: bytes that the call may save.
    fn read_object(
        &self,
        inner: &mut Inner,
        changed: &ChangedPath<'_>,
        object: BorrowedFd<'_>,
        max: u64,
    ) -> io::Result<State> {
        let open = self.opened(inner)?;
        let object: OwnedFd = object.try_clone_to_owned()?;
        let can_read = rustix::fs::fstat(&object)?.st_mode & OWNER_READS != 0;
        // If the process is killed here, an undo of the call takes the permission back.
        let access = if can_read { Access::default() } else { noted_access(&open.folder) };
        let state = State::from_object(&access, &object, |file, size| {
            inner.copy(&open, changed.path, file, size, max)
        })?;
        let is_named = changed.parent.is_some();
        match state {
            State::Other => Err(io::Error::other("it isn't a file, a link or a directory")),
            state if is_named && !state.is_restorable() => {
                Err(io::Error::other("only root can give it back to its owner and group"))
            }
            state => Ok(inner.first_state(state)),
        }
    }

    /// Refuses the change of an older file that somebody else has put in the place of a saved one.
    fn check_object(
        &self,
        inner: &mut Inner,
        changed: &ChangedPath<'_>,
        rules: SaveRules,
    ) -> io::Result<()> {
        let Some(file) = file_identity(changed) else { return Ok(()) };
        let saved = inner.segment.get(changed.path);
        let is_saved = saved == Some(&State::Other)
            || saved.and_then(State::object) == Some(file)
            || inner.files.contains_key(&file);
        if is_saved || file.born() + TICK >= self.about.at {
            return Ok(());
        }
        let why = io::Error::other("another file was put in its place while the call ran");
        self.note(inner, changed.path.to_owned(), Err(why), rules)
    }

    /// Refuses the change of a file with several names that loses one of them and gets other
    /// contents, if it can't be kept.
    fn check_unkept(
        &self,
        inner: &mut Inner,
        changed: &ChangedPath<'_>,
        rules: SaveRules,
    ) -> io::Result<()> {
        if inner.unkept.is_empty() {
            return Ok(());
        }
        let Some(object) = changed.object else { return Ok(()) };
        let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH)?;
        let identity = Identity::from_stat(object, &stat);
        let Some(done) = identity.and_then(|it| inner.unkept.get_mut(&it)) else { return Ok(()) };
        match changed.parent {
            Some(_) => done.is_unnamed = true,
            None => done.is_written = true,
        }
        let has_lost_contents = done.is_written && done.is_unnamed;
        if !has_lost_contents || Rule::Names.is_off() {
            return Ok(());
        }
        if !rules.required {
            *done = Done::default();
        }
        let why = "it has several names, and Toolhold's data folder is on another file system";
        self.note(inner, changed.path.to_owned(), Err(io::Error::other(why)), rules)
    }

    /// Refuses a change that no undo could bring back, because another call moves what this one
    /// changes, or the other way round.
    fn check_alone(
        &self,
        inner: &mut Inner,
        path: &Path,
        is_shared: bool,
        rules: SaveRules,
    ) -> io::Result<()> {
        if !is_shared || !rules.required || Rule::Alone.is_off() {
            return Ok(());
        }
        let why = io::Error::other("another running call moves or changes it");
        self.note(inner, path.to_owned(), Err(why), rules)
    }

    /// Notes that a path is about to change whose state isn't saved. Refuses the change if saving
    /// is required.
    pub(crate) fn lose(&self, path: &Path, why: &str, rules: SaveRules) -> io::Result<()> {
        let mut inner = self.running()?;
        self.settle(&mut inner)?;
        if inner.segment.contains_key(path) {
            return Ok(());
        }
        self.note(&mut inner, path.to_owned(), Err(io::Error::other(why.to_owned())), rules)
    }

    /// Returns the caches that the call changes.
    pub(crate) fn caches(&self) -> Caches {
        Caches::new(Arc::clone(&self.store), self.about.clone())
    }

    /// Notes the old state of a path, or why it isn't saved. Then the change is refused if saving
    /// is required.
    fn note(
        &self,
        inner: &mut Inner,
        path: PathBuf,
        state: io::Result<State>,
        rules: SaveRules,
    ) -> io::Result<()> {
        let line = match &state {
            Ok(before) => Line::Before { path: path.clone(), before: before.clone(), at: now() },
            Err(why) if rules.required => {
                inner.refused.get_or_insert((path, why.to_string()));
                // As if there were no room left.
                return Err(rustix::io::Errno::DQUOT.into());
            }
            Err(why) => {
                inner.saved.lost.push((path.clone(), why.to_string()));
                Line::Lost { path: path.clone(), lost: why.to_string() }
            }
        };
        self.write(inner, &line)?;
        inner.segment.insert(path, state.unwrap_or(State::Other));
        Ok(())
    }

    /// Saves the times of the directory that a name is in: they change with its entries.
    fn save_parent(&self, inner: &mut Inner, changed: &ChangedPath<'_>) -> io::Result<()> {
        let (Some(parent), Some(handle)) = (changed.path.parent(), changed.parent) else {
            return Ok(());
        };
        if inner.segment.contains_key(parent) {
            return Ok(());
        }
        let stat = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH)?;
        let identity = Identity::from_stat(handle, &stat);
        let before = State::Directory { meta: Meta::from_stat(&stat), identity };
        self.write(
            inner,
            &Line::Before { path: parent.to_owned(), before: before.clone(), at: now() },
        )?;
        inner.segment.insert(parent.to_owned(), before);
        Ok(())
    }

    /// Notes whether the last move was made. If so, paths mean other objects, and a new segment
    /// begins.
    fn settle(&self, inner: &mut Inner) -> io::Result<()> {
        let Some(last) = inner.pending.take() else { return Ok(()) };
        let moved = last.is_at(&last.to);
        if moved {
            inner.segment.clear();
        }
        self.write(inner, &Line::Moved { moved })
    }

    fn write(&self, inner: &mut Inner, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
        text.push(b'\n');
        (&self.opened(inner)?.journal).write_all(&text)?;
        inner.lines.push(line.clone());
        Ok(())
    }

    /// Returns the call's folder, which is made at its first change.
    fn opened(&self, inner: &mut Inner) -> io::Result<Arc<Open>> {
        if let Some(open) = &inner.open {
            return Ok(Arc::clone(open));
        }
        if self.rules.required {
            inner.room = Some(self.store.room(&self.about));
        }
        let folder = self.store.begin(&self.about)?;
        let journal = folder.appended(JOURNAL)?;
        // An undo waits for the end of the call, where the file system has locks.
        let _ = rustix::fs::flock(&journal, FlockOperation::NonBlockingLockExclusive);
        let open = Arc::new(Open { folder, journal });
        inner.open = Some(Arc::clone(&open));
        Ok(open)
    }
}

impl Inner {
    /// Copies a small file that the call changed, for a merge with later changes. Returns its state
    /// with the copy, or the same state if it can't be copied.
    fn with_copy(&mut self, access: &Access, open: &Open, path: &Path, now: State) -> State {
        if !matches!(now, State::File { size, .. } if size <= MERGED) {
            return now;
        }
        let handle = DirEntryRef::find(access, path).and_then(|place| place.handle());
        let Ok(handle) = handle else { return now };
        let copied = State::from_object(access, &handle, |content, size| {
            let (copy, digest) = self.copy_anew(open, content, size, u64::MAX)?;
            Ok((Some(copy), digest))
        });
        copied.unwrap_or(now)
    }

    /// Copies a file into the folder, once for all of its names; shares its blocks if the file
    /// system can.
    fn copy(
        &mut self,
        open: &Open,
        path: &Path,
        content: &Content<'_>,
        size: u64,
        max: u64,
    ) -> io::Result<(Option<u32>, String)> {
        let known = content.identity.and_then(|identity| self.files.get(&identity));
        if let Some(State::File { copy, digest, .. }) = known {
            return Ok((*copy, digest.clone()));
        }
        let (copy, digest) = self.copy_anew(open, content, size, max)?;
        if content.is_shared
            && content.keep(path, &open.folder, copy).is_err()
            && let Some(identity) = content.identity
        {
            self.unkept.entry(identity).or_default();
        }
        Ok((Some(copy), digest))
    }

    /// Returns the state of a file before the call: the state that was saved first, maybe under
    /// another name.
    fn first_state(&mut self, state: State) -> State {
        match state {
            State::File { identity: Some(identity), .. } => {
                self.files.entry(identity).or_insert(state).clone()
            }
            state => state,
        }
    }

    fn copy_anew(
        &mut self,
        open: &Open,
        content: &Content<'_>,
        size: u64,
        max: u64,
    ) -> io::Result<(u32, String)> {
        if self.saved.bytes.saturating_add(size) > max {
            return Err(io::Error::other(format!(
                "the changes of the call take more than {}",
                amount(max)
            )));
        }
        if let Some(room) = self.room
            && self.saved.bytes.saturating_add(size) > room
        {
            return Err(io::Error::other(
                "the storage of undo (`max_mib` in [tools.undo]) is full of changes of the last \
                 day, which are deleted only with approval",
            ));
        }
        let mut file = content.open()?;
        let number = self.next;
        self.next += 1;
        let mut copy = open.folder.updated(&number.to_string())?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes = 0_u64;
        // The contents are read anyway, for their digest.
        let shares_blocks = rustix::fs::ioctl_ficlone(&copy, &file).is_ok();
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            // The file may grow while it is copied.
            if self.saved.bytes.saturating_add(bytes) > max {
                return Err(io::Error::other("it grew while it was saved"));
            }
            hash.update(&buffer[..read]);
            if !shares_blocks {
                copy.write_all(&buffer[..read])?;
            }
        }
        self.saved.bytes += bytes;
        Ok((number, hex(&hash.finalize())))
    }
}

fn amount(bytes: u64) -> String {
    let mebibyte = 1 << 20;
    if bytes.is_multiple_of(mebibyte) {
        format!("{} MiB", bytes / mebibyte)
    } else {
        format!("{bytes} bytes")
    }
}

/// Returns the digest of the files staged in git's index at a path. Returns `None` if the path
/// isn't an index.
pub(crate) fn staged_at(access: &Access, path: &Path, now: &State) -> Option<String> {
    if !matches!(now, State::File { .. }) || !git_index::is_index(path) {
        return None;
    }
    git_index::staged(|| {
        let file = DirEntryRef::find(access, path)?.open()?;
        let size = file.metadata()?.len();
        Ok((file, size))
    })
}

/// Returns the digest of the files that were staged in git's index before the call.
fn staged_before(folder: &PrivateFolder, before: &State) -> Option<String> {
    let State::File { copy: Some(copy), size, .. } = before else { return None };
    git_index::staged(|| Ok((folder.file(&copy.to_string())?, *size)))
}

/// Checks whether there was no room on the disk.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Reads the contents of a copy.
pub(crate) fn contents(folder: &PrivateFolder, copy: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    folder.file(&copy.to_string())?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
