//! Records the lookups of a call, and checks later whether the results have changed.
//!
//! A watched view reports each lookup of a guest: the path and its state. An answer depends only on
//! these lookups, so a cached answer is valid while every lookup has the same result.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use toolhold_contract::{FileState, Lookup, PathState, ReadFile, Report};

use super::{FileError, FileView, ResolvedObject, kernel};

/// File systems whose times come from this machine's clock. Changes in other file systems may be
/// noticed late.
const LOCAL: [i64; 11] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xf2f5_2010, // F2FS
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
];

/// Time after which a second change of a file gets another time stamp, in seconds and nanoseconds.
/// The kernel stamps changes with the time of its last tick, and has at least a hundred ticks per
/// second.
const TICK: (i64, u64) = (0, 20_000_000);

/// The same time, on file systems whose times have a resolution of one or two seconds.
const SECONDS: (i64, u64) = (2, 0);

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// The numbers of system calls for opening and reading a folder, for checking an entry in an open
/// folder, and for resolving a path again.
const CALLS_PER_FOLDER: usize = 2;
const CALLS_PER_ENTRY: usize = 1;
const CALLS_PER_PATH: usize = 4;

#[derive(Debug)]
pub(super) struct Watcher {
    report: Arc<Report>,
    /// Known devices. The flag means that the device is local to this machine.
    devices: Mutex<Vec<(u64, bool)>>,
}

impl FileView {
    /// Returns the view, which reports its lookups to a [watching](Report::is_watching) `report`.
    #[must_use]
    pub fn reporting_to(mut self, report: &Arc<Report>) -> Self {
        self.watcher = None;
        if report.is_watching() {
            let watcher = Watcher { report: Arc::clone(report), devices: Mutex::default() };
            self.watcher = Some(Arc::new(watcher));
        }
        self
    }

    /// Returns the view without a watcher, for the host's own reads.
    pub fn unreported(&self) -> Self {
        Self { watcher: None, ..self.clone() }
    }

    /// Reports that an open directory was read.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error if the path of the directory can't be determined.
    pub fn record_open(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.watcher.is_some() {
            self.record_at(kernel::real_path(dir)?.as_os_str().as_bytes(), dir);
        }
        Ok(())
    }

    /// Reports an open object with its real path. Call this before the object is read, so that the
    /// report has the older state and a change during the read is noticed.
    pub fn record_at(&self, path: &[u8], handle: BorrowedFd<'_>) {
        if self.watcher.is_some() {
            match rustix::fs::fstat(handle) {
                Ok(stat) => self.record(path, &stat, Some(handle)),
                Err(_) => self.mark_incomplete(),
            }
        }
    }

    /// Reports an object with its real path and its metadata. The device of an object without a
    /// handle must be known.
    pub fn record(&self, path: &[u8], stat: &Stat, handle: Option<BorrowedFd<'_>>) {
        let Some(watcher) = &self.watcher else { return };
        if watcher.is_local(stat, handle) {
            let path = Path::new(OsStr::from_bytes(path));
            watcher.add(Lookup::Real, path, PathState::File(file_state(stat)));
        } else {
            watcher.report.mark_incomplete();
        }
    }

    /// Reports only whether a real path exists.
    pub fn record_presence(&self, path: &[u8], is_there: bool) {
        if let Some(watcher) = &self.watcher {
            let sight = if is_there { PathState::Something } else { PathState::Nothing };
            watcher.add(Lookup::Real, Path::new(OsStr::from_bytes(path)), sight);
        }
    }

