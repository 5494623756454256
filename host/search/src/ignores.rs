//! Ignore files, with ripgrep's meaning.
//!
//! `.gitignore` and `.git/info/exclude` count inside a git repository, up to its top; `.ignore`
//! counts everywhere, and before them. The deepest file that says something decides. They are read
//! by handle like every other file, and only where the rules let them be read: nothing outside of
//! the grants steers a search.

use std::ffi::{CStr, OsStr};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use berth_contract::Access;
use berth_policy::files::Kind;
use rustix::fs::Stat;
use rustix::io::Errno;

use super::directory::{self, Names};
use super::rules::Rules;
use berth_system::files::FileView;

/// The longest ignore file.
const MAX_BYTES: u64 = 1 << 20;

/// How much memory the rules of the ignore files may take that a search holds at a time: those from
/// its root down to where its threads are.
const MAX_MEMORY: u64 = 64 << 20;

/// The room that a search has for rules.
#[derive(Debug)]
pub(super) struct Room {
    threads: usize,
    taken: AtomicU64,
    left_out: AtomicU64,
}

/// Rules, and the room that they take until they are dropped.
#[derive(Debug)]
struct File {
    rules: Option<Rules>,
    /// The length of the path of its directory, with a slash.
    prefix: usize,
    room: Arc<Room>,
    takes: u64,
}

/// What the ignore files of one directory say, and of those above it. Directories without any share
/// those of their parent.
#[derive(Debug)]
pub(super) struct Ignores {
    above: Option<Arc<Self>>,
    ignore: Option<File>,
    git_ignore: Option<File>,
    git_exclude: Option<File>,
    /// Whether this is the top of a repository.
    is_repository: bool,
    /// Whether this or one above is.
    in_repository: bool,
}

/// A directory whose ignore files are read.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) view: &'a FileView,
    pub(super) dir: BorrowedFd<'a>,
    /// Its real path and a slash.
    pub(super) prefix: &'a [u8],
    pub(super) room: &'a Arc<Room>,
}

/// Which of the names that matter here a directory has.
#[derive(Clone, Copy, Debug, Default)]
struct MarkerNames {
    ignore: bool,
    git_ignore: bool,
    git: bool,
}

impl Ignores {
    /// Whether the entry at the real path `path` is ignored (`Some(true)`), wanted (`Some(false)`),
    /// or not spoken of.
    pub(super) fn verdict(&self, path: &[u8], is_directory: bool) -> Option<bool> {
        let (mut ignore, mut git_ignore, mut git_exclude) = (None, None, None);
        let mut in_repository = self.in_repository;
        let mut level = Some(self);
        while let Some(at) = level {
            ignore = ignore.or_else(|| said(at.ignore.as_ref(), path, is_directory));
            if ignore.is_some() {
                return ignore;
            }
            if in_repository {
                git_ignore =
                    git_ignore.or_else(|| said(at.git_ignore.as_ref(), path, is_directory));
                git_exclude =
                    git_exclude.or_else(|| said(at.git_exclude.as_ref(), path, is_directory));
                in_repository = !at.is_repository;
            }
            level = at.above.as_deref();
        }
        git_ignore.or(git_exclude)
    }

    /// The ignore files of a directory of which `names` are the entries, below `above`.
    pub(super) fn from_entries(
        place: Place<'_>,
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
        Self::load(place, present, above)
    }

    /// The same for a directory whose entries are not read.
    pub(super) fn from_directory(place: Place<'_>, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let has = |name: &CStr| {
            let is_there = directory::stat(place.dir, name).is_ok();
            place.view.record_presence(&[place.prefix, name.to_bytes()].concat(), is_there);
            is_there
        };
        let present = MarkerNames {
            ignore: has(c".ignore"),
            git_ignore: has(c".gitignore"),
            git: has(c".git"),
        };
        Self::load(place, present, above)
    }

    fn load(place: Place<'_>, present: MarkerNames, above: Option<Arc<Self>>) -> Option<Arc<Self>> {
        if !(present.ignore || present.git_ignore || present.git) {
            return above;
        }
        let rules = |wanted: bool, path: &[&CStr]| if wanted { place.rules(path) } else { None };
        Some(Arc::new(Self {
            ignore: rules(present.ignore, &[c".ignore"]),
            git_ignore: rules(present.git_ignore, &[c".gitignore"]),
            git_exclude: rules(present.git, &[c".git", c"info", c"exclude"]),
            is_repository: present.git,
            in_repository: present.git || above.as_ref().is_some_and(|above| above.in_repository),
            above,
        }))
    }
}

