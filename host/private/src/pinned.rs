//! Empty read-only directories at paths where a command must not create anything. They are removed
//! when the last command that uses them ends.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, StatVfsMountFlags, Timespec, Timestamps, statvfs,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Their modification time, which nothing else has and which changes when something is created in
/// them. It shows the last user that the directory has no other purpose, even if another program
/// created it and was killed.
const MARK: Timespec = Timespec { tv_sec: 0xbe47, tv_nsec: 0 };

/// How often it is retried while another command's end removes it.
const ATTEMPTS: usize = 16;

/// A place can't be kept free.
#[derive(Debug, thiserror::Error)]
#[error(
    "no command may make {}, but Berth can't keep the place free: remove what is in its way, \
     or make the folder around it writable",
    .0.display()
)]
pub struct NotKept(PathBuf);

/// A directory that stays while this is held.
#[derive(Debug)]
pub struct PinnedDirectory {
    path: PathBuf,
    /// Locked, shared with the other commands that use it.
    handle: OwnedFd,
    _around: MadeFolders,
}

/// The folders around it that were made for it, the outer before the inner. They are removed with
/// it, if they are empty then.
#[derive(Debug)]
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    fn around(path: &Path) -> Self {
        let above = path.ancestors().skip(1);
        let missing: Vec<&Path> =
            above.take_while(|folder| folder.symlink_metadata().is_err()).collect();
        let made = missing.into_iter().rev().take_while(|folder| make(folder));
        Self(made.map(Path::to_owned).collect())
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            let _ = rustix::fs::unlinkat(CWD, folder, AtFlags::REMOVEDIR);
        }
    }
}

fn make(folder: &Path) -> bool {
    rustix::fs::mkdirat(CWD, folder, Mode::from_raw_mode(0o777)).is_ok()
}

impl PinnedDirectory {
    /// Creates or finds the directory, and creates missing ones around it. `None` if something else
    /// is there or it can't be created.
    pub fn at(path: &Path) -> Option<Self> {
        for _ in 0..ATTEMPTS {
            let around = MadeFolders::around(path);
            let made = make(path);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
                Ok(handle) => handle,
                // Another command's end removes it, or the folders around it.
                Err(Errno::NOENT) => continue,
                Err(_) => return None,
            };
            let locked = rustix::fs::flock(&handle, FlockOperation::NonBlockingLockShared);
            let held = Self { path: path.to_owned(), handle, _around: around };
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

    /// Puts an empty directory where nothing is yet. `None`: neither can a program of this user
    /// make something there.
    ///
    /// # Errors
    ///
    /// One could.
    pub fn keep_free(path: &Path) -> Result<Option<Self>, NotKept> {
        let pinned = Self::at(path);
        match pinned {
            None if is_open(path) => Err(NotKept(path.to_owned())),
            pinned => Ok(pinned),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
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

/// Makes an empty file where nothing is yet, for good.
///
/// # Errors
///
/// It can't be made, and a program of this user could.
pub fn keep_empty(path: &Path) -> Result<(), NotKept> {
    let _ = path.parent().map(std::fs::create_dir_all);
    match File::create_new(path) {
        Err(_) if is_open(path) => Err(NotKept(path.to_owned())),
        _ => Ok(()),
    }
}

/// Whether a program of this user could make something at a path, where this process can't: by
/// removing what is where a folder above would be, or by changing the mode of a folder.
fn is_open(path: &Path) -> bool {
    let above = path.ancestors().skip(1);
    let mut there = above.filter_map(|above| Some((above, above.symlink_metadata().ok()?)));
    let Some((above, there)) = there.next() else { return false };
    let is_read_only =
        || statvfs(above).is_ok_and(|of| of.f_flag.contains(StatVfsMountFlags::RDONLY));
    let is_ours = || there.uid() == geteuid().as_raw() && !is_read_only();
    path.symlink_metadata().is_err() && (!there.is_dir() || is_ours())
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
                && PinnedDirectory::at(&dir.path().join("file/hooks")).is_none()
        );
    }

    #[test]
    fn place_that_another_program_could_take_is_not_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("file"), "").expect("a file");
        let path = dir.path().join("file/hooks");
        assert!(PinnedDirectory::keep_free(&path).is_err() && keep_empty(&path).is_err());
        let taken = PinnedDirectory::keep_free(&dir.path().join("file"));
        assert!(taken.expect("something is there").is_none());
        let config = dir.path().join("a/config");
        for _ in 0..2 {
            keep_empty(&config).expect("it is kept");
            assert_eq!(std::fs::read(&config).expect("it is read"), b"");
        }
    }

    #[test]
    fn folders_that_were_made_for_it_go_with_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a/b/hooks");
        let first = PinnedDirectory::at(&path).expect("it is made");
        let second = PinnedDirectory::at(&path).expect("it is found");
        drop(second);
        assert!(path.is_dir());
        drop(first);
        assert!(!dir.path().join("a").exists());
        std::fs::create_dir(dir.path().join("a")).expect("a folder");
        let held = PinnedDirectory::at(&path);
        std::fs::write(dir.path().join("a/b/file"), "").expect("a file");
        drop(held);
        assert!(!path.exists() && dir.path().join("a/b/file").exists());
    }
}