    /// Reports that the call read data whose changes can't be noticed later.
    pub fn mark_incomplete(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.report.mark_incomplete();
        }
    }

    /// Reports the result of a lookup of `path` below a directory. `dir` returns the directory's
    /// path.
    pub(super) fn record_lookup(
        &self,
        dir: impl FnOnce() -> Result<PathBuf, Errno>,
        path: &str,
        follow: bool,
        result: &Result<ResolvedObject, FileError>,
    ) {
        let Some(watcher) = &self.watcher else { return };
        let state = match result {
            Ok(found) if watcher.is_local(&found.stat, Some(found.handle.as_fd())) => {
                PathState::File(file_state(&found.stat))
            }
            Err(FileError::Errno(Errno::NOENT)) => PathState::Nothing,
            // The result can't be compared with a later result.
            Ok(_) | Err(_) => return watcher.report.mark_incomplete(),
        };
        let Ok(dir_path) = dir() else { return watcher.report.mark_incomplete() };
        let lookup = if follow { Lookup::Followed } else { Lookup::Itself };
        watcher.add(lookup, &dir_path.join(path), state);
    }

    /// Checks whether every lookup in `dependencies` still has the same result. The rules decide
    /// again, because a link may have another target.
    pub fn is_unchanged(&self, dependencies: &FileDependencies) -> bool {
        let mut last_folder = None;
        for seen in &dependencies.0 {
            let is_unchanged = match seen.lookup {
                Lookup::Real => self.is_real_unchanged(seen, &mut last_folder),
                Lookup::Itself | Lookup::Followed => {
                    self.is_lookup_unchanged(seen, seen.lookup == Lookup::Followed)
                }
            };
            if !is_unchanged {
                return false;
            }
        }
        true
    }

    /// Checks whether a lookup through a grant has the same result as before.
    fn is_lookup_unchanged(&self, seen: &ReadFile, follow: bool) -> bool {
        let Some((root, rest)) = self.grants().covering(&seen.path) else { return false };
        let Some(rest) = rest.to_str() else { return false };
        let relative_path = if rest.is_empty() { "." } else { rest };
        match self.find_at(root.dir.as_fd(), relative_path, follow) {
            Ok(found) => has_state(&found.stat, seen.sight),
            Err(FileError::Errno(Errno::NOENT)) => seen.sight == PathState::Nothing,
            Err(_) => false,
        }
    }

    /// Checks whether a real path has the same state. `last_folder` is the path and the handle of
    /// the directory in the last check. The lookups are sorted, so most of them are in the same
    /// directory as the previous lookup.
    fn is_real_unchanged<'s>(
        &self,
        seen: &'s ReadFile,
        last_folder: &mut Option<(&'s [u8], Result<OwnedFd, Errno>)>,
    ) -> bool {
        let Some((root, rest)) = self.grants().covering(&seen.path) else { return false };
        if rest.as_os_str().is_empty() {
            return rustix::fs::fstat(&root.dir).is_ok_and(|stat| has_state(&stat, seen.sight));
        }

        let (above, name) = split(&seen.path);
        let is_open = last_folder.as_ref().is_some_and(|(last, _)| *last == above);
        if !is_open {
            let Some(rest) = rest.parent().and_then(Path::to_str) else { return false };
            let rest = if rest.is_empty() { "." } else { rest };
            // Links aren't followed, so the checked path is the path on which the rules decided.
            let opened = kernel::open_beneath(
                root.dir.as_fd(),
                rest,
                OFlags::PATH | OFlags::DIRECTORY,
                ResolveFlags::NO_SYMLINKS,
            );
            *last_folder = Some((above, opened));
        }

        let Some((_, opened)) = last_folder else { return false };
        let stat = match opened {
            Ok(folder) => {
                rustix::fs::statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)
            }
            Err(errno) => Err(*errno),
        };
        match stat {
            Ok(stat) => has_state(&stat, seen.sight),
            Err(Errno::NOENT | Errno::NOTDIR) => seen.sight == PathState::Nothing,
            Err(_) => false,
        }
    }
}

impl Watcher {
    fn add(&self, lookup: Lookup, path: &Path, sight: PathState) {
        self.report.add_read(ReadFile { lookup, path: path.to_owned(), sight });
    }

    /// Checks whether an object is in a file system of this machine. Returns false for an unknown
    /// device without a handle.
    fn is_local(&self, stat: &Stat, handle: Option<BorrowedFd<'_>>) -> bool {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let known = devices.iter().find(|(device, _)| *device == stat.st_dev);
        if let Some((_, is_local)) = known {
            return *is_local;
        }
        let Some(handle) = handle else { return false };
        let is_local = rustix::fs::fstatfs(handle).is_ok_and(|fs| LOCAL.contains(&fs.f_type));
        devices.push((stat.st_dev, is_local));
        is_local
    }
}

/// The lookups of an answer in the order of the checks, each only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDependencies(Vec<ReadFile>);

impl FileDependencies {
    /// Creates the list of a call's lookups. `started_at` is the start of the call, in seconds and
    /// nanoseconds since 1970.
    ///
    /// Returns `None` if a later change might not be noticed, because a file changed during the
    /// call or very shortly before it. Also returns `None` if the call saw two states of a path.
    pub fn new(mut files: Vec<ReadFile>, started_at: (i64, u64)) -> Option<Self> {
        for file in &files {
            if let PathState::File(state) = file.sight
                && !is_settled(state, started_at)
            {
                return None;
            }
        }
        files.sort_unstable_by(|a, b| {
            (a.lookup, split(&a.path), a.sight).cmp(&(b.lookup, split(&b.path), b.sight))
        });
        files.dedup();
        let pair = 2;
        if files.windows(pair).any(has_differing_sights) {
            return None;
        }
        files.shrink_to_fit();
        Some(Self(files))
    }

    /// Returns the cost of a check: an approximate number of system calls.
    pub fn work(&self) -> usize {
        let mut calls = 0;
        let mut open_folder: &[u8] = b"";
        for seen in &self.0 {
            let (folder, _) = split(&seen.path);
            calls += match seen.lookup {
                Lookup::Real if folder == open_folder => CALLS_PER_ENTRY,
                Lookup::Real => {
                    open_folder = folder;
                    CALLS_PER_FOLDER + CALLS_PER_ENTRY
                }
                Lookup::Itself | Lookup::Followed => CALLS_PER_PATH,
            };
        }
        calls
    }

    /// Returns the bytes of memory of the list.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|seen| size_of::<ReadFile>() + seen.path.capacity()).sum()
    }
}

