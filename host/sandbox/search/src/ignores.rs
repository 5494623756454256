//! Finds the ignore files that apply in a directory (`.gitignore`, `.ignore`). Their meaning is the
//! same as in ripgrep, within limits of memory and time.
//!
//! `.gitignore` and `.git/info/exclude` apply inside a git repository, up to its top directory.
//! `.ignore` applies everywhere and has precedence over both. Among several files of one kind, the
//! deepest file with a matching line decides. Ignore files are read by handle like all files, and
//! only if the rules allow reading them. So no file outside of the grants affects a search.
//!
//! The cost of ignore files is limited. A file that is too long or needs too much memory is
//! omitted. If a file takes too much time, its lines with wildcards are omitted. The search then
//! finds more entries. Each of these files counts as one entry that couldn't be read.

use std::ffi::{CStr, OsStr};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Stat;
use rustix::io::Errno;
use toolhold_contract::Access;
use toolhold_policy::files::Kind;

use super::budget::thread_cpu;
use super::directory::{self, Names};
use super::rules::Rules;
use toolhold_system::files::FileView;

/// The most bytes of an ignore file.
const MAX_BYTES: u64 = 1 << 20;

/// The most memory for the active ignore rules of a search. These are the rules from the root down
/// to the current directories of the threads.
const MAX_MEMORY: u64 = 64 << 20;

/// The most active lines with wildcards of one file.
const MAX_WILD: usize = 1_000;

/// The most lines with wildcards, and the most bytes of a file, once the time of the search's rules
/// is over.
const MAX_WILD_LATE: usize = 50;
const MAX_BYTES_LATE: usize = 4 << 10;

/// The processor time of the rules in one search, over all threads. The usual time for one name,
/// and for compiling one file, isn't included.
const MAX_TIME: Duration = Duration::from_secs(1);
const USUAL_MATCH: Duration = Duration::from_micros(50);
const USUAL_COMPILATION: Duration = Duration::from_millis(2);

/// The memory and the time of a search's ignore rules.
#[derive(Debug)]
pub(super) struct RuleMemory {
    threads: usize,
    used: AtomicU64,
    left_out: AtomicU64,
    /// Nanoseconds beyond the usual time.
    spent: AtomicU64,
}

/// The rules of one ignore file. `memory` includes them until they are dropped.
#[derive(Debug)]
struct IgnoreFile {
    rules: Option<Rules>,
    /// Whether the lines with wildcards apply. They are disabled when they take too much time.
    wild: AtomicBool,
    /// Whether a name took long. Asking for the processor time of each name would take longer than
    /// most names do.
    is_measured: AtomicBool,
    /// The length of the directory's path, with a slash.
    prefix: usize,
    memory: Arc<RuleMemory>,
    bytes: u64,
}

/// The ignore rules of one directory and its parents. A directory without ignore files shares the
/// rules of its parent.
#[derive(Debug)]
pub(super) struct Ignores {
    above: Option<Arc<Self>>,
    ignore: Option<IgnoreFile>,
    git_ignore: Option<IgnoreFile>,
    git_exclude: Option<IgnoreFile>,
    /// Whether this directory is the top of a repository.
    is_repository: bool,
    /// Whether this directory or a parent is the top of a repository.
    in_repository: bool,
}

/// A directory whose ignore files are read.
#[derive(Clone, Copy)]
pub(super) struct IgnoreSource<'a> {
    pub(super) view: &'a FileView,
    pub(super) dir: BorrowedFd<'a>,
    /// The directory's real path and a slash.
    pub(super) prefix: &'a [u8],
    pub(super) memory: &'a Arc<RuleMemory>,
}

/// The names for ignore rules that a directory has.
#[derive(Clone, Copy, Debug, Default)]
struct MarkerNames {
    ignore: bool,
    git_ignore: bool,
    git: bool,
}

