//! Opens Toolhold's own folders and files. Refuses files that another user can change.

pub mod folder;
mod git_config;
mod pinned;
mod regular;
mod repository;
pub mod state;
mod way;

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt};
use rustix::fs::{FileType, Mode, OFlags};

pub use git_config::{GitEntry, git_entries};
pub use pinned::{NotKept, PinnedDirectory, keep_empty};
pub use regular::read_regular;
pub use repository::Repository;
pub use way::Way;

/// The permissions of a private file and of a private folder.
const PRIVATE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

/// The read permissions, the write permissions, and all permissions of other users.
const OTHERS_READ: u32 = 0o044;
const OTHERS_WRITE: u32 = 0o022;
const OTHERS_ALL: u32 = 0o077;

/// A folder that no other user can change. Other users can't even enter a folder that Toolhold
/// created.
#[derive(Debug)]
pub struct PrivateFolder(Dir);

impl PrivateFolder {
    /// Opens the folder. Creates the folder if it doesn't exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::open`].
    pub fn make(path: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)?;
        Self::open(path)
    }

    /// Opens the folder.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the folder doesn't exist. Returns an error if the folder is a
    /// link, belongs to another user, or others may write to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty())?;
        check_private(&handle, OTHERS_WRITE)?;
        Ok(Self(Dir::from_std_file(File::from(handle))))
    }

    /// Opens a folder in this folder. Creates the inner folder if it doesn't exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::open`]. Also fails if others can enter the folder.
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.mode(PRIVATE_FOLDER);
        if let Err(error) = self.0.create_dir_with(name, &builder)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        let handle = self.0.open_with(name, &options)?.into_std();
        check_private(&handle, OTHERS_ALL)?;
        Ok(Self(Dir::from_std_file(handle)))
    }

    /// Checks that no other user can enter the folder.
    ///
    /// # Errors
    ///
    /// Fails with the commands that fix the permissions.
    pub fn check_closed(&self) -> io::Result<()> {
        check_private(&self.0, OTHERS_ALL)
    }

    /// Opens a file in this folder for reading.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the file doesn't exist. Returns an error if the file is a link,
    /// isn't a regular file, belongs to another user, or others may write to it.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(UNFOLLOWED);
        let file = self.0.open_with(name, &options)?.into_std();
        if !file.metadata()?.is_file() {
            return Err(refused("this isn't a regular file"));
        }
        check_private(&file, OTHERS_WRITE)?;
        Ok(file)
    }

    /// Opens a file in this folder for reading. Refuses a file that others may read.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`]. Also fails if others may read the file.
    pub fn secret(&self, name: &str) -> io::Result<File> {
        let file = self.file(name)?;
        check_private(&file, OTHERS_ALL)?;
        Ok(file)
    }

    /// Opens a file in this folder for reading and for appending. Creates the file if it doesn't
    /// exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`].
    pub fn appended(&self, name: &str) -> io::Result<File> {
        self.open_private(name, OpenOptions::new().read(true).append(true))
    }

    /// Opens a file in this folder for reading and writing, for example to lock the file. Creates
    /// the file if it doesn't exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`].
    pub fn updated(&self, name: &str) -> io::Result<File> {
        self.open_private(name, OpenOptions::new().read(true).write(true))
    }

    /// Opens a regular file that only this user can write. A new file is private.
    fn open_private(&self, name: &str, options: &mut OpenOptions) -> io::Result<File> {
        options.create(true).mode(PRIVATE).custom_flags(UNFOLLOWED);
        let file = self.0.open_with(name, options)?.into_std();
        if !file.metadata()?.is_file() {
            return Err(refused("this isn't a regular file"));
        }
        check_private(&file, OTHERS_WRITE)?;
        Ok(file)
    }

    /// Renames a file. The new name must be free.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`] if `to` exists. Returns the system's error in other cases.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let keep_existing = rustix::fs::RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(&self.0, from, &self.0, to, keep_existing)?)
    }

    /// Gives an open file another name in this folder (a hard link). The file must be on the same
    /// file system.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn link(&self, file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        // The path of a descriptor in `/proc` is a link to the descriptor's file.
        let object = format!("/proc/self/fd/{}", file.as_raw_fd());
        let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        Ok(rustix::fs::linkat(rustix::fs::CWD, object, &self.0, name, follow)?)
    }

    /// Returns an `O_PATH` handle of a file that [`link`](Self::link) has named. The user may have
    /// no permission to read the file.
    ///
    /// # Errors
    ///
    /// Returns the system's error. Also fails if the object isn't a regular file.
    pub fn linked(&self, name: &str) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd());
        let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits().cast_signed();
        let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(refused("this isn't a regular file"));
        }
        Ok(file)
    }

    /// Gives a file in this folder another name in a directory of the same file system.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn link_to(&self, name: &str, directory: BorrowedFd<'_>, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.0, name, directory, new, rustix::fs::AtFlags::empty())?)
    }

    /// Moves a file to an open directory of the same file system.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn give(&self, name: &str, directory: BorrowedFd<'_>, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, directory, new)?)
    }

    /// Renames a file. An existing file `to` is replaced atomically.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, &self.0, to)
    }

    /// Writes a private file atomically. A process that has the old file open still reads the old
    /// content. Even after a power failure, no process sees a partial file.
    ///
    /// # Errors
    ///
    /// Returns the system's error. The old file then stays.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.put_then(name, bytes, PRIVATE, File::sync_all)
    }

    /// Writes a file like [`put`](Self::put), with the permission bits `mode`. This is for a user's
    /// file that others may read.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`put`](Self::put).
    pub fn put_with_mode(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.put_then(name, bytes, mode, File::sync_all)
    }

    /// Writes a file like [`put`](Self::put), but doesn't wait for the disk. A power failure may
    /// lose the file.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`put`](Self::put).
    pub fn put_lightly(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.put_then(name, bytes, PRIVATE, |_| Ok(()))
    }

    /// Writes a temporary file, calls `sync`, and renames the file to `name`. After an error,
    /// removes the temporary file.
    fn put_then(
        &self,
        name: &str,
        bytes: &[u8],
        mode: u32,
        sync: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        // The process ID and a counter make the temporary name unique.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!("{name}.{}.{number}", std::process::id());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE);
        let written = self.0.open_with(&temporary, &options).and_then(|file| {
            let mut file = file.into_std();
            if mode != PRIVATE {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            }
            file.write_all(bytes)?;
            sync(&file)
        });
        let result = written.and_then(|()| self.0.rename(&temporary, &self.0, name));
        if result.is_err() {
            let _ = self.0.remove_file(&temporary);
        }
        result
    }

    /// Returns the sorted names of at most `most` entries.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn names(&self, most: usize) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.0.entries()?.take(most) {
            // Toolhold's own names are UTF-8. Other names are skipped.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove_file(name)
    }

    /// Removes a folder with its whole content.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn remove_folder(&self, name: &str) -> io::Result<()> {
        self.0.remove_dir_all(name)
    }

    /// Waits for the lock `name`. Dropping the result releases the lock.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`].
    pub fn lock(&self, name: &str) -> io::Result<File> {
        let file = self.updated(name)?;
        file.lock()?;
        Ok(file)
    }

    /// Takes the lock `name`. Returns `None` if another process has it. Dropping the result
    /// releases the lock.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`].
    pub fn try_lock(&self, name: &str) -> io::Result<Option<File>> {
        let file = self.updated(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl AsFd for PrivateFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The flags for opening a file. A link could lead out of the folder, so links aren't followed, and
/// opening a FIFO must not block.
const UNFOLLOWED: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()).cast_signed();

/// Checks that this user owns the object, and that other users have none of the permissions
/// `denied`.
fn check_private(handle: &impl AsFd, denied: u32) -> io::Result<()> {
    let stat = rustix::fs::fstat(handle)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refused(format!(
            "the owner is user {}, not the user who runs Toolhold",
            stat.st_uid
        )));
    }
    if stat.st_mode & denied != 0 {
        let denies_reading = denied & OTHERS_READ != 0;
        let is_folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        let remedy = if is_folder || denies_reading { "go-rwx" } else { "go-w" };
        return Err(refused(format!(
            "other users have access (mode {:o}); check the content, then run: chmod {remedy}",
            stat.st_mode & folder::PERMISSION_BITS
        )));
    }
    Ok(())
}

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, reason.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn private_folder_refuses_links_and_others_write_access() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("a/b");
        PrivateFolder::make(&path).expect("it is made");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o7777, 0o700);
        symlink(&path, root.path().join("link")).expect("a link is made");
        PrivateFolder::open(&root.path().join("link")).expect_err("a link is no folder");
        for mode in [0o770, 0o702, 0o777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode is set");
            let error = PrivateFolder::make(&path).expect_err("others may write").to_string();
            assert!(error.contains("chmod go-rwx"), "{error}");
        }
        for mode in [0o750, 0o701] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode is set");
            let folder = PrivateFolder::open(&path).expect("nobody else may write");
            folder.check_closed().expect_err("others may enter");
        }
        let missing = PrivateFolder::open(&root.path().join("none")).expect_err("there is none");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn written_file_is_private_and_links_are_not_followed() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("own");
        let folder = PrivateFolder::make(&path).expect("it is made");
        let outside = root.path().join("outside");
        fs::write(&outside, "as it was").expect("a file is written");
        for name in ["file", "lock"] {
            symlink(&outside, path.join(name)).expect("a link is made");
        }
        folder.file("file").expect_err("a link is no file");
        folder.lock("lock").expect_err("a link is no lock");
        folder.put("file", b"new").expect("the link is replaced");
        assert_eq!(
            io::read_to_string(folder.file("file").expect("it is there")).expect("it is text"),
            "new"
        );
        assert_eq!(fs::metadata(path.join("file")).expect("it is there").mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&outside).expect("it is there"), "as it was");
        fs::set_permissions(path.join("file"), Permissions::from_mode(0o620))
            .expect("its mode is set");
        assert!(
            folder.file("file").expect_err("others may write").to_string().contains("chmod go-w")
        );
        folder.file("none").expect_err("there is none");
        fs::create_dir(path.join("folder")).expect("a folder is made");
        folder.file("folder").expect_err("a folder is no file");
    }

    #[test]
    fn created_folder_and_its_log_are_private() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("own");
        let folder = PrivateFolder::make(&path).expect("it is made");
        let within = folder.folder("within").expect("it is made");
        assert_eq!(fs::metadata(path.join("within")).expect("it is there").mode() & 0o7777, 0o700);
        for line in ["one", "two"] {
            within
                .appended("log")
                .expect("it opens")
                .write_all(line.as_bytes())
                .expect("it is written");
        }
        assert_eq!(fs::read_to_string(path.join("within/log")).expect("it is there"), "onetwo");
        assert_eq!(
            fs::metadata(path.join("within/log")).expect("it is there").mode() & 0o7777,
            0o600
        );
        within.rename("log", "old").expect("it is renamed");
        fs::write(path.join("within/log"), "another").expect("a file is written");
        assert_eq!(
            within.rename("log", "old").expect_err("the name is taken").kind(),
            ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read_to_string(path.join("within/old")).expect("it is there"), "onetwo");

        symlink(&path, path.join("link")).expect("a link is made");
        folder.folder("link").expect_err("a link is no folder");
        symlink(path.join("within/old"), path.join("within/to-old")).expect("a link is made");
        within.appended("to-old").expect_err("a link is no file");
        fs::set_permissions(path.join("within"), Permissions::from_mode(0o750))
            .expect("its mode is set");
        folder.folder("within").expect_err("others may enter");
    }
}
