//! Saves objects in a call's journal before the call changes them. If undo is required, refuses a
//! change that can't be saved.

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
use super::lines::{Line, Move, changed_paths, moves, path_after};
use super::progress;
use super::rules::Rule;
use super::saved_path;
use super::state::{Content, Depth, Identity, State, digest_of, kept_name};
use super::tasks::tasks;

/// Most bytes of a text whose contents after the call are saved too, so that a later change can be
/// merged.
const MAX_MERGED_BYTES: u64 = 1 << 20;

/// The permission bit of the owner to read a file.
const OWNER_READS: u32 = 0o400;

/// Bytes that are copied at once.
const CHUNK: usize = 64 * 1024;

const MAX_PATHS: usize = 100_000;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct After {
    /// The states of the changed paths, by their paths after the call.
    #[serde(with = "saved_path::map")]
    pub(crate) states: BTreeMap<PathBuf, State>,
    /// A digest of the staged files for each changed path that is git's index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "saved_path::map")]
    pub(crate) staged: BTreeMap<PathBuf, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) kept: BTreeMap<u32, KeptFile>,
    /// The end of the call, in nanoseconds since 1970.
    pub(crate) at: u64,
}

/// The state of a file with several names at the end of the call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptFile {
    pub(crate) digest: String,
    pub(crate) meta: Meta,
}

impl KeptFile {
    pub(crate) fn read(access: &Access, folder: &PrivateFolder, copy: u32) -> io::Result<Self> {
        let handle = folder.linked(&kept_name(copy))?;
        let stat = rustix::fs::fstat(&handle)?;
        let meta = Meta { mode: access.own_mode(&stat), ..Meta::from_stat(&stat) };
        let file = reopened(access, handle.as_fd(), OFlags::RDONLY)?;
        Ok(Self { digest: digest_of(file)?, meta })
    }
}

/// The saved changes of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedChanges {
    /// The number of changed paths.
    pub paths: usize,
    /// Changed paths that exist and have new contents, and folders that were moved.
    pub written: Vec<PathBuf>,
    /// The number of saved bytes.
    pub bytes: u64,
    /// Paths whose state could not be saved, with the reasons.
    pub lost: Vec<(PathBuf, String)>,
    /// Set if the store is almost full.
    pub warning: Option<String>,
}

/// The treatment of changes that can't be saved, and the size limit of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveRules {
    /// Whether a change is refused if the old state can't be saved. If not, the change is made, and
    /// an undo can't restore the path.
    pub required: bool,
    /// Most bytes that are saved for one call.
    pub call_bytes: u64,
}

/// Saves the changes of one call. Nothing is written before the first change.
#[derive(Debug)]
pub struct Journal {
    store: Arc<Folder>,
    entry: UndoEntry,
    rules: SaveRules,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    open: Option<Arc<Open>>,
    lines: Vec<Line>,
    /// The states that were saved since the last move, by their paths after that move.
    saved_since_move: HashMap<PathBuf, State>,
    pending_move: Option<Move>,
    /// Whether the call has ended. Its remaining processes can't change files then.
    ended: bool,
    saved: SavedChanges,
    refused: Option<(PathBuf, String)>,
    next_copy: u32,
    files: HashMap<Identity, State>,
    /// The available bytes of the store. Set only for a call without approval.
    available_bytes: Option<u64>,
    /// Files with several names that can't be preserved, because the store is on another file
    /// system.
    unkept: HashMap<Identity, FileChanges>,
}

/// The changes that a call made to a file. If the call both wrote the file and removed a name of
/// it, the earlier contents are at no name any more.
#[derive(Clone, Copy, Debug, Default)]
struct FileChanges {
    is_written: bool,
    is_unnamed: bool,
}

#[derive(Debug)]
struct Open {
    folder: PrivateFolder,
    journal: File,
}

