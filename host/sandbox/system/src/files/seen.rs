//! Records the files that a call has read, and checks later whether they are unchanged.
//!
//! A watched view reports each lookup of a guest: the path and its state. An answer depends only on
//! these lookups, so it is valid while every lookup would have the same result. The check repeats
//! the lookups through the same grants.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use toolhold_contract::{FileState, Lookup, PathState, ReadFile, Report};

use super::{FileError, FileView, ResolvedObject, kernel};

/// File systems of this machine, whose times come from this machine's clock. File systems of other
/// machines use other clocks, so their changes may be noticed late.
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

/// The time after a file's last change from which a further change has a different time. The kernel
/// uses the time of its last tick, and has at least a hundred ticks per second.
const TICK: (i64, u64) = (0, 20_000_000);

/// The same time on file systems whose times have a resolution of one or two seconds.
const SECONDS: (i64, u64) = (2, 0);

/// Receives what a view reads.
#[derive(Debug)]
pub(super) struct Watcher {
    report: Arc<Report>,
    /// The known devices, and whether each is local to this machine.
    devices: Mutex<Vec<(u64, bool)>>,
}

impl FileView {
    /// Returns the same view, which reports everything that it reads to `report` if the report is
    /// [watching](Report::is_watching).
    #[must_use]
    pub fn reporting_to(mut self, report: &Arc<Report>) -> Self {
        self.watcher = None;
        if report.is_watching() {
            let watcher = Watcher { report: Arc::clone(report), devices: Mutex::default() };
            self.watcher = Some(Arc::new(watcher));
        }
        self
    }

    /// Returns the same view without reporting, for the host's own reads.
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

    /// Reports the object behind a handle with its real path. Call this before the object is read.
    pub fn record_at(&self, path: &[u8], handle: BorrowedFd<'_>) {
        if self.watcher.is_some() {
            match rustix::fs::fstat(handle) {
                Ok(stat) => self.record(path, &stat, Some(handle)),
                Err(_) => self.mark_incomplete(),
            }
        }
    }

    /// Reports an object with its real path and its state. Without a handle, the object's device
    /// must already be known.
    pub fn record(&self, path: &[u8], stat: &Stat, handle: Option<BorrowedFd<'_>>) {
        let Some(watcher) = &self.watcher else { return };
        if watcher.is_local(stat, handle) {
            let path = Path::new(OsStr::from_bytes(path));
            watcher.add(Lookup::Real, path, PathState::File(file_state(stat)));
        } else {
            watcher.report.mark_incomplete();
        }
    }

    /// Reports whether a real path exists, if only that matters.
    pub fn record_presence(&self, path: &[u8], is_there: bool) {
        if let Some(watcher) = &self.watcher {
            let sight = if is_there { PathState::Something } else { PathState::Nothing };
            watcher.add(Lookup::Real, Path::new(OsStr::from_bytes(path)), sight);
        }
    }

