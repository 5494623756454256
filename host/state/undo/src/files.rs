//! Opens the objects of an undo by their real paths. Only regular files are opened. Links aren't
//! followed, because a link may have replaced a directory and may lead elsewhere.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec,
    Timestamps, Uid,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use toolhold_data_dir::PrivateFolder;

use super::access::{Access, MODE_BITS};
use super::rules::Rule;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    #[serde(default)]
    pub(crate) owner: Option<(u32, u32)>,
    /// The last change of the contents, in seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    pub(crate) accessed: (i64, u32),
}

impl Meta {
    pub(crate) fn from_stat(stat: &Stat) -> Self {
        // Nanoseconds are less than a second, so they fit into the type.
        Self {
            mode: stat.st_mode & MODE_BITS,
            owner: Some((stat.st_uid, stat.st_gid)),
            modified: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            accessed: (stat.st_atime, u32::try_from(stat.st_atime_nsec).unwrap_or(0)),
        }
    }

    pub(crate) fn permissions(&self) -> (u32, Option<(u32, u32)>) {
        (self.mode, self.owner)
    }

    /// Compares the metadata without access times and owners.
    pub(crate) fn same(&self, other: &Self) -> bool {
        (self.mode, self.modified) == (other.mode, other.modified)
    }
}

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct DirEntryRef<'a> {
    access: &'a Access,
    directory: OwnedFd,
    name: OsString,
}