impl Ignores {
    /// Checks whether the entry at the real path `path` is ignored. Returns `Some(false)` if a line
    /// with `!` includes the entry again, and `None` if no line matches the entry.
    pub(super) fn is_ignored(&self, path: &[u8], is_directory: bool) -> Option<bool> {
        let mut git_ignore = None;
        let mut git_exclude = None;
        let mut in_repository = self.in_repository;
        let mut next = Some(self);
        while let Some(level) = next {
            let ignore = is_ignored_by(level.ignore.as_ref(), path, is_directory);
            if ignore.is_some() {
                return ignore;
            }
            if in_repository {
                if git_ignore.is_none() {
                    git_ignore = is_ignored_by(level.git_ignore.as_ref(), path, is_directory);
                }
                if git_exclude.is_none() {
                    git_exclude = is_ignored_by(level.git_exclude.as_ref(), path, is_directory);
                }
                in_repository = !level.is_repository;
            }
            next = level.above.as_deref();
        }
        git_ignore.or(git_exclude)
    }

    /// Returns the ignore rules of a directory with the entries `names`, below `above`.
    pub(super) fn from_entries(
        source: IgnoreSource<'_>,
        names: &Names,
        above: Option<Arc<Self>>,
    ) -> Option<Arc<Self>> {
        if !names.any_hidden {
            return above;
        }
        let mut present = MarkerNames::default();
        for index in 0..names.len() {
            match names.name(index).to_bytes() {
                b".ignore" => present.ignore = true,
                b".gitignore" => present.git_ignore = true,
                b".git" => present.git = true,
                _ => {}
            }
        }
        Self::load(source, present, above)
    }

    /// Returns the ignore rules of a directory without reading the directory's entries.
    pub(super) fn from_directory(
        source: IgnoreSource<'_>,
        above: Option<Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let present = MarkerNames {
            ignore: source.has(c".ignore"),
            git_ignore: source.has(c".gitignore"),
            git: source.has(c".git"),
        };
        Self::load(source, present, above)
    }

    fn load(
        source: IgnoreSource<'_>,
        present: MarkerNames,
        above: Option<Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let has_marker = present.ignore || present.git_ignore || present.git;
        if !has_marker {
            return above;
        }
        let is_below_repository = above.as_ref().is_some_and(|above| above.in_repository);
        Some(Arc::new(Self {
            ignore: source.load_if(present.ignore, &[c".ignore"]),
            git_ignore: source.load_if(present.git_ignore, &[c".gitignore"]),
            git_exclude: source.load_if(present.git, &[c".git", c"info", c"exclude"]),
            is_repository: present.git,
            in_repository: present.git || is_below_repository,
            above,
        }))
    }
}

impl IgnoreSource<'_> {
    /// Checks whether the directory has an entry of this name. The call's report records the
    /// answer.
    fn has(&self, name: &CStr) -> bool {
        let is_present = directory::stat(self.dir, name).is_ok();
        self.view.record_presence(&[self.prefix, name.to_bytes()].concat(), is_present);
        is_present
    }

    fn load_if(&self, is_present: bool, path: &[&CStr]) -> Option<IgnoreFile> {
        if is_present { self.load(path) } else { None }
    }

    /// Loads the rules in the file at `path`. Returns `None` if the file isn't a regular file,
    /// can't be read, or exceeds the memory limit. A partly omitted file is counted.
    fn load(&self, path: &[&CStr]) -> Option<IgnoreFile> {
        let text = self.read(path)?;
        let is_late = self.memory.is_spent();
        let most_wild = if is_late { MAX_WILD_LATE } else { MAX_WILD };
        let bytes = Rules::memory(&text, most_wild, self.memory.threads);
        let is_too_long = is_late && text.len() > MAX_BYTES_LATE;
        if is_too_long || !self.memory.reserve(bytes) {
            self.memory.count_left_out();
            return None;
        }

        // The reserved memory is given back when the file is dropped.
        let mut file = IgnoreFile {
            rules: None,
            wild: AtomicBool::new(false),
            is_measured: AtomicBool::new(false),
            prefix: self.prefix.len(),
            memory: Arc::clone(self.memory),
            bytes,
        };
        let started = thread_cpu();
        file.rules = Rules::new(&text, most_wild);
        self.memory.spend(started, USUAL_COMPILATION);
        if file.rules.as_ref().is_none_or(|rules| rules.is_cut) {
            self.memory.count_left_out();
        }
        *file.wild.get_mut() = file.rules.as_ref().is_some_and(Rules::has_wild);
        Some(file)
    }

    /// Reads the file at `path`, if the rules allow it and the file isn't too long.
    fn read(&self, path: &[&CStr]) -> Option<Vec<u8>> {
        let parts: Vec<&[u8]> = path.iter().map(|part| part.to_bytes()).collect();
        let real = [self.prefix, &parts.join(&b'/')].concat();
        // Only the path rules decide here, not the rules about calls: the content of an ignore file
        // isn't part of the answer.
        let real_path = Path::new(OsStr::from_bytes(&real));
        self.view.rules().decide(real_path, Kind::Other, Access::Read).ok()?;

        let (file, stat) = match self.open(path) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                self.view.record_presence(&real, false);
                return None;
            }
            Err(_) => {
                self.view.mark_incomplete();
                return None;
            }
        };
        self.view.record(&real, &stat, Some(file.as_fd()));
        if directory::size(&stat) > MAX_BYTES {
            self.memory.count_left_out();
            return None;
        }
        let mut text = Vec::new();
        if std::fs::File::from(file).take(MAX_BYTES).read_to_end(&mut text).is_err() {
            self.view.mark_incomplete();
            return None;
        }
        // A byte order mark isn't part of the first line.
        if text.starts_with(b"\xef\xbb\xbf") {
            text.drain(..3);
        }
        Some(text)
    }

    /// Opens the file at `path` below the directory, one component at a time.
    fn open(&self, path: &[&CStr]) -> Result<(OwnedFd, Stat), Errno> {
        let (name, parents) = path.split_last().ok_or(Errno::NOENT)?;
        let mut real = self.prefix.to_vec();
        let mut innermost: Option<OwnedFd> = None;
        for parent in parents {
            real.extend_from_slice(parent.to_bytes());
            let outer = innermost.as_ref().map_or(self.dir, OwnedFd::as_fd);
            let inner = directory::open_directory(outer, parent)?;
            if !directory::is_at(inner.as_fd(), &real) {
                return Err(Errno::XDEV);
            }
            innermost = Some(inner);
            real.push(b'/');
        }
        directory::open_file(innermost.as_ref().map_or(self.dir, OwnedFd::as_fd), name)
    }
}

