//! Finds the ignore files that apply in a directory (`.gitignore`, `.ignore`). They mean the same
//! as in ripgrep.
//!
//! `.gitignore` and `.git/info/exclude` apply inside a git repository, up to its top directory.
//! `.ignore` applies everywhere and takes precedence over both. Among several files of one kind,
//! the deepest file with a matching line decides. Ignore files are opened by handle, and only if
//! the rules allow reading them. So no file outside of the grants affects a search.
//!
//! A file that is too long or needs too much memory is omitted. If a file takes too much time, its
//! lines with wildcards are omitted. The search then finds more entries, and each of these files
//! counts as one unreadable entry.

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

/// Bytes of an ignore file. A longer file is omitted.
const MAX_BYTES: u64 = 1 << 20;

/// Bytes of all active ignore rules of a search: from the root down to the current directories of
/// all threads. A file that exceeds the limit is omitted.
const MAX_MEMORY: u64 = 64 << 20;

/// The optional first bytes of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Active lines with wildcards of one file. Further lines with wildcards are omitted.
const MAX_WILD_LINES: usize = 1_000;

/// The smaller limits for a file that is read after [`MAX_TIME`] was used.
const MAX_WILD_LINES_IF_SLOW: usize = 50;
const MAX_BYTES_IF_SLOW: usize = 4 << 10;

/// CPU time of the ignore rules of one search, on all threads. Only the time beyond the usual time
/// for a name or a compilation counts.
const MAX_TIME: Duration = Duration::from_secs(1);
const USUAL_MATCH: Duration = Duration::from_micros(50);
const USUAL_COMPILATION: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct RuleMemory {
    threads: usize,
    used: AtomicU64,
    left_out: AtomicU64,
    /// Nanoseconds beyond the usual time.
    spent: AtomicU64,
}

/// The rules of one ignore file. Dropping them releases their memory in `memory`.
#[derive(Debug)]
struct IgnoreFile {
    rules: Option<Rules>,
    /// Whether the lines with wildcards apply. They are disabled if they take too much time.
    wild: AtomicBool,
    /// Whether some name took long. Only then, the CPU time of each name is measured, because
    /// measuring takes longer than most names do.
    is_measured: AtomicBool,
    /// The length of the directory's path, with a slash.
    prefix_length: usize,
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
    is_repository: bool,
    in_repository: bool,
}

#[derive(Clone, Copy)]
pub(super) struct IgnoreSource<'a> {
    pub(super) view: &'a FileView,
    pub(super) dir: BorrowedFd<'a>,
    /// The real path of the directory, and a slash.
    pub(super) prefix: &'a [u8],
    pub(super) memory: &'a Arc<RuleMemory>,
}

/// Whether a directory has each of the names for ignore rules.
#[derive(Clone, Copy, Debug, Default)]
struct MarkerNames {
    ignore: bool,
    git_ignore: bool,
    git: bool,
}

impl Ignores {
    /// Checks whether the entry at the real path `path` is ignored. Returns `Some(false)` if a line
    /// with `!` includes the entry again, and `None` if no line matches.
    pub(super) fn is_ignored(&self, path: &[u8], is_directory: bool) -> Option<bool> {
        let mut git_ignore = None;
        let mut git_exclude = None;
        let mut in_repository = self.in_repository;
        // The loop goes from the innermost directory to the outermost.
        let mut remaining = Some(self);
        while let Some(level) = remaining {
            let ignore = is_ignored_by(level.ignore.as_ref(), path, is_directory);
            if ignore.is_some() {
                return ignore;
            }
            // The files of git apply only up to the top directory of the repository.
            if in_repository {
                if git_ignore.is_none() {
                    git_ignore = is_ignored_by(level.git_ignore.as_ref(), path, is_directory);
                }
                if git_exclude.is_none() {
                    git_exclude = is_ignored_by(level.git_exclude.as_ref(), path, is_directory);
                }
                in_repository = !level.is_repository;
            }
            remaining = level.above.as_deref();
        }
        git_ignore.or(git_exclude)
    }

