//! Opens the objects of an undo by their real paths. Links aren't followed, and only regular files
//! are opened. A link may have replaced a directory since, and would lead to another place.

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

use super::access::Access;
use super::rules::Rule;

/// Permissions and times, in the units of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    /// User and group.
    #[serde(default)]
    pub(crate) owner: Option<(u32, u32)>,
    /// The time of the last change of the contents, in seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    pub(crate) accessed: (i64, u32),
}

impl Meta {
    pub(crate) fn from_stat(stat: &Stat) -> Self {
        Self {
            mode: stat.st_mode & 0o7777,
            owner: Some((stat.st_uid, stat.st_gid)),
            modified: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            accessed: (stat.st_atime, u32::try_from(stat.st_atime_nsec).unwrap_or(0)),
        }
    }

    /// Returns the mode and the owner.
    pub(crate) fn permissions(&self) -> (u32, Option<(u32, u32)>) {
        (self.mode, self.owner)
    }

    /// Checks whether both are equal, apart from the time of reading.
    pub(crate) fn same(&self, other: &Self) -> bool {
        (self.mode, self.modified) == (other.mode, other.modified)
    }
}

/// A name in an existing directory.
#[derive(Debug)]
pub(crate) struct DirEntryRef<'a> {
    access: &'a Access,
    directory: OwnedFd,
    name: OsString,
}

