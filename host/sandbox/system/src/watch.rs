//! Waits for changes of files, and recognises changed files.

use std::fs::Metadata;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Changes are complete after this time without a change, because copying a file changes it many
/// times.
pub const QUIET: Duration = Duration::from_millis(50);

/// Maximum wait for changes to be complete.
pub const MAX_DELAY: Duration = Duration::from_secs(1);

/// The age at which a stamp is settled. File systems store times with a resolution of up to two
/// seconds.
const SETTLED: Duration = Duration::from_secs(3);

/// Maximum number of reads from the kernel's queue before other work, and the bytes of each read.
const MAX_READS: usize = 16;
const READ_BYTES: usize = 4096;

/// The state of a file. A file with an equal stamp hasn't changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// The modification time in seconds and nanoseconds. Programs can set this time, so the stamp
    /// also has the change time.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of the file at a path, or `None` if the file is missing. Follows links.
    pub fn at(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|metadata| Self::from(&metadata))
    }

    /// Checks whether the last change is at most `moment` ago, so that a program may still be
    /// writing the file.
    pub fn is_fresh(&self, moment: Duration) -> bool {
        self.age().is_some_and(|age| age <= moment)
    }

    /// Checks whether every further change gives another stamp. Shortly after a change, this isn't
    /// certain, because another change may get the same time.
    pub fn is_settled(&self) -> bool {
        self.age().is_some_and(|age| age >= SETTLED)
    }

    /// Returns the time since the last change, or `None` for a change in the future.
    fn age(&self) -> Option<Duration> {
        let (seconds, nanos) = self.changed;
        let since_epoch = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since_epoch)?.elapsed().ok()
    }
}

impl From<&Metadata> for FileStamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Watched folders. A watch doesn't report which files changed.
#[derive(Debug)]
pub struct FolderWatch {
    changes: OwnedFd,
    /// The time of the first change of the current series.
    first_change_at: Option<Instant>,
    /// The time at which a wait ends, or checks whether changes are complete.
    next_check_at: Option<Instant>,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Changes are complete, or the time of [`FolderWatch::wake_in`] has passed.
    Changes,
    /// The other descriptor with this index is ready.
    Other(usize),
}