impl<'a> DirEntryRef<'a> {
    /// Finds the directory of an absolute path. Fails with [`io::ErrorKind::NotFound`] if a
    /// directory is missing, or replaced by a link or a file.
    pub(crate) fn find(access: &'a Access, path: &Path) -> io::Result<Self> {
        // The root directory has no parent.
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => (parent, name),
            (None, None) if path.is_absolute() => (path, OsStr::new(".")),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        // A relative path also starts at the root directory.
        let below = parent.strip_prefix("/").unwrap_or(parent);
        let opened = match directory_at(&root, below) {
            // The owner lacks a permission for a directory on the way, so open the directories one
            // by one and add the missing permissions.
            Err(Errno::ACCESS) => step_by_step(access, root, below),
            result => result,
        };
        match opened {
            Ok(directory) => Ok(Self { access, directory, name: name.to_owned() }),
            // A file or a link has replaced a directory.
            Err(Errno::NOTDIR | Errno::LOOP) => Err(io::ErrorKind::NotFound.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn beside(&self, name: &str) -> io::Result<Self> {
        Ok(Self { access: self.access, directory: self.directory.try_clone()?, name: name.into() })
    }

    /// Performs an operation in the directory. If the owner lacks permissions for the directory,
    /// adds them temporarily and repeats the operation.
    fn try_in<T>(&self, act: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match act() {
            Err(Errno::ACCESS) => {
                self.access.give_directory(self.directory.as_fd())?;
                act()
            }
            result => result,
        }
    }

    /// Returns the properties of the object, or `None` if the name is free.
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match self.try_in(|| rustix::fs::statat(&self.directory, &self.name, flags)) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns an `O_PATH` handle. A link isn't followed.
    pub(crate) fn handle(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(self.try_in(|| rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()))?)
    }

    pub(crate) fn open(&self) -> io::Result<File> {
        reopened(self.access, self.regular_file()?.as_fd(), OFlags::RDONLY)
    }

    pub(crate) fn overwrite(&self) -> io::Result<File> {
        reopened(self.access, self.regular_file()?.as_fd(), OFlags::WRONLY)
    }

    /// Opens a handle of the object. Fails if the object isn't a regular file.
    fn regular_file(&self) -> io::Result<OwnedFd> {
        let handle = self.handle()?;
        let stat = rustix::fs::statat(&handle, "", AtFlags::EMPTY_PATH)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(handle),
            _ => Err(io::Error::other("this isn't a file")),
        }
    }

    pub(crate) fn create(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let created =
            self.try_in(|| rustix::fs::openat(&self.directory, &self.name, flags, mode))?;
        Ok(created.into())
    }

    pub(crate) fn link(&self, target: &Path) -> io::Result<()> {
        Ok(self.try_in(|| rustix::fs::symlinkat(target, &self.directory, &self.name))?)
    }

    /// Makes this name a hard link to `other`.
    pub(crate) fn link_to(&self, other: &Self) -> io::Result<()> {
        let old = &other.directory;
        let new = &self.directory;
        let flags = AtFlags::empty();
        Ok(self.try_in(|| {
            other.try_in(|| rustix::fs::linkat(old, &other.name, new, &self.name, flags))
        })?)
    }

    /// Makes this name a hard link to a file in `folder`, which must be on the same file system.
    pub(crate) fn link_to_kept(&self, folder: &PrivateFolder, name: &str) -> io::Result<()> {
        Ok(self.try_in(|| {
            let linked = folder.link_to(name, self.directory.as_fd(), &self.name);
            linked.map_err(|error| as_errno(&error))
        })?)
    }

    pub(crate) fn make_directory(&self) -> io::Result<()> {
        Ok(self.try_in(|| rustix::fs::mkdirat(&self.directory, &self.name, Mode::RWXU))?)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        Ok(self.try_in(|| rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()))?)
    }

    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        Ok(self.try_in(|| rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::REMOVEDIR))?)
    }

    /// Renames the object. An existing target is replaced.
    pub(crate) fn rename(&self, to: &Self) -> io::Result<()> {
        self.rename_with(to, RenameFlags::empty())
    }

    /// Renames the object. An existing target is an error.
    pub(crate) fn rename_new(&self, to: &Self) -> io::Result<()> {
        self.rename_with(to, RenameFlags::NOREPLACE)
    }

    fn rename_with(&self, to: &Self, flags: RenameFlags) -> io::Result<()> {
        let renamed = match self.try_in(|| to.try_in(|| self.rename_once(to, flags))) {
            // Moving a directory changes its `..` entry. This needs write permission for the
            // directory itself.
            Err(Errno::ACCESS) => {
                self.access.give_directory(self.handle()?.as_fd())?;
                self.rename_once(to, flags)
            }
            renamed => renamed,
        };
        Ok(renamed?)
    }

    fn rename_once(&self, to: &Self, flags: RenameFlags) -> Result<(), Errno> {
        rustix::fs::renameat_with(&self.directory, &self.name, &to.directory, &to.name, flags)
    }

    /// Moves a file from `folder` to this name. The folder must be on the same file system.
    pub(crate) fn move_from(&self, folder: &PrivateFolder, name: &str) -> io::Result<()> {
        Ok(self.try_in(|| {
            let moved = folder.give(name, self.directory.as_fd(), &self.name);
            moved.map_err(|error| as_errno(&error))
        })?)
    }

    pub(crate) fn set_meta(&self, meta: &Meta) -> io::Result<()> {
        let Some(stat) = self.stat()? else { return Err(io::ErrorKind::NotFound.into()) };
        let owner = meta.owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid));
        self.set_owner(owner);
        // The restored mode must stay when temporary permissions are removed.
        self.access.keep(stat.st_dev, stat.st_ino);
        // A change of the owner removes setuid and setgid bits, so the mode is then set again.
        let needs_mode = owner.is_some() || stat.st_mode & MODE_BITS != meta.mode;
        if needs_mode && !Rule::Modes.is_off_in_test() {
            let mode = Mode::from_raw_mode(meta.mode);
            let flags = AtFlags::empty();
            self.try_in(|| rustix::fs::chmodat(&self.directory, &self.name, mode, flags))?;
        }
        self.set_times(meta.accessed, meta.modified)
    }

    /// Restores the owner and the group, if this user may.
    pub(crate) fn set_owner(&self, owner: Option<(u32, u32)>) {
        if let Some((user, group)) = owner {
            let user = Some(Uid::from_raw(user));
            let group = Some(Gid::from_raw(group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            // Only root can change the owner. A file that another user restores already has the
            // right owner.
            let _ = rustix::fs::chownat(&self.directory, &self.name, user, group, flags);
        }
    }

    pub(crate) fn set_times(&self, accessed: (i64, u32), modified: (i64, u32)) -> io::Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let times = timestamps(accessed, modified);
        match self.try_in(|| rustix::fs::utimensat(&self.directory, &self.name, &times, flags)) {
            // Another user owns the object, so the call couldn't have changed its times either.
            Err(Errno::PERM) => Ok(()),
            result => Ok(result?),
        }
    }

    pub(crate) fn directory_times(&self) -> io::Result<Timestamps> {
        let stat = rustix::fs::statat(&self.directory, "", AtFlags::EMPTY_PATH)?;
        let meta = Meta::from_stat(&stat);
        Ok(timestamps(meta.accessed, meta.modified))
    }

    /// Sets the times of the directory, if this user owns it.
    pub(crate) fn set_directory_times(&self, times: &Timestamps) -> io::Result<()> {
        match rustix::fs::utimensat(&self.directory, ".", times, AtFlags::empty()) {
            Err(Errno::PERM) => Ok(()),
            result => Ok(result?),
        }
    }

    pub(crate) fn entries(&self) -> io::Result<Vec<OsString>> {
        let handle = match self.try_in(|| self.open_directory()) {
            // The owner lacks permissions for the directory with this name.
            Err(Errno::ACCESS) => {
                self.access.give_directory(self.handle()?.as_fd())?;
                self.open_directory()?
            }
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(handle)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    fn open_directory(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty())
    }
}

/// Returns the number of an error, or `EIO` for an error that doesn't come from the kernel.
fn as_errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn timestamps(accessed: (i64, u32), modified: (i64, u32)) -> Timestamps {
    Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) }
}

fn timespec((seconds, nanoseconds): (i64, u32)) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
}

/// Opens the file of an `O_PATH` handle for reading or writing. If the owner lacks permissions for
/// the file, adds them temporarily.
pub(crate) fn reopened(access: &Access, handle: BorrowedFd<'_>, flags: OFlags) -> io::Result<File> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = match rustix::fs::openat(CWD, &link, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            access.give_file(handle)?;
            rustix::fs::openat(CWD, &link, flags, Mode::empty())
        }
        opened => opened,
    };
    Ok(opened?.into())
}

/// Opens a directory below `root` without following links.
fn directory_at(root: &OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(root, below, flags, Mode::empty(), resolve) {
            // The kernel gives up if a directory on the way is renamed at the same time.
            Err(Errno::AGAIN | Errno::INTR) => {}
            found => return found,
        }
    }
}

/// Opens a directory below `root`. Adds missing permissions temporarily to each directory on the
/// way.
fn step_by_step(access: &Access, root: OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    let mut directory = root;
    for name in below {
        let name = Path::new(name);
        directory = match directory_at(&directory, name) {
            Err(Errno::ACCESS) => {
                access.give_directory(directory.as_fd())?;
                directory_at(&directory, name)?
            }
            found => found?,
        };
    }
    Ok(directory)
}

pub(crate) fn path(text: CString) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.as_bytes()))
}
