//! The real paths that a journal names. No link is followed on the way to one: a link that took a
//! directory's place since leads elsewhere.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use serde::{Deserialize, Serialize};

/// Permissions and times, as the system has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    /// User and group.
    #[serde(default)]
    pub(crate) owner: Option<(u32, u32)>,
    /// When the contents changed last: seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    pub(crate) accessed: (i64, u32),
}

impl Meta {
    pub(crate) fn from_stat(stat: &Stat) -> Self {
        let nanoseconds = |value| u32::try_from(value).unwrap_or(0);
        Self {
            mode: stat.st_mode & 0o7777,
            owner: Some((stat.st_uid, stat.st_gid)),
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            accessed: (stat.st_atime, nanoseconds(stat.st_atime_nsec)),
        }
    }

    /// Whether both say the same, but for when something was read.
    pub(crate) fn same(&self, other: &Self) -> bool {
        (self.mode, self.modified) == (other.mode, other.modified)
    }
}

/// A name in a directory that is there.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl Place {
    /// Finds the directory of an absolute path.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if the directory is missing, or if something else, such as a
    /// link, has its place or is on the way to it.
    pub(crate) fn find(path: &Path) -> io::Result<Self> {
        // The root directory is in itself.
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => (parent, name),
            (None, None) if path.is_absolute() => (path, OsStr::new(".")),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let below = parent.strip_prefix("/").unwrap_or(parent);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let directory = loop {
            match rustix::fs::openat2(&root, below, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // A file or a link has a directory's place: nothing is below it.
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(io::ErrorKind::NotFound.into()),
                found => break found?,
            }
        };
        Ok(Self { directory, name: name.to_owned() })
    }

    /// Another name in the same directory.
    pub(crate) fn beside(&self, name: &str) -> io::Result<Self> {
        Ok(Self { directory: self.directory.try_clone()?, name: name.into() })
    }

    /// Its metadata. `None`: nothing has the name.
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens a regular file for reading.
    pub(crate) fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty())?.into())
    }

    /// Makes a file that only the user can use.
    pub(crate) fn create(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.directory, &self.name, flags, mode)?.into())
    }

    /// Opens a regular file for writing, and empties it.
    pub(crate) fn overwrite(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty())?.into())
    }

    /// Where a symbolic link points.
    pub(crate) fn target(&self) -> io::Result<PathBuf> {
        Ok(path(rustix::fs::readlinkat(&self.directory, &self.name, Vec::new())?))
    }

    pub(crate) fn link(&self, target: &Path) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.directory, &self.name)?)
    }

    pub(crate) fn make_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.directory, &self.name, Mode::RWXU)?)
    }

    /// Removes a file or a link.
    pub(crate) fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::REMOVEDIR)?)
    }

    /// Takes the name of another place, and replaces what has it.
    pub(crate) fn rename(&self, to: &Self) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.directory, &self.name, &to.directory, &to.name)?)
    }

    /// Takes a name that nothing has.
    pub(crate) fn rename_new(&self, to: &Self) -> io::Result<()> {
        Ok(rustix::fs::renameat_with(
            &self.directory,
            &self.name,
            &to.directory,
            &to.name,
            rustix::fs::RenameFlags::NOREPLACE,
        )?)
    }

    /// Sets permissions and times.
    pub(crate) fn set_meta(&self, meta: &Meta) -> io::Result<()> {
        if let Some((user, group)) = meta.owner
            && let Some(stat) = self.stat()?
            && (stat.st_uid, stat.st_gid) != (user, group)
        {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            // Only root may; for others, the new file is their own.
            let _ =
                rustix::fs::chownat(&self.directory, &self.name, Some(user), Some(group), flags);
        }
        let mode = Mode::from_raw_mode(meta.mode);
        rustix::fs::chmodat(&self.directory, &self.name, mode, AtFlags::empty())?;
        self.set_times(meta.accessed, meta.modified)
    }

    /// Sets the times, of a link itself too.
    pub(crate) fn set_times(&self, accessed: (i64, u32), modified: (i64, u32)) -> io::Result<()> {
        let time = |(seconds, nanoseconds): (i64, u32)| Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds.into(),
        };
        let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::utimensat(&self.directory, &self.name, &times, flags)?)
    }

    /// The names in the directory that has this name.
    pub(crate) fn entries(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&handle)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }
}

/// Opens for reading what a handle (`O_PATH`) names.
pub(crate) fn reopened(object: BorrowedFd<'_>) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", object.as_fd().as_raw_fd()))
}

pub(crate) fn path(text: CString) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.as_bytes()))
}
