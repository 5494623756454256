//! Waits for changes of files, and tells whether a file has changed.

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

/// The time without changes after which a change is complete. Copying a file changes it many times.
pub const QUIET: Duration = Duration::from_millis(50);

/// The longest wait for the completion of changes.
pub const MAX_DELAY: Duration = Duration::from_secs(1);

/// The age from which a file's stamp is settled. File systems store times with a resolution of up
/// to two seconds.
const SETTLED: Duration = Duration::from_secs(3);

/// The most reads from the kernel's queue before other work is done.
const READS: usize = 16;

/// The state of a file. If two stamps are equal, the file hasn't changed and needn't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// The modification time in seconds and nanoseconds. The stamp also has the change time,
    /// because programs can set the modification time.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of the file at a path, or `None` if the file is missing. Links are
    /// followed.
    pub fn at(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|metadata| Self::from(&metadata))
    }

    /// Checks whether the last change is at most `moment` ago, so that a program may still be
    /// writing the file.
    pub fn is_fresh(&self, moment: Duration) -> bool {
        self.age().is_some_and(|age| age <= moment)
    }

    /// Checks whether every further change gives the file another stamp. A change shortly after the
    /// last one may get the same time.
    pub fn is_settled(&self) -> bool {
        self.age().is_some_and(|age| age >= SETTLED)
    }

    /// Returns the time since the last change, or `None` if the clock says that the change is in
    /// the future.
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
    /// The time of the first change since changes were complete.
    first: Option<Instant>,
    /// The time when a wait ends, or checks whether changes are complete.
    due: Option<Instant>,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Changes are complete, or the time of [`FolderWatch::wake_in`] has elapsed.
    Changes,
    /// The other descriptor with this index is ready.
    Other(usize),
}

impl FolderWatch {
    /// Makes a watch without folders.
    ///
    /// # Errors
    ///
    /// The system's, if the kernel gives no watch.
    pub fn new() -> io::Result<Self> {
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { changes, first: None, due: None })
    }

    /// Watches a folder. If the folder is missing, watches its nearest existing parent. A watched
    /// folder stays watched.
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
        for folder in folder.ancestors() {
            match inotify::add_watch(&self.changes, folder, events) {
                Ok(_) => return Ok(()),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Ends the next wait after this time, even without a change.
    pub fn wake_in(&mut self, time: Duration) {
        self.due = Some(Instant::now() + time);
    }

    /// Waits until changes are complete, or one of `others` can be read. The first of `others` has
    /// precedence over changes, the rest don't.
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
            // A tool may write to a watched folder continuously, so the queue is only read again at
            // the next step.
            if self.first.is_none() {
                descriptors.push(PollFd::new(&self.changes, PollFlags::IN));
            }
            let mut timeout = None;
            if let Some(due) = self.due {
                timeout = Timespec::try_from(due.saturating_duration_since(now)).ok();
            }
            match poll(&mut descriptors, timeout.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }

            let ready = descriptors.iter().position(|descriptor| !descriptor.revents().is_empty());
            let is_due = self.due.is_some_and(|due| due <= now);
            match ready {
                Some(0) if !others.is_empty() => return Ok(Woken::Other(0)),
                _ if is_due && self.is_complete(now)? => return Ok(Woken::Changes),
                Some(other) if other < others.len() => return Ok(Woken::Other(other)),
                Some(_) if self.first.is_none() => {
                    self.take()?;
                    let first = Instant::now();
                    self.first = Some(first);
                    self.due = Some(first + QUIET);
                }
                _ => {}
            }
        }
    }

    /// Checks whether the last step had no changes, or changes have continued for too long. If so,
    /// resets the state for the next change. Otherwise, sets the time of the next check.
    fn is_complete(&mut self, now: Instant) -> io::Result<bool> {
        if let Some(first) = self.first
            && self.take()?
            && now < first + MAX_DELAY
        {
            self.due = Some(now + QUIET);
            return Ok(false);
        }
        self.first = None;
        self.due = None;
        Ok(true)
    }

    /// Takes changes from the kernel's queue. Returns `true` if there were any.
    fn take(&self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut has_changes = false;
        for _ in 0..READS {
            match rustix::io::read(&self.changes, &mut buffer) {
                Ok(0) => {}
                Ok(_) => has_changes = true,
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
