//! Decides which changes in caches aren't saved, because tools create caches again and caches are
//! large. A file that a call created in a cache isn't saved before another call changes or removes
//! it.
//!
//! A folder is a cache if it has the name and the mark of a cache, is older than the session, and
//! is ignored by git. Files that calls created are recognised by their identity, not by their path.
//! A file that was moved or linked into a cache is saved.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ignore::gitignore::GitignoreBuilder;
use rustix::fs::{AtFlags, FileType};
use toolhold_contract::ChangedPath;
use toolhold_data_dir::PrivateFolder;

use super::access::Access;
use super::files::DirEntryRef;
use super::folder::{Folder, TICK, UndoEntry};
use super::rules::Rule;
use super::state::Identity;

/// Folders with these names are caches if they contain a valid `CACHEDIR.TAG`.
const CACHES: [&str; 6] = ["target", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"];

/// The file that marks a cache, and the first bytes of its content.
const TAG: &str = "CACHEDIR.TAG";
const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Most bytes of the list of files that calls have created in one cache. A longer list is emptied,
/// and files that aren't in the list are saved.
const MAX_LIST: u64 = 8 << 20;

const MAX_PATTERNS: u64 = 1 << 20;

const MOVED_IN: &str = "moved in: ";

const LISTS: &str = "caches";

#[derive(Debug)]
pub(crate) struct Caches {
    store: Arc<Folder>,
    entry: UndoEntry,
    seen: Mutex<Seen>,
}

/// The names whose state is saved for a rename.
pub(crate) enum Rename {
    /// Neither name is saved, because both are in a cache and calls created their objects.
    Skipped,
    /// Only the replaced name is saved, because calls created the renamed file in the cache.
    Replaces,
    /// Both names are saved.
    Moves,
}

#[derive(Debug, Default)]
struct Seen {
    /// The time of the session's first saved call.
    since: Option<u64>,
    /// The checked folders. `None` if the folder isn't a cache.
    folders: HashMap<PathBuf, Option<Cache>>,
    created: BTreeSet<PathBuf>,
    saved: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct Cache {
    identity: Identity,
    created: HashSet<Identity>,
    has_lost_entries: bool,
}

impl Caches {
    pub(crate) fn new(store: Arc<Folder>, entry: UndoEntry) -> Self {
        Self { store, entry, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether a change needs no saving, because the object is in a cache and calls created
    /// it. Remembers the path for later decisions.
    pub(crate) fn may_skip(&self, changed: &ChangedPath<'_>) -> bool {
        let mut seen = self.seen();
        let Some(cache) = self.cache_of(&mut seen, changed.path) else { return false };
        // A folder that was moved into a cache isn't part of the cache.
        if changed.path.ancestors().any(|above| seen.saved.contains(above)) {
            return false;
        }
        let is_created = self.is_created(&seen, &cache, changed);
        if is_created {
            seen.created.insert(changed.path.to_owned());
        } else {
            seen.saved.insert(changed.path.to_owned());
        }
        is_created
    }

    /// Checks whether calls created the object at a path. The path is in `cache`.
    fn is_created(&self, seen: &Seen, cache: &Path, changed: &ChangedPath<'_>) -> bool {
        // Tests disable this rule.
        if Rule::Caches.is_off_in_test() {
            return true;
        }
        let file = file_identity(changed);
        if seen.created.contains(changed.path) {
            // An older file may have been moved to this path in the meantime.
            let is_new = match &file {
                Some(file) => file.born() + TICK >= self.entry.at,
                None => true,
            };
            if is_new {
                return true;
            }
        }
        // A free path is part of the cache, unless a folder above it was moved into the cache.
        if changed.object.is_none() {
            return !self.store.moved_in.has_above(changed.path, cache);
        }
        file.is_some_and(|file| seen.has_created(cache, &file))
    }

    pub(crate) fn rename(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> Rename {
        let mut seen = self.seen();
        let [from_cache, to_cache] = [from, to].map(|end| self.cache_of(&mut seen, end.path));
        let is_within = from_cache.is_some() && from_cache == to_cache;
        let is_created =
            seen.created.contains(from.path) || seen.has_created_file(from_cache.as_deref(), from);
        let is_replaceable = to.object.is_none()
            || seen.created.contains(to.path)
            || seen.has_created_file(to_cache.as_deref(), to);
        let contains_saved = below(&seen.saved, from.path).next().is_some();
        let is_below_saved = to.path.ancestors().any(|above| seen.saved.contains(above));
        let is_moved_in = match &to_cache {
            Some(cache) => self.store.moved_in.has_above(to.path, cache),
            None => false,
        };
        let is_of_cache = is_within && is_created && !contains_saved;
        if is_of_cache && is_replaceable && !is_below_saved && !is_moved_in {
            seen.rekey(from.path, to.path);
            return Rename::Skipped;
        }

        // A folder that is moved into or out of a cache isn't part of the cache.
        for path in [&from_cache, &to_cache].into_iter().flatten() {
            if let Some(Some(cache)) = seen.folders.get_mut(path) {
                cache.forget(from);
            }
        }
        if let Some(path) = &to_cache
            && let Some(Some(cache)) = seen.folders.get_mut(path)
            && let Some(folder) = folder_identity(from)
            && self.store.moved_in.folders().insert(folder)
        {
            cache.has_lost_entries = true;
        }
        for path in [from.path, to.path] {
            let moved: Vec<_> = below(&seen.created, path).cloned().collect();
            seen.created.retain(|path| !moved.contains(path));
        }
        seen.saved.extend([from, to].map(|end| end.path.to_owned()));
        if is_of_cache && file_identity(from).is_some() { Rename::Replaces } else { Rename::Moves }
    }

    /// Updates the lists before an object gets another name. A file with a name outside of a cache
    /// isn't part of the cache.
    pub(crate) fn link(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) {
        let mut seen = self.seen();
        let [from_cache, to_cache] = [from, to].map(|end| self.cache_of(&mut seen, end.path));
        let is_within_one_cache = from_cache == to_cache;
        if is_within_one_cache {
            return;
        }
        if let Some(Some(cache)) = from_cache.and_then(|cache| seen.folders.get_mut(&cache)) {
            cache.forget(from);
        }
        seen.created.remove(from.path);
        seen.saved.extend([from, to].map(|end| end.path.to_owned()));
    }

    /// Returns the cache that contains a path. Each folder is examined only once.
    fn cache_of(&self, seen: &mut Seen, path: &Path) -> Option<PathBuf> {
        let folder = path.ancestors().skip(1).find(|folder| is_named(folder))?;
        if !seen.folders.contains_key(folder) {
            let since = *seen.since.get_or_insert_with(|| self.session_start());
            let cache = self.examine(folder, since);
            seen.folders.insert(folder.to_owned(), cache);
        }
        let is_cache = seen.folders.get(folder)?.is_some();
        if is_cache { Some(folder.to_owned()) } else { None }
    }

    /// Returns the time of the session's first saved call. If the saved calls can't be read,
    /// returns the time of this call.
    fn session_start(&self) -> u64 {
        let mut start = self.entry.at;
        for entry in self.store.list().unwrap_or_default() {
            if entry.session == self.entry.session {
                start = start.min(entry.at);
            }
        }
        start
    }

    /// Examines a folder. Returns `None` if the folder isn't a cache, or if the session may have
    /// created it. `since` is the start of the session.
    fn examine(&self, folder: &Path, since: u64) -> Option<Cache> {
        let access = Access::default();
        let handle = DirEntryRef::find(&access, folder).and_then(|place| place.handle()).ok()?;
        let identity = Identity::at(&handle)?;
        let is_older = identity.born() < since;
        if !is_older || !is_tagged(&access, folder) || !is_ignored(folder) {
            return None;
        }
        // An unreadable list counts as empty. Then no file counts as created by a call, so
        // everything is saved.
        let (created, moved_in) = read_list(&self.store, &identity).unwrap_or_default();
        self.store.moved_in.folders().extend(moved_in);
        Some(Cache { identity, created, has_lost_entries: false })
    }

    /// Adds the objects that this call created to the lists of their caches.
    fn save_lists(&self) -> io::Result<()> {
        let seen = self.seen();
        let must_rewrite = seen.folders.values().flatten().any(|cache| cache.has_lost_entries);
        if seen.created.is_empty() && !must_rewrite {
            return Ok(());
        }
        let lists = PrivateFolder::make(&self.store.path)?.folder(LISTS)?;
        let access = Access::default();
        for (folder, cache) in &seen.folders {
            let Some(cache) = cache else { continue };
            let name = cache.identity.to_string();
            // New lines are only appended, so a list that has lost entries must be written again.
            if cache.has_lost_entries {
                let created = cache.created.iter().map(|created| format!("{created}\n"));
                let folders = self.store.moved_in.folders();
                let moved_in = folders.iter().map(|folder| format!("{MOVED_IN}{folder}\n"));
                let remaining: String = moved_in.chain(created).collect();
                lists.put_lightly(&name, remaining.as_bytes())?;
            }
            let new_lines = self.new_lines(&access, &seen, folder, cache);
            let mut list = lists.appended(&name)?;
            // A list that is too long is emptied. This loses nothing, because objects that aren't
            // in the list are saved.
            let length = list.metadata()?.len() + new_lines.len() as u64;
            if length > MAX_LIST {
                list.set_len(0)?;
            }
            list.write_all(new_lines.as_bytes())?;
        }
        Ok(())
    }

    /// Returns a line for each object that this call created and that isn't in the list of `cache`.
    fn new_lines(&self, access: &Access, seen: &Seen, folder: &Path, cache: &Cache) -> String {
        let mut lines = String::new();
        for path in below(&seen.created, folder) {
            let handle = DirEntryRef::find(access, path).and_then(|place| place.handle());
            let Ok(handle) = handle else { continue };
            let Some(identity) = Identity::at(&handle) else { continue };
            // A new name of an older file isn't part of the cache.
            let is_new = identity.born() >= self.entry.at;
            if is_new && !cache.created.contains(&identity) {
                lines.push_str(&format!("{identity}\n"));
            }
        }
        lines
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        // After an error, files are missing in the lists and are therefore saved.
        let _ = self.save_lists();
    }
}

impl Seen {
    fn has_created(&self, cache: &Path, identity: &Identity) -> bool {
        matches!(self.folders.get(cache), Some(Some(cache)) if cache.created.contains(identity))
    }

    fn has_created_file(&self, cache: Option<&Path>, changed: &ChangedPath<'_>) -> bool {
        let Some(cache) = cache else { return false };
        let Some(file) = file_identity(changed) else { return false };
        self.has_created(cache, &file)
    }

    /// Records that the created paths at and below `from` are now at and below `to`.
    fn rekey(&mut self, from: &Path, to: &Path) {
        let moved: Vec<_> = below(&self.created, from).cloned().collect();
        for path in moved {
            self.created.remove(&path);
            if let Ok(rest) = path.strip_prefix(from) {
                // Joining an empty path adds a slash.
                let is_from = rest.as_os_str().is_empty();
                self.created.insert(if is_from { to.to_owned() } else { to.join(rest) });
            }
        }
        self.created.insert(to.to_owned());
    }
}

/// Returns the paths at and below a path, which are next to each other in the sorted set.
fn below<'a>(paths: &'a BTreeSet<PathBuf>, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
    paths.range(path.to_owned()..).take_while(move |other| other.starts_with(path))
}

impl Cache {
    /// Removes a moved file from the list. After the move of a folder, empties the list, because
    /// the content of the folder is unknown.
    fn forget(&mut self, moved: &ChangedPath<'_>) {
        let has_forgotten = match file_identity(moved) {
            Some(file) => self.created.remove(&file),
            None => !std::mem::take(&mut self.created).is_empty(),
        };
        if has_forgotten {
            self.has_lost_entries = true;
        }
    }
}

pub(crate) fn file_identity(changed: &ChangedPath<'_>) -> Option<Identity> {
    let (identity, is_folder) = object_identity(changed)?;
    if is_folder { None } else { Some(identity) }
}

fn folder_identity(changed: &ChangedPath<'_>) -> Option<Identity> {
    let (identity, is_folder) = object_identity(changed)?;
    if is_folder { Some(identity) } else { None }
}

fn object_identity(changed: &ChangedPath<'_>) -> Option<(Identity, bool)> {
    let object = changed.object?;
    let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH).ok()?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Some((Identity::from_stat(object, &stat)?, is_folder))
}

/// The files that calls created in a cache, and the folders that calls moved into the cache.
type Listed = (HashSet<Identity>, HashSet<Identity>);

/// Reads the list of a cache. The list is empty if the store doesn't exist.
fn read_list(store: &Folder, cache: &Identity) -> io::Result<Listed> {
    let Some(root) = store.existing()? else { return Ok(Listed::default()) };
    let list = root.folder(LISTS)?.file(&cache.to_string())?;
    let mut text = String::new();
    list.take(MAX_LIST).read_to_string(&mut text)?;
    let (mut created, mut moved_in) = Listed::default();
    // A line that a crash or the limit has cut is ignored.
    for line in text.lines() {
        match line.strip_prefix(MOVED_IN) {
            Some(folder) => moved_in.extend(folder.parse::<Identity>().ok()),
            None => created.extend(line.parse::<Identity>().ok()),
        }
    }
    Ok((created, moved_in))
}

/// Checks whether a call created the file at a path in a cache. Such a file isn't saved, so an undo
/// may replace it with any object.
pub(crate) fn is_created_in_cache(
    store: &Folder,
    access: &Access,
    path: &Path,
    file: &Identity,
) -> bool {
    let Some(folder) = path.ancestors().skip(1).find(|folder| is_named(folder)) else {
        return false;
    };
    let handle = DirEntryRef::find(access, folder).and_then(|place| place.handle());
    let Ok(handle) = handle else { return false };
    let Some(cache) = Identity::at(&handle) else { return false };
    let Ok((created, _)) = read_list(store, &cache) else { return false };
    created.contains(file)
}

fn exists(access: &Access, path: &Path) -> bool {
    DirEntryRef::find(access, path).and_then(|place| place.stat()).is_ok_and(|stat| stat.is_some())
}

fn is_ignored(folder: &Path) -> bool {
    let access = Access::default();
    let mut parents = folder.ancestors().skip(1);
    let Some(root) = parents.find(|parent| exists(&access, &parent.join(".git"))) else {
        return false;
    };
    // The files of patterns, each with its directory. The patterns that are nearest to the folder
    // decide.
    let mut files = Vec::new();
    for directory in folder.ancestors().take_while(|above| above.starts_with(root)) {
        files.push((directory, directory.join(".gitignore")));
    }
    files.push((root, root.join(".git/info/exclude")));

    let tag_file = folder.join(TAG);
    let is_directory = false;
    for (directory, file) in files {
        let mut builder = GitignoreBuilder::new(directory);
        for line in read_patterns(&file).lines() {
            // Git also skips a line that isn't a pattern.
            let included_from = None;
            let _ = builder.add_line(included_from, line);
        }
        let Ok(matcher) = builder.build() else { continue };
        let found = matcher.matched_path_or_any_parents(&tag_file, is_directory);
        if !found.is_none() {
            return found.is_ignore();
        }
    }
    false
}

/// Reads a file of patterns. A missing or unreadable file has no patterns.
fn read_patterns(path: &Path) -> String {
    let access = Access::default();
    let mut text = Vec::new();
    let _ = DirEntryRef::find(&access, path)
        .and_then(|place| place.open())
        .and_then(|file| file.take(MAX_PATTERNS).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

#[derive(Debug, Default)]
pub(crate) struct KnownCaches(HashMap<PathBuf, bool>);

impl KnownCaches {
    pub(crate) fn contain(&mut self, access: &Access, path: &Path) -> bool {
        let mut named_folders = path.ancestors().skip(1).filter(|folder| is_named(folder));
        named_folders.any(|folder| {
            *self.0.entry(folder.to_owned()).or_insert_with(|| is_tagged(access, folder))
        })
    }
}

fn is_named(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| CACHES.iter().any(|cache| name == *cache))
}

fn is_tagged(access: &Access, folder: &Path) -> bool {
    let mut begin = Vec::new();
    let read = DirEntryRef::find(access, &folder.join(TAG))
        .and_then(|place| place.open())
        .and_then(|file| file.take(SIGNATURE.len() as u64).read_to_end(&mut begin));
    read.is_ok() && begin == SIGNATURE
}