impl<'a> DirEntryRef<'a> {
    /// Finds the directory of an absolute path.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if the directory is missing, or another object, such as a link,
    /// has its place or is on the way to it.
    pub(crate) fn find(access: &'a Access, path: &Path) -> io::Result<Self> {
        // The root directory is in itself.
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => (parent, name),
            (None, None) if path.is_absolute() => (path, OsStr::new(".")),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let below = parent.strip_prefix("/").unwrap_or(parent);
        let found = match directory_at(&root, below) {
            Err(Errno::ACCESS) => step_by_step(access, root, below),
            result => result,
        };
        match found {
            Ok(directory) => Ok(Self { access, directory, name: name.to_owned() }),
            // A file or a link has replaced a directory, so the path doesn't exist.
            Err(Errno::NOTDIR | Errno::LOOP) => Err(io::ErrorKind::NotFound.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns another name in the same directory.
    pub(crate) fn beside(&self, name: &str) -> io::Result<Self> {
        Ok(Self { access: self.access, directory: self.directory.try_clone()?, name: name.into() })
    }

    /// Performs an operation in the directory. If the owner has no permission, adds it temporarily
    /// and tries again.
    fn try_in<T>(&self, act: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match act() {
            Err(Errno::ACCESS) => {
                self.access.give_directory(self.directory.as_fd())?;
                act()
            }
            result => result,
        }
    }

    /// Returns the metadata of the object. Returns `None` if no object has the name.
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match self.try_in(|| rustix::fs::statat(&self.directory, &self.name, flags)) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns a handle (`O_PATH`) of the object with the name. A link isn't followed.
    pub(crate) fn handle(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(self.try_in(|| rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()))?)
    }

    /// Opens a regular file for reading.
    pub(crate) fn open(&self) -> io::Result<File> {
        reopened(self.access, self.regular()?.as_fd(), OFlags::RDONLY)
    }

    /// Opens a regular file for writing.
    pub(crate) fn overwrite(&self) -> io::Result<File> {
        reopened(self.access, self.regular()?.as_fd(), OFlags::WRONLY)
    }

    /// Returns a handle of the object, which must be a regular file.
    fn regular(&self) -> io::Result<OwnedFd> {
        let handle = self.handle()?;
        let stat = rustix::fs::statat(&handle, "", AtFlags::EMPTY_PATH)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(handle),
            _ => Err(io::Error::other("it isn't a file")),
        }
    }

    /// Makes a file that only the user can use.
    pub(crate) fn create(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let created =
            self.try_in(|| rustix::fs::openat(&self.directory, &self.name, flags, mode))?;
        Ok(created.into())
    }

    /// Makes a symbolic link.
    pub(crate) fn link(&self, target: &Path) -> io::Result<()> {
        Ok(self.try_in(|| rustix::fs::symlinkat(target, &self.directory, &self.name))?)
    }

    /// Makes this another name of a file.
    pub(crate) fn name_of(&self, other: &Self) -> io::Result<()> {
        let old = &other.directory;
        let new = &self.directory;
        let flags = AtFlags::empty();
        Ok(self.try_in(|| {
            other.try_in(|| rustix::fs::linkat(old, &other.name, new, &self.name, flags))
        })?)
    }

    /// Creates this name as a further name of a file in a folder of the same file system.
    pub(crate) fn name_of_kept(&self, folder: &PrivateFolder, name: &str) -> io::Result<()> {
        Ok(self.try_in(|| {
            let linked = folder.link_to(name, self.directory.as_fd(), &self.name);
            linked.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?)
    }

    pub(crate) fn make_directory(&self) -> io::Result<()> {
        Ok(self.try_in(|| rustix::fs::mkdirat(&self.directory, &self.name, Mode::RWXU))?)
    }

    /// Removes a file or a link.
    pub(crate) fn remove(&self) -> io::Result<()> {
        Ok(self.try_in(|| rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()))?)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        Ok(self.try_in(|| rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::REMOVEDIR))?)
    }

    /// Renames the object, and replaces an object with the new name.
    pub(crate) fn rename(&self, to: &Self) -> io::Result<()> {
        self.rename_with(to, RenameFlags::empty())
    }

    /// Renames the object. The new name must be free.
    pub(crate) fn rename_new(&self, to: &Self) -> io::Result<()> {
        self.rename_with(to, RenameFlags::NOREPLACE)
    }

    fn rename_with(&self, to: &Self, flags: RenameFlags) -> io::Result<()> {
        let renamed = match self.try_in(|| to.try_in(|| self.rename_once(to, flags))) {
            // Moving a directory changes its `..` entry, which needs write permission for the
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

    /// Moves a file from a folder of the same file system to this name.
    pub(crate) fn take(&self, folder: &PrivateFolder, name: &str) -> io::Result<()> {
        Ok(self.try_in(|| {
            let given = folder.give(name, self.directory.as_fd(), &self.name);
            given.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?)
    }

    /// Sets permissions and times.
    pub(crate) fn set_meta(&self, meta: &Meta) -> io::Result<()> {
        let Some(stat) = self.stat()? else { return Err(io::ErrorKind::NotFound.into()) };
        let owner = meta.owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid));
        self.set_owner(owner);
        self.access.keep(stat.st_dev, stat.st_ino);
        // A new owner removes some of the permissions.
        let is_other = owner.is_some() || stat.st_mode & 0o7777 != meta.mode;
        if is_other && !Rule::Modes.is_off() {
            let mode = Mode::from_raw_mode(meta.mode);
            let flags = AtFlags::empty();
            self.try_in(|| rustix::fs::chmodat(&self.directory, &self.name, mode, flags))?;
        }
        self.set_times(meta.accessed, meta.modified)
    }

    /// Sets the owner if this process has permission. Doesn't follow links.
    pub(crate) fn set_owner(&self, owner: Option<(u32, u32)>) {
        if let Some((user, group)) = owner {
            let user = Some(Uid::from_raw(user));
            let group = Some(Gid::from_raw(group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            // Only root can change the owner. For other users, the new file already has the right
            // owner.
            let _ = rustix::fs::chownat(&self.directory, &self.name, user, group, flags);
        }
    }

    /// Sets the times. Doesn't follow links.
    pub(crate) fn set_times(&self, accessed: (i64, u32), modified: (i64, u32)) -> io::Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let times = timestamps(accessed, modified);
        match self.try_in(|| rustix::fs::utimensat(&self.directory, &self.name, &times, flags)) {
            // Another user owns the object, so the call couldn't set its times either.
            Err(Errno::PERM) => Ok(()),
            set => Ok(set?),
        }
    }

    /// Returns the times of the directory that the name is in.
    pub(crate) fn directory_times(&self) -> io::Result<Timestamps> {
        let stat = rustix::fs::statat(&self.directory, "", AtFlags::EMPTY_PATH)?;
        let meta = Meta::from_stat(&stat);
        Ok(timestamps(meta.accessed, meta.modified))
    }

    /// Sets the times of the name's directory, if this user owns the directory.
    pub(crate) fn set_directory_times(&self, times: &Timestamps) -> io::Result<()> {
        match rustix::fs::utimensat(&self.directory, ".", times, AtFlags::empty()) {
            Err(Errno::PERM) => Ok(()),
            set => Ok(set?),
        }
    }

    /// Returns the names in the directory that has this name.
    pub(crate) fn entries(&self) -> io::Result<Vec<OsString>> {
        let handle = match self.try_in(|| self.open_directory()) {
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

fn timestamps(accessed: (i64, u32), modified: (i64, u32)) -> Timestamps {
    Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) }
}

fn timespec((seconds, nanoseconds): (i64, u32)) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
}

/// Opens the file that a handle (`O_PATH`) names.
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

/// Opens a directory below another without following links.
fn directory_at(root: &OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        match rustix::fs::openat2(root, below, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            found => return found,
        }
    }
}

/// Opens a directory below another, and gives the owner of each directory on the way the needed
/// permissions.
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
