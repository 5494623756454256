//! Empty read-only directories at paths where a command must not create anything. They are removed
//! when the last command that uses them ends.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps};

/// Their modification time, which nothing else has and which changes when something is created in
/// them. It shows the last user that the directory has no other purpose, even if another program
/// created it and was killed.
const MARK: Timespec = Timespec { tv_sec: 0xbe47, tv_nsec: 0 };

/// How often it is retried while another command's end removes it.
const ATTEMPTS: usize = 16;

/// A directory that stays while this is held.
#[derive(Debug)]
pub(super) struct PinnedDirectory {
    path: PathBuf,
    /// Locked, shared with the other commands that use it.
    handle: OwnedFd,
}

impl PinnedDirectory {
    /// Creates or finds the directory. `None` if something else is there or it can't be created:
    /// then a command can't create anything there either.
    pub(super) fn at(path: &Path) -> Option<Self> {
        for _ in 0..ATTEMPTS {
            let made = rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o777)).is_ok();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
            let locked = rustix::fs::flock(&handle, FlockOperation::NonBlockingLockShared);
            let held = Self { path: path.to_owned(), handle };
            if made {
                let _ = rustix::fs::futimens(
                    &held.handle,
                    &Timestamps { last_access: MARK, last_modification: MARK },
                );
            }
            // Another process is removing it or has removed it.
            if locked.is_ok() && held.exists() {
                return Some(held);
            }
        }
        None
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn exists(&self) -> bool {
        let named = rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        let held = rustix::fs::fstat(&self.handle);
        matches!((named, held), (Ok(named), Ok(held)) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino))
    }

    fn is_marked(&self) -> bool {
        rustix::fs::fstat(&self.handle).is_ok_and(|stat| stat.st_mtime == MARK.tv_sec)
    }
}

impl Drop for PinnedDirectory {
    fn drop(&mut self) {
        // A command that has it mounted in its view would lose it.
        let is_last =
            rustix::fs::flock(&self.handle, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_last && self.is_marked() && self.exists() {
            // Only if it is empty.
            let _ = rustix::fs::unlinkat(CWD, &self.path, AtFlags::REMOVEDIR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_directory_is_removed_by_its_last_user() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("hooks");
        let first = PinnedDirectory::at(&path).expect("it is made");
        let second = PinnedDirectory::at(&path).expect("it is found");
        drop(first);
        assert!(path.is_dir());
        drop(second);
        assert!(!path.exists());
        // Another program's directory, or one that isn't empty any more.
        std::fs::create_dir(&path).expect("a folder");
        drop(PinnedDirectory::at(&path));
        assert!(path.is_dir());
        std::fs::remove_dir(&path).expect("it is removed");
        let held = PinnedDirectory::at(&path);
        std::fs::write(path.join("file"), "").expect("a file");
        drop(held);
        assert!(path.join("file").exists());
        std::fs::write(dir.path().join("file"), "").expect("a file");
        assert!(
            PinnedDirectory::at(&dir.path().join("file")).is_none()
                && PinnedDirectory::at(&dir.path().join("none/hooks")).is_none()
        );
    }
}
