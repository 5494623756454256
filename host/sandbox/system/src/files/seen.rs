//! Records what a call has read, and tells later whether that is still the same.
//!
//! A watched view reports each lookup of a guest: the path and its state. An answer is made of
//! nothing else, so it stays true while every lookup would have the same result. The kernel is
//! asked for that again, through the same grants.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use toolhold_contract::{FileState, Lookup, PathState, ReadFile, Report};

use super::{FileError, FileView, ResolvedObject, kernel};

/// File systems of this machine, whose changes get times of this machine's clock. Changes on
/// another machine get that machine's times and may be seen late.
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

/// Time after a file's last change from which a further change gets another time. The kernel stamps
/// changes with the time of its last tick, of which there are at least a hundred a second.
const TICK: (i64, u64) = (0, 20_000_000);

/// The same on file systems with times in seconds or pairs of seconds.
const SECONDS: (i64, u64) = (2, 0);

/// Receives what a view reads.
#[derive(Debug)]
pub(super) struct Watcher {
    report: Arc<Report>,
    /// The devices seen so far, and whether each is local to this machine.
    devices: Mutex<Vec<(u64, bool)>>,
}

impl FileView {
    /// The same view, reporting what it reads to `report`, if that is
    /// [watching](Report::is_watching).
    #[must_use]
    pub fn reporting_to(self, report: &Arc<Report>) -> Self {
        let watcher = report
            .is_watching()
            .then(|| Arc::new(Watcher { report: Arc::clone(report), devices: Mutex::default() }));
        Self { watcher, ..self }
    }

    /// The same view without reporting: for the host's own reads.
    pub fn unreported(&self) -> Self {
        Self { watcher: None, ..self.clone() }
    }

    /// Reports that an open directory was read.
    ///
    /// # Errors
    ///
    /// The kernel's, if it can't say where the directory is.
    pub fn record_open(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.watcher.is_some() {
            self.record_at(kernel::real_path(dir)?.as_os_str().as_bytes(), dir);
        }
        Ok(())
    }

    /// Reports the object behind a handle with its real path. To be called before it is read.
    pub fn record_at(&self, path: &[u8], handle: BorrowedFd<'_>) {
        if self.watcher.is_some() {
            match rustix::fs::fstat(handle) {
                Ok(stat) => self.record(path, &stat, Some(handle)),
                Err(_) => self.mark_incomplete(),
            }
        }
    }

    /// The same with a known state. Without a handle, its device must have been seen before.
    pub fn record(&self, path: &[u8], stat: &Stat, handle: Option<BorrowedFd<'_>>) {
        if let Some(watcher) = &self.watcher {
            if watcher.is_local(stat, handle) {
                watcher.tell(
                    Lookup::Real,
                    Path::new(OsStr::from_bytes(path)),
                    PathState::File(state(stat)),
                );
            } else {
                watcher.report.mark_incomplete();
            }
        }
    }

    /// Reports whether a real path exists, if only that matters.
    pub fn record_presence(&self, path: &[u8], is_there: bool) {
        if let Some(watcher) = &self.watcher {
            let sight = if is_there { PathState::Something } else { PathState::Nothing };
            watcher.tell(Lookup::Real, Path::new(OsStr::from_bytes(path)), sight);
        }
    }