impl Place<'_> {
    /// The rules in the file at `path`, or none: a file that can't be read or is not regular says
    /// nothing. What there is no room for is counted.
    fn rules(&self, path: &[&CStr]) -> Option<File> {
        let text = self.text(path)?;
        let takes = Rules::memory(&text, self.room.threads);
        if !self.room.take(takes) {
            self.room.leave_out();
            return None;
        }
        let mut file =
            File { rules: None, prefix: self.prefix.len(), room: Arc::clone(self.room), takes };
        file.rules = Rules::new(&text);
        if file.rules.is_none() {
            self.room.leave_out();
        }
        Some(file)
    }

    fn text(&self, path: &[&CStr]) -> Option<Vec<u8>> {
        let real =
            [self.prefix, &path.iter().map(|part| part.to_bytes()).collect::<Vec<_>>().join(&b'/')]
                .concat();
        // The rules about calls are about what a call reaches: what a repository ignores is no part
        // of an answer.
        self.view
            .rules()
            .decide(Path::new(OsStr::from_bytes(&real)), Kind::Other, Access::Read)
            .ok()?;
        let (file, stat) = match self.open(path) {
            Ok(opened) => opened,
            Err(errno) => {
                match errno {
                    Errno::NOENT | Errno::NOTDIR => self.view.record_presence(&real, false),
                    _ => self.view.lost_sight(),
                }
                return None;
            }
        };
        self.view.record(&real, &stat, Some(file.as_fd()));
        if directory::size(&stat) > MAX_BYTES {
            self.room.leave_out();
            return None;
        }
        let mut text = Vec::new();
        if std::fs::File::from(file).take(MAX_BYTES).read_to_end(&mut text).is_err() {
            self.view.lost_sight();
            return None;
        }
        if text.starts_with(b"\xef\xbb\xbf") {
            text.drain(..3);
        }
        Some(text)
    }

    /// Opens the file at `path` below the directory, one name after the other.
    fn open(&self, path: &[&CStr]) -> Result<(OwnedFd, Stat), Errno> {
        let (name, parents) = path.split_last().ok_or(Errno::NOENT)?;
        let mut real = self.prefix.to_vec();
        let mut opened: Option<OwnedFd> = None;
        for parent in parents {
            real.extend_from_slice(parent.to_bytes());
            let inside = directory::open_directory(
                opened.as_ref().map_or(self.dir, OwnedFd::as_fd),
                parent,
            )?;
            if !directory::lies_at(inside.as_fd(), &real) {
                return Err(Errno::XDEV);
            }
            opened = Some(inside);
            real.push(b'/');
        }
        directory::open_file(opened.as_ref().map_or(self.dir, OwnedFd::as_fd), name)
    }
}

impl Room {
    /// For a search with so many threads.
    pub(super) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self { threads, taken: AtomicU64::new(0), left_out: AtomicU64::new(0) })
    }

    /// How many ignore files were left out, because they are too long or there was no room for what
    /// they say.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    fn leave_out(&self) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self, memory: u64) -> bool {
        let take = |taken: u64| Some(taken + memory).filter(|sum| *sum <= MAX_MEMORY);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.takes, Ordering::Relaxed);
    }
}

/// What one ignore file says about an entry.
fn said(file: Option<&File>, path: &[u8], is_directory: bool) -> Option<bool> {
    let file = file?;
    file.rules.as_ref()?.verdict(path.get(file.prefix..)?, is_directory)
}