impl RuleMemory {
    /// Makes the memory for a search with `threads` threads.
    pub(super) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self {
            threads,
            used: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            spent: AtomicU64::new(0),
        })
    }

    /// Returns the number of ignore files that were omitted completely, or without their lines with
    /// wildcards, because they are too long or need too much memory or time.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    fn count_left_out(&self) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the time of this thread since `started`, minus the usual time. Returns true if the time
    /// was longer than usual, and the time limit of the search's rules is reached.
    fn spend(&self, started: Duration, usual: Duration) -> bool {
        let Some(excess) = thread_cpu().checked_sub(started + usual) else { return false };
        let nanoseconds = u64::try_from(excess.as_nanos()).unwrap_or(u64::MAX);
        // An overflow would take longer than any search.
        self.spent.fetch_add(nanoseconds, Ordering::Relaxed);
        self.is_spent()
    }

    fn is_spent(&self) -> bool {
        u128::from(self.spent.load(Ordering::Relaxed)) >= MAX_TIME.as_nanos()
    }

    /// Reserves bytes of memory. Returns false if the limit is reached.
    fn reserve(&self, bytes: u64) -> bool {
        let reserved = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let sum = used + bytes;
            if sum <= MAX_MEMORY { Some(sum) } else { None }
        });
        reserved.is_ok()
    }
}

impl Drop for IgnoreFile {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Checks whether one ignore file ignores an entry.
fn is_ignored_by(file: Option<&IgnoreFile>, path: &[u8], is_directory: bool) -> Option<bool> {
    let file = file?;
    let rules = file.rules.as_ref()?;
    let rest = path.get(file.prefix..)?;
    if !file.wild.load(Ordering::Relaxed) {
        return rules.is_ignored(rest, is_directory, false);
    }
    if !file.is_measured.load(Ordering::Relaxed) {
        let started = Instant::now();
        let is_ignored = rules.is_ignored(rest, is_directory, true);
        if started.elapsed() > USUAL_MATCH {
            file.is_measured.store(true, Ordering::Relaxed);
        }
        return is_ignored;
    }

    let started = thread_cpu();
    let is_ignored = rules.is_ignored(rest, is_directory, true);
    let is_too_slow = file.memory.spend(started, USUAL_MATCH);
    // Only the thread that disables the lines counts the file.
    if is_too_slow && file.wild.swap(false, Ordering::Relaxed) {
        file.memory.count_left_out();
    }
    is_ignored
}