    /// Reports that something was read whose change can't be noticed later.
    pub fn mark_incomplete(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.report.mark_incomplete();
        }
    }

    /// Reports the result of a lookup of `path` below `dir`.
    pub(super) fn record_lookup(
        &self,
        dir: impl FnOnce() -> Result<PathBuf, Errno>,
        path: &str,
        follow: bool,
        found: &Result<ResolvedObject, FileError>,
    ) {
        let Some(watcher) = &self.watcher else { return };
        let sight = match found {
            Ok(found) if watcher.is_local(&found.stat, Some(found.handle.as_fd())) => {
                PathState::File(state(&found.stat))
            }
            Err(FileError::Errno(Errno::NOENT)) => PathState::Nothing,
            _ => return watcher.report.mark_incomplete(),
        };
        match dir() {
            Ok(dir) => watcher.tell(
                if follow { Lookup::Followed } else { Lookup::Itself },
                &dir.join(path),
                sight,
            ),
            Err(_) => watcher.report.mark_incomplete(),
        }
    }

    /// Whether everything is unchanged. Checks each path once more by its name, and decides anew if
    /// a link may lead elsewhere.
    pub fn is_unchanged(&self, sights: &FileDependencies) -> bool {
        let mut folder = None;
        sights.0.iter().all(|seen| match seen.lookup {
            Lookup::Real => self.real_is_unchanged(seen, &mut folder),
            Lookup::Itself => self.found_is_unchanged(seen, false),
            Lookup::Followed => self.found_is_unchanged(seen, true),
        })
    }

    fn found_is_unchanged(&self, seen: &ReadFile, follow: bool) -> bool {
        let Some((root, rest)) = self.grants().covering(&seen.path) else { return false };
        let Some(rest) = rest.to_str() else { return false };
        match self.find_at(root.dir.as_fd(), if rest.is_empty() { "." } else { rest }, follow) {
            Ok(found) => is(seen.sight, &found.stat),
            Err(FileError::Errno(Errno::NOENT)) => seen.sight == PathState::Nothing,
            Err(_) => false,
        }
    }

    /// `folder` is the directory of the last check: in a sorted list, most entries are in the
    /// directory of the entry before.
    fn real_is_unchanged<'s>(
        &self,
        seen: &'s ReadFile,
        folder: &mut Option<(&'s [u8], Result<OwnedFd, Errno>)>,
    ) -> bool {
        let Some((root, rest)) = self.grants().covering(&seen.path) else { return false };
        if rest.as_os_str().is_empty() {
            return rustix::fs::fstat(&root.dir).is_ok_and(|stat| is(seen.sight, &stat));
        }
        let (above, name) = split(&seen.path);
        if folder.as_ref().is_none_or(|(known, _)| *known != above) {
            let Some(rest) = rest.parent().and_then(Path::to_str) else { return false };
            let rest = if rest.is_empty() { "." } else { rest };
            // Without following links, so that the path that was decided on is the one that is
            // checked.
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
            Ok(stat) => is(seen.sight, &stat),
            Err(Errno::NOENT | Errno::NOTDIR) => seen.sight == PathState::Nothing,
            Err(_) => false,
        }
    }
}

impl Watcher {
    fn tell(&self, lookup: Lookup, path: &Path, sight: PathState) {
        self.report.add_read(ReadFile { lookup, path: path.to_owned(), sight });
    }

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

/// Everything that an answer was made of, each path once, in the order of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDependencies(Vec<ReadFile>);

impl FileDependencies {
    /// The files that a call has read that started at `began`, in seconds and nanoseconds since
    /// 1970. `None` if a change might go unnoticed: a file changed while the call read it, or so
    /// shortly before that a later change may have the same time.
    pub fn new(mut seen: Vec<ReadFile>, began: (i64, u64)) -> Option<Self> {
        for seen in &seen {
            if let PathState::File(state) = seen.sight
                && !is_settled(state, began)
            {
                return None;
            }
        }
        seen.sort_unstable_by(|a, b| {
            (a.lookup, split(&a.path), a.sight).cmp(&(b.lookup, split(&b.path), b.sight))
        });
        seen.dedup();
        if seen.windows(2).any(has_differing_sights) {
            return None;
        }
        seen.shrink_to_fit();
        Some(Self(seen))
    }

    /// The cost of a check: about this number of system calls.
    pub fn work(&self) -> usize {
        let mut folder: &[u8] = b"";
        let work = self.0.iter().map(|seen| match (seen.lookup, split(&seen.path).0) {
            (Lookup::Real, above) if above == folder => 1,
            (Lookup::Real, above) => {
                folder = above;
                3
            }
            (Lookup::Itself | Lookup::Followed, _) => 4,
        });
        work.sum()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|seen| size_of::<ReadFile>() + seen.path.capacity()).sum()
    }
}

/// Whether a call has seen two states of a path.
fn has_differing_sights(pair: &[ReadFile]) -> bool {
    let [a, b] = pair else { return false };
    (a.lookup, &a.path) == (b.lookup, &b.path)
        && !(a.sight == PathState::Something && b.sight != PathState::Nothing)
}

fn is(sight: PathState, stat: &Stat) -> bool {
    match sight {
        PathState::Nothing => false,
        PathState::Something => true,
        PathState::File(seen) => seen == state(stat),
    }
}

fn state(stat: &Stat) -> FileState {
    FileState {
        identity: (stat.st_dev, stat.st_ino),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: (stat.st_mtime, stat.st_mtime_nsec),
        changed: (stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Whether a file with `state` can't have changed after `seen` without getting another time.
fn is_settled(state: FileState, seen: (i64, u64)) -> bool {
    let coarse = state.changed.1 == 0 && state.modified.1 == 0;
    let (seconds, nanos) = if coarse { SECONDS } else { TICK };
    let sum = state.changed.1.saturating_add(nanos);
    let settled = (
        state.changed.0.saturating_add(seconds).saturating_add((sum / 1_000_000_000) as i64),
        sum % 1_000_000_000,
    );
    settled < seen
}

/// A path's directory and its last component.
fn split(path: &Path) -> (&[u8], &[u8]) {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    bytes.split_at(at)
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
