//! Decides which changes need no saving, because they are in caches that tools create again by
//! themselves. Caches are large. So if a call made a file in a cache, the file isn't saved before
//! another call changes or removes it.
//!
//! Three conditions must be true: the folder has the name and the mark of a cache, the folder is
//! older than the session, and git ignores it. Files in a cache that no call has made are saved
//! like all other files. Files that calls have made are recognised by their identity, not by their
//! path. So a file that was moved or linked into a cache isn't one of them.

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

/// Names of folders that are caches if they contain a valid `CACHEDIR.TAG`.
const CACHES: [&str; 6] = ["target", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"];

/// The file that marks a cache, and the start of its content in the specification.
const TAG: &str = "CACHEDIR.TAG";
const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// The most bytes of the list of files that calls have made in one cache. A longer list starts
/// again from empty. Files that aren't in the list are saved.
const MAX_LIST: u64 = 8 << 20;

/// Bytes of a file with patterns of git.
const MAX_PATTERNS: u64 = 1 << 20;

/// The beginning of the line for a folder that was moved into the cache.
const MOVED_IN: &str = "moved in: ";

/// The folder with these lists, inside the folder of all saved calls.
const LISTS: &str = "caches";

/// The caches that the commands of a call change.
#[derive(Debug)]
pub(crate) struct Caches {
    store: Arc<Folder>,
    about: UndoEntry,
    seen: Mutex<Seen>,
}

/// The names whose state has to be saved for a rename.
pub(crate) enum Rename {
    /// No name is saved: both names are in a cache, and calls made everything there.
    Skipped,
    /// Only the replaced name is saved: calls made the file, so its old name isn't needed.
    Replaces,
    /// Both names.
    Moves,
}

#[derive(Debug, Default)]
struct Seen {
    /// The start of the session: the time of its first saved call.
    since: Option<u64>,
    /// The caches, by their paths. `None` if the folder isn't a cache. A folder is checked before
    /// anything changes in it.
    folders: HashMap<PathBuf, Option<Cache>>,
    /// Paths in caches that this call has made.
    made: BTreeSet<PathBuf>,
    /// Paths in caches whose changes are saved.
    saved: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct Cache {
    identity: Identity,
    /// The files that calls have made in the cache.
    made: HashSet<Identity>,
    /// Whether the list must be rewritten.
    is_cut: bool,
}

impl Caches {
    pub(crate) fn new(store: Arc<Folder>, about: UndoEntry) -> Self {
        Self { store, about, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether a change needs no saving, because it is in a cache and changes an object that
    /// a call has made there.
    pub(crate) fn skip(&self, changed: &ChangedPath<'_>) -> bool {
        let mut seen = self.seen();
        let Some(cache) = self.cache_of(&mut seen, changed.path) else { return false };
        // A folder that was moved into a cache isn't part of the cache, and neither are the files
        // in it.
        if changed.path.ancestors().any(|above| seen.saved.contains(above)) {
            return false;
        }
        let is_made = self.is_made(&seen, &cache, changed);
        if is_made {
            seen.made.insert(changed.path.to_owned());
        } else {
            seen.saved.insert(changed.path.to_owned());
        }
        is_made
    }

    /// Checks whether calls made the object of a path in a cache. A missing object may be created
    /// there, unless its folder was moved in.
    fn is_made(&self, seen: &Seen, cache: &Path, changed: &ChangedPath<'_>) -> bool {
        if Rule::Caches.is_off() {
            return true;
        }
        let file = file_identity(changed);
        if seen.made.contains(changed.path) {
            // An older file may have got this name meanwhile.
            let is_new = match &file {
                Some(file) => file.born() + TICK >= self.about.at,
                None => true,
            };
            if is_new {
                return true;
            }
        }
        if changed.object.is_none() {
            return !self.store.moved_in.has_above(changed.path, cache);
        }
        file.is_some_and(|file| seen.has_made(cache, &file))
    }

    /// Decides which names must be saved for a rename.
    pub(crate) fn rename(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> Rename {
        let mut seen = self.seen();
        let [from_cache, to_cache] = [from, to].map(|end| self.cache_of(&mut seen, end.path));
        let is_within = from_cache.is_some() && from_cache == to_cache;
        let is_made =
            seen.made.contains(from.path) || seen.has_made_file(from_cache.as_deref(), from);
        let is_replaceable = to.object.is_none()
            || seen.made.contains(to.path)
            || seen.has_made_file(to_cache.as_deref(), to);
        let takes_saved = below(&seen.saved, from.path).next().is_some();
        let is_below_saved = to.path.ancestors().any(|above| seen.saved.contains(above));
        let is_moved_in = match &to_cache {
            Some(cache) => self.store.moved_in.has_above(to.path, cache),
            None => false,
        };
        let is_of_cache = is_within && is_made && !takes_saved;
        if is_of_cache && is_replaceable && !is_below_saved && !is_moved_in {
            seen.rekey(from.path, to.path);
            return Rename::Skipped;
        }

        // A folder that is moved into a cache or out of a cache is no longer part of it.
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
            cache.is_cut = true;
        }
        for path in [from.path, to.path] {
            let gone: Vec<_> = below(&seen.made, path).cloned().collect();
            seen.made.retain(|path| !gone.contains(path));
        }
        seen.saved.extend([from, to].map(|it| it.path.to_owned()));
        if is_of_cache && file_identity(from).is_some() { Rename::Replaces } else { Rename::Moves }
    }

    /// Updates the lists before an object gets a further name. If one of the two names is outside
    /// of the cache, the file doesn't belong only to the cache, and neither does the new name.
    pub(crate) fn link(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) {
        let mut seen = self.seen();
        let [one, other] = [from, to].map(|it| self.cache_of(&mut seen, it.path));
        if one == other {
            return;
        }
        if let Some(Some(cache)) = one.and_then(|cache| seen.folders.get_mut(&cache)) {
            cache.forget(from);
        }
        seen.made.remove(from.path);
        seen.saved.extend([from, to].map(|it| it.path.to_owned()));
    }

    /// Returns the innermost cache that a path is in.
    fn cache_of(&self, seen: &mut Seen, path: &Path) -> Option<PathBuf> {
        let folder = path.ancestors().skip(1).find(|folder| is_named(folder))?;
        if !seen.folders.contains_key(folder) {
            let since = *seen.since.get_or_insert_with(|| self.since());
            let cache = self.look(folder, since);
            seen.folders.insert(folder.to_owned(), cache);
        }
        seen.folders.get(folder)?.as_ref().map(|_| folder.to_owned())
    }

    /// Returns the time of the first saved call of the session.
    fn since(&self) -> u64 {
        let saved = self.store.list().unwrap_or_default();
        let own = saved.into_iter().filter(|about| about.session == self.about.session);
        own.map(|about| about.at).min().unwrap_or(self.about.at).min(self.about.at)
    }

    /// Reads the list of a cache. Returns `None` if the folder isn't a cache.
    fn look(&self, folder: &Path, since: u64) -> Option<Cache> {
        let access = Access::default();
        let handle = DirEntryRef::find(&access, folder).and_then(|place| place.handle()).ok()?;
        let identity = Identity::at(&handle)?;
        if identity.born() >= since || !is_tagged(&access, folder) || !is_ignored(folder) {
            return None;
        }
        let (made, moved_in) = listed(&self.store, &identity).unwrap_or_default();
        self.store.moved_in.folders().extend(moved_in);
        Some(Cache { identity, made, is_cut: false })
    }

    /// Adds the files that this call has made to the lists.
    fn keep(&self) -> io::Result<()> {
        let seen = self.seen();
        let caches: Vec<_> =
            seen.folders.iter().filter_map(|(at, it)| Some((at, it.as_ref()?))).collect();
        if seen.made.is_empty() && caches.iter().all(|(_, cache)| !cache.is_cut) {
            return Ok(());
        }
        let lists = PrivateFolder::make(&self.store.path)?.folder(LISTS)?;
        let access = Access::default();
        for (folder, cache) in caches {
            let name = cache.identity.to_string();
            if cache.is_cut {
                let made = cache.made.iter().map(|made| format!("{made}\n"));
                let folders = self.store.moved_in.folders();
                let moved_in = folders.iter().map(|folder| format!("{MOVED_IN}{folder}\n"));
                let kept: String = moved_in.chain(made).collect();
                lists.put_lightly(&name, kept.as_bytes())?;
            }
            let identities = below(&seen.made, folder).filter_map(|path| {
                let handle =
                    DirEntryRef::find(&access, path).and_then(|place| place.handle()).ok()?;
                // A new name for an older file doesn't make the file part of the cache.
                Identity::at(&handle).filter(|it| it.born() >= self.about.at)
            });
            let new: String = identities
                .filter(|it| !cache.made.contains(it))
                .map(|identity| format!("{identity}\n"))
                .collect();
            let mut list = lists.appended(&name)?;
            if list.metadata()?.len() + new.len() as u64 > MAX_LIST {
                list.set_len(0)?;
            }
            list.write_all(new.as_bytes())?;
        }
        Ok(())
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        // Files that aren't in a list are saved.
        let _ = self.keep();
    }
}

impl Seen {
    fn has_made(&self, cache: &Path, identity: &Identity) -> bool {
        matches!(self.folders.get(cache), Some(Some(cache)) if cache.made.contains(identity))
    }

    /// Checks whether calls made the file of a path in a cache. Returns `false` without a cache.
    fn has_made_file(&self, cache: Option<&Path>, changed: &ChangedPath<'_>) -> bool {
        let Some(cache) = cache else { return false };
        let Some(file) = file_identity(changed) else { return false };
        self.has_made(cache, &file)
    }

    /// Renames the paths that this call has made.
    fn rekey(&mut self, from: &Path, to: &Path) {
        let moved: Vec<_> = below(&self.made, from).cloned().collect();
        for path in moved {
            self.made.remove(&path);
            if let Ok(rest) = path.strip_prefix(from) {
                let at_root = rest.as_os_str().is_empty();
                self.made.insert(if at_root { to.to_owned() } else { to.join(rest) });
            }
        }
        self.made.insert(to.to_owned());
    }
}

/// Returns the paths at and below another.
fn below<'a>(paths: &'a BTreeSet<PathBuf>, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
    paths.range(path.to_owned()..).take_while(move |it| it.starts_with(path))
}

impl Cache {
    /// Removes a file from the lists if it leaves or enters the cache. The content of a moved
    /// folder is unknown, so all files are then removed.
    fn forget(&mut self, moved: &ChangedPath<'_>) {
        let is_forgotten = match file_identity(moved) {
            Some(file) => self.made.remove(&file),
            None => !std::mem::take(&mut self.made).is_empty(),
        };
        if is_forgotten {
            self.is_cut = true;
        }
    }
}

/// Returns the identity of the object, unless the object is a folder.
pub(crate) fn file_identity(changed: &ChangedPath<'_>) -> Option<Identity> {
    let (identity, is_folder) = object_identity(changed)?;
    if is_folder { None } else { Some(identity) }
}

fn folder_identity(changed: &ChangedPath<'_>) -> Option<Identity> {
    let (identity, is_folder) = object_identity(changed)?;
    if is_folder { Some(identity) } else { None }
}

/// Returns the identity of the object, and whether the object is a folder.
fn object_identity(changed: &ChangedPath<'_>) -> Option<(Identity, bool)> {
    let object = changed.object?;
    let stat = rustix::fs::statat(object, "", AtFlags::EMPTY_PATH).ok()?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Some((Identity::from_stat(object, &stat)?, is_folder))
}

/// The files that calls have made in a cache, and the folders that they have moved into it.
type Listed = (HashSet<Identity>, HashSet<Identity>);

fn listed(store: &Folder, cache: &Identity) -> io::Result<Listed> {
    let Some(root) = store.existing()? else { return Ok(Listed::default()) };
    let list = root.folder(LISTS)?.file(&cache.to_string())?;
    let mut text = String::new();
    list.take(MAX_LIST).read_to_string(&mut text)?;
    let (moved_in, made): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with(MOVED_IN));
    let moved_in = moved_in.iter().filter_map(|line| line.strip_prefix(MOVED_IN)?.parse().ok());
    Ok((made.iter().filter_map(|line| line.parse().ok()).collect(), moved_in.collect()))
}

/// Checks whether a call has made a file in a cache. Such a file isn't saved, so any object may
/// replace it.
pub(crate) fn is_made_in_cache(
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
    let Ok((made, _)) = listed(store, &cache) else { return false };
    made.contains(file)
}

fn exists(access: &Access, path: &Path) -> bool {
    DirEntryRef::find(access, path).and_then(|place| place.stat()).is_ok_and(|it| it.is_some())
}

/// Checks whether git ignores the content of a folder, by the patterns of its repository.
fn is_ignored(folder: &Path) -> bool {
    let access = Access::default();
    let mut above = folder.ancestors().skip(1);
    let Some(root) = above.find(|it| exists(&access, &it.join(".git"))) else {
        return false;
    };
    let inside = folder.join(TAG);
    let around = folder.ancestors().take_while(|it| it.starts_with(root));
    let patterns = around
        .map(|it| (it, it.join(".gitignore")))
        .chain([(root, root.join(".git/info/exclude"))]);
    for (at, file) in patterns {
        let mut builder = GitignoreBuilder::new(at);
        for line in read_patterns(&file).lines() {
            let _ = builder.add_line(None, line);
        }
        let Ok(matcher) = builder.build() else { continue };
        let found = matcher.matched_path_or_any_parents(&inside, false);
        if !found.is_none() {
            return found.is_ignore();
        }
    }
    false
}

fn read_patterns(path: &Path) -> String {
    let access = Access::default();
    let mut text = Vec::new();
    let _ = DirEntryRef::find(&access, path)
        .and_then(|place| place.open())
        .and_then(|file| file.take(MAX_PATTERNS).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// The checked folders, and whether each has the name and the mark of a cache.
#[derive(Debug, Default)]
pub(crate) struct KnownCaches(HashMap<PathBuf, bool>);

impl KnownCaches {
    /// Checks whether a path is in a cache.
    pub(crate) fn contain(&mut self, access: &Access, path: &Path) -> bool {
        let mut around = path.ancestors().skip(1).filter(|folder| is_named(folder));
        around.any(|folder| {
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