impl Journal {
    pub(crate) fn new(store: Arc<Folder>, entry: UndoEntry, rules: SaveRules) -> Self {
        Self { store, entry, rules, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let inner = self.inner();
        if inner.ended {
            return Err(rustix::io::Errno::CANCELED.into());
        }
        Ok(inner)
    }

    /// Returns the first refused change and the reason why the old state can't be saved.
    pub fn refused(&self) -> Option<(PathBuf, String)> {
        self.inner().refused.clone()
    }

    /// Checks whether the call has changed something.
    pub fn has_changes(&self) -> bool {
        self.inner().open.is_some()
    }

    /// Ends the journal, and saves the state of each path after the call. Returns `None` if the
    /// call changed nothing.
    pub fn finish(&self) -> Option<SavedChanges> {
        let mut inner = self.inner();
        inner.ended = true;
        self.store.running.end(&self.entry.call);
        if let Err(error) = self.record_move_result(&mut inner) {
            tracing::warn!("recording that a call has finished its changes failed: {error}");
        }
        let open = inner.open.take()?;
        // A process may have inherited the file, so closing the file doesn't release the lock.
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
        let later = LaterSaves::new(&self.store, &self.entry.call, &lines);
        for (path, before) in changed_paths(&lines, &moves) {
            // A build creates many large files in a cache. An undo only removes these files, so
            // their sizes and times are enough, and their contents aren't read.
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
            // The call may have put the earlier contents back. If another call saw other contents
            // in the meantime, this call did change the path.
            let is_seen = is_put_back && later.have_found_other_state(&path, &before);
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
        for (index, made_move) in moves.iter().enumerate() {
            let path_now = path_after(&moves[index + 1..], &made_move.to);
            if matches!(State::at(&access, &path_now, Depth::Times), Ok(State::Directory { .. })) {
                inner.saved.written.push(path_now);
            }
        }
        if !changed {
            self.store.forget(&self.entry);
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
            tracing::warn!("recording that a call has finished its changes failed: {error}");
        }
        if only_times {
            let entry = UndoEntry { only_times, ..self.entry.clone() };
            if let Err(error) = entry.save(&open.folder) {
                tracing::warn!("recording that a call changed only timestamps failed: {error}");
            }
        }
        inner.saved.warning = self.store.end(&self.entry, inner.saved.bytes, self.rules.required);
        Some(inner.saved.clone())
    }

    /// Saves the states after the call, and reserves space for the progress of an undo.
    fn save_after(&self, folder: &PrivateFolder, after: &After, steps: usize) -> io::Result<()> {
        // States can always be written as JSON.
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
    pub(crate) fn kill(&self) {
        let mut inner = self.inner();
        inner.ended = true;
        if let Some(open) = inner.open.take() {
            let _ = rustix::fs::flock(&open.journal, FlockOperation::Unlock);
        }
        self.store.running.end(&self.entry.call);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // The call's future may have been dropped before the end of the call.
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

    /// Records that changes of a command may be lost, because they weren't recorded.
    fn unrecorded(&self, reason: &str) {
        let mut inner = self.inner();
        let path = PathBuf::from("the files of a command");
        inner.saved.lost.push((path.clone(), reason.to_owned()));
        if let Err(error) = self.write(&mut inner, &Line::Lost { path, lost: reason.to_owned() }) {
            tracing::warn!("saving the changes of a call failed: {error}");
        }
    }
}

impl Journal {
    pub(crate) fn change(&self, changed: &ChangedPath<'_>, rules: SaveRules) -> io::Result<()> {
        let mut inner = self.running()?;
        self.record_move_result(&mut inner)?;
        self.save(&mut inner, changed, rules)
    }

    /// Saves the states before a move, and records the move.
    pub(crate) fn rename(
        &self,
        from: &ChangedPath<'_>,
        to: &ChangedPath<'_>,
        rules: SaveRules,
    ) -> io::Result<()> {
        let mut inner = self.running()?;
        self.record_move_result(&mut inner)?;
        let object = from.object.ok_or(rustix::io::Errno::NOENT)?;
        let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH)?;
        if let Some(replaced) = to.object {
            let replaced = rustix::fs::statat(replaced, "", AtFlags::EMPTY_PATH)?;
            let is_same_file = (replaced.st_dev, replaced.st_ino) == (stat.st_dev, stat.st_ino);
            // The kernel does nothing if both names belong to one file.
            if is_same_file {
                return Ok(());
            }
        }
        self.save(&mut inner, to, rules)?;
        self.save_parent(&mut inner, from)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // A file that the call made since the last move needs no record of its move, because an
        // undo removes it by its new name. But a file that was saved under another name is older,
        // so its move is recorded.
        let is_new = inner.saved_since_move.get(from.path) == Some(&State::Missing);
        let is_older =
            file_identity(from).is_some_and(|identity| inner.files.contains_key(&identity));
        let is_made_file = !is_directory && is_new && !is_older;
        if is_made_file || Rule::Moved.is_off_in_test() {
            return Ok(());
        }
        let is_changed = self.store.running.rename(&self.entry.call, from.path, to.path);
        self.check_alone(&mut inner, from.path, is_changed, rules)?;
        let planned = Move {
            from: from.path.to_owned(),
            to: to.path.to_owned(),
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        inner.pending_move = Some(planned.clone());
        self.write(&mut inner, &Line::Move(planned))
    }

    /// Saves the state of a path, once between two moves.
    fn save(
        &self,
        inner: &mut Inner,
        changed: &ChangedPath<'_>,
        rules: SaveRules,
    ) -> io::Result<()> {
        // The parent is saved even if the path itself is already saved.
        self.save_parent(inner, changed)?;
        self.check_unkept(inner, changed, rules)?;
        if is_saved(inner, changed) || Rule::Saved.is_off_in_test() {
            return self.check_object(inner, changed, rules);
        }
        let file = file_identity(changed);
        let is_shared = self.store.running.change(&self.entry.call, changed.path, file);
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
        // Reading the object may have shown that the file can't be preserved.
        self.check_unkept(inner, changed, rules)
    }

    /// Reads the state of a path's object, and copies the contents of a file. The call may save at
    /// most `max_bytes`.
    fn read_object(
        &self,
        inner: &mut Inner,
        changed: &ChangedPath<'_>,
        object: BorrowedFd<'_>,
        max_bytes: u64,
    ) -> io::Result<State> {
        let open = self.opened(inner)?;
        let object: OwnedFd = object.try_clone_to_owned()?;
        let can_read = rustix::fs::fstat(&object)?.st_mode & OWNER_READS != 0;
        // The file may need a temporary permission. The permission is noted, so that an undo can
        // remove it if this process is killed.
        let access = if can_read { Access::default() } else { noted_access(&open.folder) };
        let state = State::from_object(&access, &object, |file, size| {
            inner.copy_once(&open, changed.path, file, size, max_bytes)
        })?;
        if state == State::Other {
            return Err(io::Error::other("the path isn't a file, a link or a directory"));
        }
        // If the change adds or removes the name, an undo must be able to create the object again.
        let changes_name = changed.parent.is_some();
        if changes_name && !state.is_restorable() {
            return Err(io::Error::other("only root can restore the owner and the group"));
        }
        Ok(inner.first_state(state))
    }

    /// Refuses a change if others have put another file at the path since its state was saved. A
    /// file that was created during the call may be changed.
    fn check_object(
        &self,
        inner: &mut Inner,
        changed: &ChangedPath<'_>,
        rules: SaveRules,
    ) -> io::Result<()> {
        let Some(file) = file_identity(changed) else { return Ok(()) };
        let saved = inner.saved_since_move.get(changed.path);
        let is_saved = saved == Some(&State::Other)
            || saved.and_then(State::object) == Some(file)
            || inner.files.contains_key(&file);
        // The time of creation may be a tick earlier than the clock.
        if is_saved || file.born() + TICK >= self.entry.at {
            return Ok(());
        }
        let why = io::Error::other("another file replaced this file while the call ran");
        self.note(inner, changed.path.to_owned(), Err(why), rules)
    }

    /// Refuses a change if the file can't be preserved, and no name of it has the earlier contents
    /// after the change.
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
        let Some(identity) = Identity::from_stat(object, &stat) else { return Ok(()) };
        let Some(changes) = inner.unkept.get_mut(&identity) else { return Ok(()) };
        let changes_name = changed.parent.is_some();
        if changes_name {
            changes.is_unnamed = true;
        } else {
            changes.is_written = true;
        }
        let has_lost_contents = changes.is_written && changes.is_unnamed;
        if !has_lost_contents || Rule::Names.is_off_in_test() {
            return Ok(());
        }
        if !rules.required {
            // The loss is recorded below. Start anew, so that the next change doesn't record it
            // again.
            *changes = FileChanges::default();
        }
        let why = "the file has hard links, and Toolhold's data folder is on another file system";
        self.note(inner, changed.path.to_owned(), Err(io::Error::other(why)), rules)
    }

    /// If saving is required, refuses a change of an object that a concurrent call moves or changes
    /// (`is_shared`), because no undo could restore the object.
    fn check_alone(
        &self,
        inner: &mut Inner,
        path: &Path,
        is_shared: bool,
        rules: SaveRules,
    ) -> io::Result<()> {
        let is_refused = is_shared && rules.required;
        if !is_refused || Rule::Alone.is_off_in_test() {
            return Ok(());
        }
        let why = io::Error::other("another running call moves or changes this path");
        self.note(inner, path.to_owned(), Err(why), rules)
    }

    /// Records that the state of a path can't be saved before its change. If saving is required,
    /// refuses the change.
    pub(crate) fn record_loss(&self, path: &Path, why: &str, rules: SaveRules) -> io::Result<()> {
        let mut inner = self.running()?;
        self.record_move_result(&mut inner)?;
        if inner.saved_since_move.contains_key(path) {
            return Ok(());
        }
        self.note(&mut inner, path.to_owned(), Err(io::Error::other(why.to_owned())), rules)
    }

    pub(crate) fn caches(&self) -> Caches {
        Caches::new(Arc::clone(&self.store), self.entry.clone())
    }

    /// Records the old state of a path, or the reason why it isn't saved. If saving is required,
    /// refuses an unsaved change.
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
                // Programs treat this error like a full disk.
                return Err(rustix::io::Errno::DQUOT.into());
            }
            Err(why) => {
                inner.saved.lost.push((path.clone(), why.to_string()));
                Line::Lost { path: path.clone(), lost: why.to_string() }
            }
        };
        self.write(inner, &line)?;
        // `Other` means that the state isn't saved.
        inner.saved_since_move.insert(path, state.unwrap_or(State::Other));
        Ok(())
    }