    /// Reads the ignore files of a directory with these entries. `above` are the rules of the
    /// directories above, which are returned if the directory has no ignore files.
    pub(super) fn from_entries(
        source: IgnoreSource<'_>,
        names: &Names,
        above: Option<Arc<Self>>,
    ) -> Option<Arc<Self>> {
        // The names of all ignore files begin with a dot.
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

    /// Reads the ignore files of a directory whose entries aren't known, like
    /// [`from_entries`](Self::from_entries).
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

    /// Reads the ignore files that are present. If none is present, returns the rules of the
    /// directories above.
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
    /// Checks whether the directory has this name. The call's report records the answer.
    fn has(&self, name: &CStr) -> bool {
        let is_present = directory::stat(self.dir, name).is_ok();
        self.view.record_presence(&[self.prefix, name.to_bytes()].concat(), is_present);
        is_present
    }

    fn load_if(&self, is_present: bool, path: &[&CStr]) -> Option<IgnoreFile> {
        if is_present { self.load(path) } else { None }
    }

    /// Loads the rules in the file at `path`, which has several components. Returns `None` if the
    /// file isn't a regular file, can't be read, or exceeds a limit. Counts a file that is omitted
    /// completely or in part because of a limit.
    fn load(&self, path: &[&CStr]) -> Option<IgnoreFile> {
        let text = self.read(path)?;
        // If ignore files have taken too much time, only small files are still used.
        let is_slow = self.memory.is_spent();
        let max_wild_lines = if is_slow { MAX_WILD_LINES_IF_SLOW } else { MAX_WILD_LINES };
        let bytes = Rules::memory(&text, max_wild_lines, self.memory.threads);
        let is_too_long = is_slow && text.len() > MAX_BYTES_IF_SLOW;
        if is_too_long || !self.memory.reserve(bytes) {
            self.memory.count_left_out();
            return None;
        }

        // From here on, dropping `file` releases the reserved memory.
        let mut file = IgnoreFile {
            rules: None,
            wild: AtomicBool::new(false),
            is_measured: AtomicBool::new(false),
            prefix_length: self.prefix.len(),
            memory: Arc::clone(self.memory),
            bytes,
        };
        let started = thread_cpu();
        file.rules = Rules::new(&text, max_wild_lines);
        self.memory.spend(started, USUAL_COMPILATION);
        let is_omitted = file.rules.as_ref().is_none_or(|rules| rules.is_cut);
        if is_omitted {
            self.memory.count_left_out();
        }
        *file.wild.get_mut() = file.rules.as_ref().is_some_and(Rules::has_wild);
        Some(file)
    }

    /// Reads the file at `path` without its byte order mark. Returns `None` if the rules deny the
    /// file, or if the file is missing, unreadable or too long.
    fn read(&self, path: &[&CStr]) -> Option<Vec<u8>> {
        let parts: Vec<&[u8]> = path.iter().map(|part| part.to_bytes()).collect();
        let real = [self.prefix, &parts.join(&b'/')].concat();
        // Rules for calls limit the content of answers. An ignore file isn't part of the answer, so
        // only the rules for directories apply.
        let real_path = Path::new(OsStr::from_bytes(&real));
        self.view.rules().decide(real_path, Kind::Other, Access::Read).ok()?;

        let (file, stat) = match self.open(path) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let is_present = false;
                self.view.record_presence(&real, is_present);
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
        if text.starts_with(BYTE_ORDER_MARK) {
            text.drain(..BYTE_ORDER_MARK.len());
        }
        Some(text)
    }

    /// Opens the file at `path` below the directory, one component at a time.
    fn open(&self, path: &[&CStr]) -> Result<(OwnedFd, Stat), Errno> {
        let (name, parents) = path.split_last().ok_or(Errno::NOENT)?;
        let mut real = self.prefix.to_vec();
        // `None` stands for the directory of this source.
        let mut opened: Option<OwnedFd> = None;
        for parent in parents {
            real.extend_from_slice(parent.to_bytes());
            let outer = opened.as_ref().map_or(self.dir, OwnedFd::as_fd);
            let inner = directory::open_directory(outer, parent)?;
            // The rules have decided on this path, so refuse a directory that was moved meanwhile.
            if !directory::is_at(inner.as_fd(), &real) {
                return Err(Errno::XDEV);
            }
            opened = Some(inner);
            real.push(b'/');
        }
        let directory = opened.as_ref().map_or(self.dir, OwnedFd::as_fd);
        directory::open_file(directory, name)
    }
}

impl RuleMemory {
    pub(super) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self {
            threads,
            used: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            spent: AtomicU64::new(0),
        })
    }

    /// Returns how many ignore files were omitted completely or in part, because they are too long
    /// or need too much memory or time.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    fn count_left_out(&self) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the CPU time of this thread since `started`, without the usual time. Returns true if
    /// this time was longer than usual and the limit of the search is reached.
    fn spend(&self, started: Duration, usual: Duration) -> bool {
        let Some(excess) = thread_cpu().checked_sub(started + usual) else { return false };
        // Nanoseconds exceed the type only after centuries.
        let nanoseconds = u64::try_from(excess.as_nanos()).unwrap_or(u64::MAX);
        self.spent.fetch_add(nanoseconds, Ordering::Relaxed);
        self.is_spent()
    }

    fn is_spent(&self) -> bool {
        u128::from(self.spent.load(Ordering::Relaxed)) >= MAX_TIME.as_nanos()
    }

    /// Reserves memory for rules. Returns whether the limit allows it.
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

/// Checks whether the lines of one file ignore a path. Returns `None` if no line matches. Disables
/// the lines with wildcards if they are too slow.
fn is_ignored_by(file: Option<&IgnoreFile>, path: &[u8], is_directory: bool) -> Option<bool> {
    let file = file?;
    let rules = file.rules.as_ref()?;
    let relative_path = path.get(file.prefix_length..)?;
    let with_wildcards = file.wild.load(Ordering::Relaxed);
    if !with_wildcards {
        return rules.is_ignored(relative_path, is_directory, with_wildcards);
    }
    if !file.is_measured.load(Ordering::Relaxed) {
        let started = Instant::now();
        let is_ignored = rules.is_ignored(relative_path, is_directory, with_wildcards);
        if started.elapsed() > USUAL_MATCH {
            // From the next name on, the CPU time is measured.
            file.is_measured.store(true, Ordering::Relaxed);
        }
        return is_ignored;
    }

    let started = thread_cpu();
    let is_ignored = rules.is_ignored(relative_path, is_directory, with_wildcards);
    let is_too_slow = file.memory.spend(started, USUAL_MATCH);
    // The swap disables the lines. Only the first thread that does this counts the file.
    if is_too_slow && file.wild.swap(false, Ordering::Relaxed) {
        file.memory.count_left_out();
    }
    is_ignored
}