    /// Reports that the call read data whose change can't be noticed later.
    pub fn mark_incomplete(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.report.mark_incomplete();
        }
    }

    /// Reports the result of a lookup of `path` below the directory whose path `dir` returns.
    pub(super) fn record_lookup(
        &self,
        dir: impl FnOnce() -> Result<PathBuf, Errno>,
        path: &str,
        follow: bool,
        result: &Result<ResolvedObject, FileError>,
    ) {
        let Some(watcher) = &self.watcher else { return };
        let sight = match result {
            Ok(found) if watcher.is_local(&found.stat, Some(found.handle.as_fd())) => {
                PathState::File(file_state(&found.stat))
            }
            Err(FileError::Errno(Errno::NOENT)) => PathState::Nothing,
            _ => return watcher.report.mark_incomplete(),
        };
        let Ok(dir) = dir() else { return watcher.report.mark_incomplete() };
        let lookup = if follow { Lookup::Followed } else { Lookup::Itself };
        watcher.add(lookup, &dir.join(path), sight);
    }

    /// Checks whether every file that an answer depends on is unchanged. Looks up each path by its
    /// name again. If a link may have another target, the rules decide again.
    pub fn is_unchanged(&self, dependencies: &FileDependencies) -> bool {
        let mut folder = None;
        dependencies.0.iter().all(|seen| match seen.lookup {
            Lookup::Real => self.is_real_unchanged(seen, &mut folder),
            Lookup::Itself => self.is_lookup_unchanged(seen, false),
            Lookup::Followed => self.is_lookup_unchanged(seen, true),
        })
    }

    /// Checks whether a lookup by the grant's directory still has the same result.
    fn is_lookup_unchanged(&self, seen: &ReadFile, follow: bool) -> bool {
        let Some((root, rest)) = self.grants().covering(&seen.path) else { return false };
        let Some(rest) = rest.to_str() else { return false };
        let rest = if rest.is_empty() { "." } else { rest };
        match self.find_at(root.dir.as_fd(), rest, follow) {
            Ok(found) => has_state(&found.stat, seen.sight),
            Err(FileError::Errno(Errno::NOENT)) => seen.sight == PathState::Nothing,
            Err(_) => false,
        }
    }

    /// Checks whether a real path still has the same state. `folder` is the directory of the last
    /// check. In a sorted list, most entries are in the same directory as the previous entry.
    fn is_real_unchanged<'s>(
        &self,
        seen: &'s ReadFile,
        folder: &mut Option<(&'s [u8], Result<OwnedFd, Errno>)>,
    ) -> bool {
        let Some((root, rest)) = self.grants().covering(&seen.path) else { return false };
        if rest.as_os_str().is_empty() {
            return rustix::fs::fstat(&root.dir).is_ok_and(|stat| has_state(&stat, seen.sight));
        }

        let (above, name) = split(&seen.path);
        let is_open = folder.as_ref().is_some_and(|(last, _)| *last == above);
        if !is_open {
            let Some(rest) = rest.parent().and_then(Path::to_str) else { return false };
            let rest = if rest.is_empty() { "." } else { rest };
            // Links aren't followed, so that the checked path is the one that the rules decided on.
            let opened = kernel::open_beneath(
                root.dir.as_fd(),
                rest,
                OFlags::PATH | OFlags::DIRECTORY,
                ResolveFlags::NO_SYMLINKS,
            );
            *folder = Some((above, opened));
        }

        let Some((_, opened)) = folder else { return false };
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

    /// Checks whether an object is in a file system of this machine. Returns false if the object's
    /// device is unknown and there is no handle.
    fn is_local(&self, stat: &Stat, handle: Option<BorrowedFd<'_>>) -> bool {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, local)) = devices.iter().find(|(device, _)| *device == stat.st_dev) {
            return *local;
        }
        let Some(handle) = handle else { return false };
        let local = rustix::fs::fstatfs(handle).is_ok_and(|fs| LOCAL.contains(&fs.f_type));
        devices.push((stat.st_dev, local));
        local
    }
}

/// The files that an answer depends on, each path once, in the order of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDependencies(Vec<ReadFile>);

impl FileDependencies {
    /// Takes the files that a call has read. `started_at`: the start of the call, in seconds and
    /// nanoseconds since 1970.
    ///
    /// Returns `None` if a change might not be noticed. This is the case if a file changed during
    /// the call, or so shortly before that a later change may have the same time.
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
        if files.windows(2).any(has_differing_sights) {
            return None;
        }
        files.shrink_to_fit();
        Some(Self(files))
    }

    /// Returns the cost of a check, as an approximate number of system calls.
    pub fn work(&self) -> usize {
        let mut calls = 0;
        let mut open_folder: &[u8] = b"";
        for seen in &self.0 {
            let (folder, _) = split(&seen.path);
            calls += match seen.lookup {
                Lookup::Real if folder == open_folder => 1,
                Lookup::Real => {
                    open_folder = folder;
                    3
                }
                Lookup::Itself | Lookup::Followed => 4,
            };
        }
        calls
    }

    /// Returns the bytes of memory that the list takes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|seen| size_of::<ReadFile>() + seen.path.capacity()).sum()
    }
}

/// Checks whether a call has seen two conflicting states of a path. `pair`: two neighbours in a
/// sorted list.
fn has_differing_sights(pair: &[ReadFile]) -> bool {
    let [a, b] = pair else { return false };
    let is_one_lookup = a.lookup == b.lookup && a.path == b.path;
    // `PathState::Something` agrees with a file. The order of states puts the file second.
    let agrees = a.sight == PathState::Something && b.sight != PathState::Nothing;
    is_one_lookup && !agrees
}

/// Checks whether an existing object agrees with the state that a call has seen.
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

/// Checks whether a file with `state` can't have changed after `seen` without getting another
/// time.
fn is_settled(state: FileState, seen: (i64, u64)) -> bool {
    let (changed_seconds, changed_nanos) = state.changed;
    let is_coarse = changed_nanos == 0 && state.modified.1 == 0;
    let (step_seconds, step_nanos) = if is_coarse { SECONDS } else { TICK };
    let nanos = changed_nanos.saturating_add(step_nanos);
    let carry = (nanos / 1_000_000_000) as i64;
    let seconds = changed_seconds.saturating_add(step_seconds).saturating_add(carry);
    (seconds, nanos % 1_000_000_000) < seen
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