    /// Saves the times of the directory, because they change together with its entries.
    fn save_parent(&self, inner: &mut Inner, changed: &ChangedPath<'_>) -> io::Result<()> {
        let (Some(parent), Some(handle)) = (changed.path.parent(), changed.parent) else {
            return Ok(());
        };
        if inner.saved_since_move.contains_key(parent) {
            return Ok(());
        }
        let stat = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH)?;
        let identity = Identity::from_stat(handle, &stat);
        let before = State::Directory { meta: Meta::from_stat(&stat), identity };
        self.write(
            inner,
            &Line::Before { path: parent.to_owned(), before: before.clone(), at: now() },
        )?;
        inner.saved_since_move.insert(parent.to_owned(), before);
        Ok(())
    }

    /// Records whether the last move was made. After a move, paths may name other objects, so the
    /// state of each path is saved again before its next change.
    fn record_move_result(&self, inner: &mut Inner) -> io::Result<()> {
        let Some(last) = inner.pending_move.take() else { return Ok(()) };
        let moved = last.is_at(&last.to);
        if moved {
            inner.saved_since_move.clear();
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

    /// Returns the call's folder and journal. The first change creates both.
    fn opened(&self, inner: &mut Inner) -> io::Result<Arc<Open>> {
        if let Some(open) = &inner.open {
            return Ok(Arc::clone(open));
        }
        if self.rules.required {
            inner.available_bytes = Some(self.store.available_bytes(&self.entry));
        }
        let folder = self.store.begin(&self.entry)?;
        let journal = folder.appended(JOURNAL)?;
        // The lock tells an undo that the call still runs. Some file systems have no locks.
        let _ = rustix::fs::flock(&journal, FlockOperation::NonBlockingLockExclusive);
        let open = Arc::new(Open { folder, journal });
        inner.open = Some(Arc::clone(&open));
        Ok(open)
    }
}

impl Inner {
    /// Copies a small text that the call changed, for a merge with later changes. Returns the state
    /// `now` with the copy. If the file isn't small or copying fails, returns `now` unchanged.
    fn with_copy(&mut self, access: &Access, open: &Open, path: &Path, now: State) -> State {
        if !matches!(now, State::File { size, .. } if size <= MAX_MERGED_BYTES) {
            return now;
        }
        let handle = DirEntryRef::find(access, path).and_then(|place| place.handle());
        let Ok(handle) = handle else { return now };
        let copied = State::from_object(access, &handle, |content, size| {
            let no_limit = u64::MAX;
            let (copy, digest) = self.copy_contents(open, content, size, no_limit)?;
            Ok((Some(copy), digest))
        });
        copied.unwrap_or(now)
    }

    /// Copies a file into the folder, once for all of its names. The call may save at most
    /// `max_bytes`. Returns the number of the copy and the digest.
    fn copy_once(
        &mut self,
        open: &Open,
        path: &Path,
        content: &Content<'_>,
        size: u64,
        max_bytes: u64,
    ) -> io::Result<(Option<u32>, String)> {
        let known = content.identity.and_then(|identity| self.files.get(&identity));
        if let Some(State::File { copy, digest, .. }) = known {
            return Ok((*copy, digest.clone()));
        }
        let (copy, digest) = self.copy_contents(open, content, size, max_bytes)?;
        if content.is_shared {
            let kept = content.link_into(path, &open.folder, copy);
            if let Some(identity) = content.identity
                && kept.is_err()
            {
                self.unkept.entry(identity).or_default();
            }
        }
        Ok((Some(copy), digest))
    }

    /// Returns the first saved state of a file, under any of its names.
    fn first_state(&mut self, state: State) -> State {
        match state {
            State::File { identity: Some(identity), .. } => {
                self.files.entry(identity).or_insert(state).clone()
            }
            state => state,
        }
    }

    fn copy_contents(
        &mut self,
        open: &Open,
        content: &Content<'_>,
        size: u64,
        max_bytes: u64,
    ) -> io::Result<(u32, String)> {
        if self.saved.bytes.saturating_add(size) > max_bytes {
            return Err(io::Error::other(format!(
                "the changes of the call take more than {}",
                amount(max_bytes)
            )));
        }
        if let Some(available_bytes) = self.available_bytes
            && self.saved.bytes.saturating_add(size) > available_bytes
        {
            return Err(io::Error::other(
                "the storage of undo (`max_mib` in [tools.undo]) is full, and changes of the last \
                 day are deleted only with approval",
            ));
        }
        let mut file = content.open()?;
        let number = self.next_copy;
        self.next_copy += 1;
        let mut copy = open.folder.updated(&number.to_string())?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; CHUNK];
        let mut bytes = 0_u64;
        // The contents are read for the digest even if the copy shares the file's blocks.
        let shares_blocks = rustix::fs::ioctl_ficlone(&copy, &file).is_ok();
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            if self.saved.bytes.saturating_add(bytes) > max_bytes {
                return Err(io::Error::other("the file grew while it was saved"));
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

/// Checks whether the saved state of a path is enough to undo a change. If the name changes, an
/// undo must also be able to create the object again.
fn is_saved(inner: &Inner, changed: &ChangedPath<'_>) -> bool {
    let changes_name = changed.parent.is_some();
    match inner.saved_since_move.get(changed.path) {
        Some(state) => !changes_name || state.is_restorable(),
        None => false,
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

/// Returns the digest of the staged files if the path is a readable git index.
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

fn staged_before(folder: &PrivateFolder, before: &State) -> Option<String> {
    let State::File { copy: Some(copy), size, .. } = before else { return None };
    git_index::staged(|| Ok((folder.file(&copy.to_string())?, *size)))
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

pub(crate) fn contents(folder: &PrivateFolder, copy: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    folder.file(&copy.to_string())?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
