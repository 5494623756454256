//! Opens regular files and directories of a call for use. No other kinds of objects are opened.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use toolhold_contract::Access;

use super::{FileError, FileView, ResolvedObject, kernel};

/// How often an open is retried if the name is neither taken nor free, because of a dangling link
/// or a race.
const ATTEMPTS: usize = 4;

/// The options of an open. By default, an object is opened for neither reading nor writing, and
/// links are followed.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Data can be read.
    pub read: bool,
    /// Data can be written.
    pub write: bool,
    /// A missing file is created.
    pub create: bool,
    /// An existing file is an error.
    pub exclusive: bool,
    /// Whether to empty an existing file. This happens after everything else has succeeded.
    pub truncate: bool,
    /// Anything except a directory is an error.
    pub directory: bool,
    /// A final link is an error.
    pub no_follow: bool,
    /// Every write waits for the disk.
    pub sync: bool,
}

impl OpenOptions {
    fn access(self) -> Access {
        if self.write || self.create || self.truncate { Access::Write } else { Access::Read }
    }

    fn flags(self) -> OFlags {
        let mode = match (self.read, self.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        if self.sync { mode | OFlags::SYNC } else { mode }
    }
}

/// An open file or directory.
#[derive(Debug)]
pub struct OpenObject {
    /// The handle for use.
    pub handle: OwnedFd,
    /// The real path of the object.
    pub path: PathBuf,
    /// The kind of the object: a regular file or a directory.
    pub kind: FileType,
}

impl FileView {
    /// Opens `path` below `dir`, which must be a regular file or a directory.
    ///
    /// # Errors
    ///
    /// [`FileError::Denied`] if a rule refuses the path, before anything was touched. Otherwise,
    /// the kernel's error.
    pub fn open_at(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        how: OpenOptions,
    ) -> Result<OpenObject, FileError> {
        let access = how.access();
        for _ in 0..ATTEMPTS {
            match self.resolve(dir, path, !how.no_follow, access) {
                Ok(_) if how.create && how.exclusive => return Err(Errno::EXIST.into()),
                Ok(found) => return self.open_found(&found, how),
                Err(FileError::Errno(Errno::NOENT)) if how.create && !how.directory => {
                    match self.create(dir, path, how) {
                        // Another process has created the file meanwhile.
                        Err(FileError::Errno(Errno::EXIST)) if !how.exclusive => {}
                        created => return created,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(Errno::LOOP.into())
    }

    /// Opens the same as [`open_at`](Self::open_at) for reading, on a thread that must not block.
    /// For `dir`, see [`find_at_once`](Self::find_at_once).
    ///
    /// # Errors
    ///
    /// `AGAIN` if the file isn't in the kernel's cache, or opening it may wait or be refused. Use
    /// [`open_at`](Self::open_at) then.
    pub fn open_at_once(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        how: OpenOptions,
    ) -> Result<OpenObject, FileError> {
        if how.access() == Access::Write || how.sync {
            return Err(Errno::AGAIN.into());
        }
        let found = self.find_at_once(dir, path, !how.no_follow)?;
        self.open_found(&found, how)
    }

    fn open_found(
        &self,
        found: &ResolvedObject,
        how: OpenOptions,
    ) -> Result<OpenObject, FileError> {
        let changes = how.write || how.truncate;
        self.check(&found.path, found.kind, how.access())?;
        if changes {
            // Write access to an open file mostly includes reading, at least of its metadata.
            self.check(&found.path, found.kind, Access::Read)?;
        }
        let flags = match found.kind {
            FileType::Directory if changes => return Err(Errno::ISDIR.into()),
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            _ if how.directory => return Err(Errno::NOTDIR.into()),
            FileType::RegularFile => how.flags(),
            FileType::Symlink => return Err(Errno::LOOP.into()),
            // Opening a FIFO would block the thread, and opening a device may have effects.
            _ => return Err(Errno::NOTSUP.into()),
        };
        if changes {
            self.before_change_of(found)?;
        }
        let handle = kernel::reopen(found.handle.as_fd(), flags)?;
        if how.truncate {
            rustix::fs::ftruncate(&handle, 0)?;
        }
        if how.read && !how.write {
            self.remember_read(found);
        }
        Ok(OpenObject { handle, path: found.path.clone(), kind: found.kind })
    }

    fn create(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        how: OpenOptions,
    ) -> Result<OpenObject, FileError> {
        let place = self.place(dir, path)?;
        self.check(&place.path(), FileType::RegularFile, Access::Write)?;
        if place.wants_directory {
            return Err(Errno::ISDIR.into());
        }
        self.expect_temporary(&place)?;
        self.before_change(&place)?;
        let flags =
            how.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle =
            rustix::fs::openat(&place.dir, place.leaf, flags, self.mode_of_new_file(&place))?;
        self.remember_temporary(&place)?;
        self.remember_made(&rustix::fs::fstat(&handle)?);
        Ok(OpenObject { handle, path: place.path(), kind: FileType::RegularFile })
    }
}