/// Checks whether a call has seen two conflicting states of a path. `pair` contains neighbours in a
/// sorted list.
fn has_differing_sights(pair: &[ReadFile]) -> bool {
    let [first, second] = pair else { return false };
    if first.lookup != second.lookup || first.path != second.path {
        return false;
    }
    // Equal entries were removed, so the states differ. `PathState::Something` agrees with any
    // existing object, which comes second in the sorted list.
    let agrees = first.sight == PathState::Something && second.sight != PathState::Nothing;
    !agrees
}

fn has_state(stat: &Stat, sight: PathState) -> bool {
    match sight {
        PathState::Nothing => false,
        PathState::Something => true,
        PathState::File(seen) => seen == file_state(stat),
    }
}

fn file_state(stat: &Stat) -> FileState {
    FileState {
        identity: (stat.st_dev, stat.st_ino),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: (stat.st_mtime, stat.st_mtime_nsec),
        changed: (stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Checks whether a change of a file after the time `seen` certainly changes `state`. `seen` is in
/// seconds and nanoseconds since 1970.
fn is_settled(state: FileState, seen: (i64, u64)) -> bool {
    // File times move in steps, so two changes in the same step have the same time.
    let (_, changed_nanos) = state.changed;
    let (_, modified_nanos) = state.modified;
    let has_whole_seconds = changed_nanos == 0 && modified_nanos == 0;
    let step = if has_whole_seconds { SECONDS } else { TICK };
    let end_of_step = nanoseconds(state.changed) + nanoseconds(step);
    end_of_step < nanoseconds(seen)
}

fn nanoseconds((seconds, nanos): (i64, u64)) -> i128 {
    i128::from(seconds) * NANOS_PER_SECOND + i128::from(nanos)
}

/// Splits a path into its directory, with the slash, and its last component.
fn split(path: &Path) -> (&[u8], &[u8]) {
    let bytes = path.as_os_str().as_bytes();
    let name_start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    bytes.split_at(name_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: (i64, u64) = (1_000_000, 0);

    fn file(path: &str, lookup: Lookup, size: u64) -> ReadFile {
        let state = FileState { identity: (1, 2), size, modified: (10, 5), changed: (10, 5) };
        ReadFile { lookup, path: path.into(), sight: PathState::File(state) }
    }

    fn presence(path: &str, is_there: bool) -> ReadFile {
        ReadFile {
            lookup: Lookup::Real,
            path: path.into(),
            sight: if is_there { PathState::Something } else { PathState::Nothing },
        }
    }

    #[test]
    fn recent_change_might_hide_another() {
        let changed = |seconds, nanos| FileState {
            identity: (1, 2),
            size: 3,
            modified: (seconds, nanos),
            changed: (seconds, nanos),
        };
        for (state, seen, expected) in [
            (changed(10, 5), (10, 5), false),
            (changed(10, 5), (10, 20_000_005), false),
            (changed(10, 5), (10, 20_000_006), true),
            (changed(10, 990_000_000), (11, 10_000_000), false),
            (changed(10, 990_000_000), (11, 10_000_001), true),
            // Clocks can go back.
            (changed(12, 5), (11, 0), false),
            (changed(i64::MAX, 999_999_999), (11, 0), false),
            (changed(-5, 5), (11, 0), true),
            // A file system without fractions of a second.
            (changed(10, 0), (12, 0), false),
            (changed(10, 0), (12, 1), true),
        ] {
            assert_eq!(is_settled(state, seen), expected, "{state:?} seen at {seen:?}");
        }
    }

    #[test]
    fn repeated_lookup_is_checked_once_beside_its_neighbours() {
        let seen = [
            file("/a/z", Lookup::Real, 1),
            file("/a/b/x", Lookup::Real, 1),
            file("/link", Lookup::Followed, 1),
            file("/a/b", Lookup::Real, 1),
            file("/a/z", Lookup::Real, 1),
            presence("/a/y", false),
            presence("/a/b/x", true),
        ];
        let sights = FileDependencies::new(seen.to_vec(), LATER).expect("nothing changed");
        let paths: Vec<&str> = sights.0.iter().filter_map(|seen| seen.path.to_str()).collect();
        assert_eq!(paths, ["/a/b", "/a/y", "/a/z", "/a/b/x", "/a/b/x", "/link"]);
        assert_eq!(sights.work(), 3 + 1 + 1 + 3 + 1 + 4);
    }

    #[test]
    fn file_that_changed_during_the_call_is_never_unchanged() {
        let twice = |a, b| FileDependencies::new(vec![a, b], LATER);
        assert_eq!(twice(file("/a", Lookup::Real, 1), file("/a", Lookup::Real, 2)), None);
        assert_eq!(twice(presence("/a", false), file("/a", Lookup::Real, 2)), None);
        assert_eq!(twice(presence("/a", false), presence("/a", true)), None);
        assert!(twice(presence("/a", true), file("/a", Lookup::Real, 2)).is_some());
        assert!(twice(file("/a", Lookup::Followed, 1), file("/a", Lookup::Itself, 2)).is_some());
        assert_eq!(FileDependencies::new(vec![file("/a", Lookup::Real, 1)], (10, 6)), None);
    }
}