impl FolderWatch {
    /// Creates a watch without folders.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the kernel gives no watch.
    pub fn new() -> io::Result<Self> {
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { changes, first_change_at: None, next_check_at: None })
    }

    /// Watches a folder, or the nearest existing parent of a missing folder. The watch can't be
    /// ended.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the folder can't be watched.
    pub fn watch(&self, folder: &Path) -> io::Result<()> {
        let events = WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for nearest in folder.ancestors() {
            match inotify::add_watch(&self.changes, nearest, events) {
                Ok(_) => return Ok(()),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // The root directory always exists, so an absolute path has returned above.
        Ok(())
    }

    /// Ends the next wait after this time, even without a change.
    pub fn wake_in(&mut self, time: Duration) {
        self.next_check_at = Some(Instant::now() + time);
    }

    /// Waits until changes are complete, or one of `others` can be read. Only the first of `others`
    /// takes precedence over changes.
    ///
    /// # Errors
    ///
    /// Returns the system's error if waiting fails.
    pub fn wait(&mut self, others: &[BorrowedFd<'_>]) -> io::Result<Woken> {
        loop {
            let now = Instant::now();
            let mut descriptors: Vec<_> = others
                .iter()
                .map(|other| PollFd::from_borrowed_fd(*other, PollFlags::IN))
                .collect();
            // A tool may write to a watched folder continuously, so after the first change, the
            // queue is read again only at the next check.
            if self.first_change_at.is_none() {
                descriptors.push(PollFd::new(&self.changes, PollFlags::IN));
            }
            let mut timeout = None;
            if let Some(due) = self.next_check_at {
                timeout = Timespec::try_from(due.saturating_duration_since(now)).ok();
            }
            match poll(&mut descriptors, timeout.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }

            let ready = descriptors.iter().position(|descriptor| !descriptor.revents().is_empty());
            if ready == Some(0) && !others.is_empty() {
                return Ok(Woken::Other(0));
            }
            let is_due = self.next_check_at.is_some_and(|due| due <= now);
            if is_due && self.is_complete(now)? {
                return Ok(Woken::Changes);
            }
            let Some(ready) = ready else { continue };
            if ready < others.len() {
                return Ok(Woken::Other(ready));
            }
            // The queue of changes is the last descriptor.
            if self.first_change_at.is_none() {
                self.take_changes()?;
                let first = Instant::now();
                self.first_change_at = Some(first);
                self.next_check_at = Some(first + QUIET);
            }
        }
    }

    /// Checks whether there were no changes since the last check, or changes have continued for too
    /// long. If so, prepares for the next change, and returns true. Otherwise sets the time of the
    /// next check.
    fn is_complete(&mut self, now: Instant) -> io::Result<bool> {
        if let Some(first) = self.first_change_at {
            let has_changes = self.take_changes()?;
            if has_changes && now < first + MAX_DELAY {
                self.next_check_at = Some(now + QUIET);
                return Ok(false);
            }
        }
        self.first_change_at = None;
        self.next_check_at = None;
        Ok(true)
    }

    /// Takes changes from the kernel's queue. Returns whether there were any.
    fn take_changes(&self) -> io::Result<bool> {
        let mut buffer = [0; READ_BYTES];
        let mut has_changes = false;
        for _ in 0..MAX_READS {
            match rustix::io::read(&self.changes, &mut buffer) {
                Ok(0) => {}
                Ok(_) => has_changes = true,
                // The queue is empty, or the rest is read later.
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(has_changes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn change_wakes_once_it_is_complete() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut watch = FolderWatch::new().expect("the kernel gives a watch");
        // Its nearest parent is watched.
        watch.watch(&folder.path().join("later/still")).expect("it is watched");
        let file = folder.path().join("file");
        let before = FileStamp::at(&file);
        assert_eq!(before, None);
        fs::write(&file, "one").expect("it is written");
        let begun = Instant::now();
        assert_eq!(watch.wait(&[]).expect("it waits"), Woken::Changes);
        assert!(begun.elapsed() >= QUIET, "{:?}", begun.elapsed());
        let first = FileStamp::at(&file);
        assert!(first.is_some_and(|stamp| stamp.is_fresh(Duration::from_secs(60))));
        assert!(first.is_some_and(|stamp| !stamp.is_settled()));

        // The same size, and the same time of the last modification.
        let time = fs::metadata(&file).and_then(|it| it.modified()).expect("it has one");
        fs::write(&file, "two").expect("it is written");
        let opened = fs::File::options().write(true).open(&file).expect("it opens");
        opened.set_modified(time).expect("its time is set");
        assert_eq!(watch.wait(&[]).expect("it waits"), Woken::Changes);
        assert_ne!(FileStamp::at(&file), first);
    }

    #[test]
    fn stamp_settles_only_with_a_change_in_the_past() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let stamp = FileStamp::at(file.path()).expect("it exists");
        let (now, nanos) = stamp.changed;
        let settled = |changed| FileStamp { changed, ..stamp }.is_settled();
        assert!(!settled((now, nanos)) && settled((now - 5, nanos)));
        assert!(!settled((now + 3600, 0)) && !settled((-1, 0)) && !settled((i64::MAX, 0)));
    }

    #[test]
    fn writer_without_a_pause_holds_up_neither_changes_nor_others() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut watch = FolderWatch::new().expect("the kernel gives a watch");
        watch.watch(folder.path()).expect("it is watched");
        let file = folder.path().join("file");
        let (ends, other) = rustix::pipe::pipe().expect("a pipe");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::write(&file, "more").expect("it is written");
                }
            });
            let begun = Instant::now();
            let woken = watch.wait(&[ends.as_fd()]);
            let took = begun.elapsed();
            rustix::io::write(&other, b".").expect("it is written");
            let others = (0..3).map(|_| watch.wait(&[ends.as_fd()])).collect::<Vec<_>>();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(woken.expect("it waits"), Woken::Changes);
            assert!(took >= MAX_DELAY && took < 10 * MAX_DELAY, "{took:?}");
            assert!(others.into_iter().all(|it| it.expect("it waits") == Woken::Other(0)));
        });
    }

    #[test]
    fn wait_ends_at_its_time_or_at_an_earlier_change() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut watch = FolderWatch::new().expect("the kernel gives a watch");
        watch.watch(folder.path()).expect("it is watched");
        watch.wake_in(Duration::from_millis(20));
        assert_eq!(watch.wait(&[]).expect("it waits"), Woken::Changes);
        watch.wake_in(Duration::from_secs(3600));
        fs::write(folder.path().join("file"), "").expect("it is written");
        assert_eq!(watch.wait(&[]).expect("it waits"), Woken::Changes);
    }
}
