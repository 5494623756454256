//! Opens regular files and directories of a call. Other kinds of objects are never opened.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use toolhold_contract::Access;

use super::{FileError, FileView, ResolvedObject, kernel};

/// Maximum number of attempts to open or create a file. Another attempt is needed if the name is
/// neither taken nor free, because of a dangling link or a race.
const MAX_ATTEMPTS: usize = 4;

/// The options of an open. By default, an object is opened for neither reading nor writing, and
/// links are followed.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Open for reading data.
    pub read: bool,
    /// Open for writing data.
    pub write: bool,
    /// Create a missing file.
    pub create: bool,
    /// Fail if the file exists.
    pub exclusive: bool,
    /// Empty an existing file as the last step.
    pub truncate: bool,
    /// Fail for anything except a directory.
    pub directory: bool,
    /// Fail for a final link.
    pub no_follow: bool,
    /// Make every write wait for the disk.
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
    /// A handle for use.
    pub handle: OwnedFd,
    /// The real path.
    pub path: PathBuf,
    /// A regular file or a directory.
    pub kind: FileType,
}

impl FileView {
    /// Opens a regular file or a directory at `path` below `dir`.
    ///
    /// # Errors
    ///
    /// Returns [`FileError::Denied`] if a rule denies the path, before anything is touched.
    /// Otherwise, returns the kernel's error.
    pub fn open_at(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        options: OpenOptions,
    ) -> Result<OpenObject, FileError> {
        let access = options.access();
        for _ in 0..MAX_ATTEMPTS {
            match self.resolve(dir, path, !options.no_follow, access) {
                Ok(_) if options.create && options.exclusive => return Err(Errno::EXIST.into()),
                Ok(found) => return self.open_found(&found, options),
                Err(FileError::Errno(Errno::NOENT)) if options.create && !options.directory => {
                    match self.create(dir, path, options) {
                        // Another process has created the file meanwhile.
                        Err(FileError::Errno(Errno::EXIST)) if !options.exclusive => {}
                        created => return created,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        // A name that is neither free nor taken is probably a dangling link.
        Err(Errno::LOOP.into())
    }

    /// Opens for reading like [`open_at`](Self::open_at), but on a thread that must not block.
    /// `dir` is as for [`find_at_once`](Self::find_at_once).
    ///
    /// # Errors
    ///
    /// Returns `AGAIN` if opening the file may wait or be denied. The caller then uses
    /// [`open_at`](Self::open_at).
    pub fn open_at_once(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        options: OpenOptions,
    ) -> Result<OpenObject, FileError> {
        if options.access() == Access::Write || options.sync {
            return Err(Errno::AGAIN.into());
        }
        let found = self.find_at_once(dir, path, !options.no_follow)?;
        self.open_found(&found, options)
    }

    /// Opens an object that was already found, if the rules allow it.
    fn open_found(
        &self,
        found: &ResolvedObject,
        options: OpenOptions,
    ) -> Result<OpenObject, FileError> {
        let is_change = options.write || options.truncate;
        self.check(&found.path, found.kind, options.access())?;
        if is_change {
            // Write access to an open file usually includes reading, at least of its metadata.
            self.check(&found.path, found.kind, Access::Read)?;
        }
        let flags = match found.kind {
            FileType::Directory if is_change => return Err(Errno::ISDIR.into()),
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            _ if options.directory => return Err(Errno::NOTDIR.into()),
            FileType::RegularFile => options.flags(),
            FileType::Symlink => return Err(Errno::LOOP.into()),
            // Opening a FIFO can block the thread, and opening a device can have effects.
            _ => return Err(Errno::NOTSUP.into()),
        };
        if is_change {
            self.before_change_of(found)?;
        }
        let handle = kernel::reopen(found.handle.as_fd(), flags)?;
        if options.truncate {
            rustix::fs::ftruncate(&handle, 0)?;
        }
        if options.read && !options.write {
            self.remember_read(found);
        }
        Ok(OpenObject { handle, path: found.path.clone(), kind: found.kind })
    }

    /// Creates a missing file, if the rules allow it.
    fn create(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        options: OpenOptions,
    ) -> Result<OpenObject, FileError> {
        let place = self.place(dir, path)?;
        self.check(&place.path(), FileType::RegularFile, Access::Write)?;
        if place.wants_directory {
            return Err(Errno::ISDIR.into());
        }
        self.check_temporary_limit(&place)?;
        self.before_change(&place)?;
        let flags =
            options.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle =
            rustix::fs::openat(&place.dir, place.leaf, flags, self.mode_of_new_file(&place))?;
        self.remember_temporary(&place)?;
        self.remember_made(&rustix::fs::fstat(&handle)?);
        Ok(OpenObject { handle, path: place.path(), kind: FileType::RegularFile })
    }
}
