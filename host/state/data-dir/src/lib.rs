//! Opens Toolhold's own folders and files, and refuses those that another user can change.

pub mod folder;
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

pub use pinned::{NotKept, PinnedDirectory, keep_empty};
pub use regular::read_regular;
pub use repository::Repository;
pub use way::Way;

/// The mode of private files.
const PRIVATE: u32 = 0o600;

/// A folder that no other user can change, by its handle. If Toolhold created the folder, no other
/// user can enter it.
#[derive(Debug)]
pub struct PrivateFolder(Dir);

impl PrivateFolder {
    /// Opens the folder. Creates it if it doesn't exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::open`].
    pub fn make(path: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::open(path)
    }

    /// Opens the folder.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the folder doesn't exist. Otherwise, the reason why the folder
    /// can't be trusted: it is a link, belongs to another user, or others may write to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty())?;
        check_private(&handle, 0o022)?;
        Ok(Self(Dir::from_std_file(File::from(handle))))
    }

    /// Opens a folder in this folder. Creates it if it doesn't exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::open`], or an error if others can enter the folder.
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        if let Err(error) = self.0.create_dir_with(name, &builder)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        let handle = self.0.open_with(name, &options)?.into_std();
        check_private(&handle, 0o077)?;
        Ok(Self(Dir::from_std_file(handle)))
    }

    /// Checks that no other user can enter the folder.
    ///
    /// # Errors
    ///
    /// Returns an error with the commands that fix the permissions.
    pub fn check_closed(&self) -> io::Result<()> {
        check_private(&self.0, 0o077)
    }

    /// Opens a file in this folder for reading.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the file doesn't exist. Otherwise, the reason why the file can't
    /// be trusted: it is a link or not a regular file, belongs to another user, or others may write
    /// to it.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(UNFOLLOWED);
        let file = self.0.open_with(name, &options)?.into_std();
        if !file.metadata()?.is_file() {
            return Err(refused("it is not a regular file"));
        }
        check_private(&file, 0o022)?;
        Ok(file)
    }

    /// Opens a file in this folder for reading. No other user may be able to read the file.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`], or an error if others may read the file.
    pub fn secret(&self, name: &str) -> io::Result<File> {
        let file = self.file(name)?;
        check_private(&file, 0o077)?;
        Ok(file)
    }

    /// Opens a file in this folder for reading and for appending. Creates it if it doesn't exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`].
    pub fn appended(&self, name: &str) -> io::Result<File> {
        self.open_private(name, OpenOptions::new().read(true).append(true))
    }

    /// Opens a file in this folder for reading and writing. Creates it if it doesn't exist. The
    /// caller can lock the open file.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`].
    pub fn updated(&self, name: &str) -> io::Result<File> {
        self.open_private(name, OpenOptions::new().read(true).write(true))
    }

    /// Opens or creates a private file.
    fn open_private(&self, name: &str, options: &mut OpenOptions) -> io::Result<File> {
        options.create(true).mode(PRIVATE).custom_flags(UNFOLLOWED);
        let file = self.0.open_with(name, options)?.into_std();
        if !file.metadata()?.is_file() {
            return Err(refused("it is not a regular file"));
        }
        check_private(&file, 0o022)?;
        Ok(file)
    }

    /// Renames a file. The new name must be free.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyExists`] if the name is taken. Otherwise, the system's error.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let keep_existing = rustix::fs::RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(&self.0, from, &self.0, to, keep_existing)?)
    }

    /// Gives an open file a further name in this folder, if it is on the same file system.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn link(&self, file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let object = format!("/proc/self/fd/{}", file.as_raw_fd());
        let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        Ok(rustix::fs::linkat(rustix::fs::CWD, object, &self.0, name, follow)?)
    }

    /// Returns a handle (`O_PATH`) of a file that [`link`](Self::link) has named. This user may
    /// have no permission to read the file.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or an error if the object isn't a regular file.
    pub fn linked(&self, name: &str) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd());
        let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits().cast_signed();
        let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(refused("it is not a regular file")) }
    }

    /// Gives a file in this folder a further name in another directory of the same file system.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn link_to(&self, name: &str, directory: BorrowedFd<'_>, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.0, name, directory, new, rustix::fs::AtFlags::empty())?)
    }

    /// Moves a file to another directory of the same file system. The caller has opened the
    /// directory.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn give(&self, name: &str, directory: BorrowedFd<'_>, new: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, directory, new)?)
    }

    /// Renames a file, and atomically replaces a file with the new name.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, &self.0, to)
    }

    /// Writes a private file under a temporary name and then renames it. So a process that has the
    /// old file open still reads the old content. Even after a power failure, no process sees a
    /// partial file.
    ///
    /// # Errors
    ///
    /// Returns the system's error. The old file then still exists.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.put_then(name, bytes, PRIVATE, File::sync_all)
    }

    /// Writes a file like [`put`](Self::put), with given permission bits. This is for a user's file
    /// that others may read.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`put`](Self::put).
    pub fn put_with_mode(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.put_then(name, bytes, mode, File::sync_all)
    }

    /// Writes a file like [`put`](Self::put), but doesn't wait for the disk. This is for a file
    /// that may be lost in a power failure directly afterwards.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`put`](Self::put).
    pub fn put_lightly(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.put_then(name, bytes, PRIVATE, |_| Ok(()))
    }

    /// Writes a file to a temporary name, waits for the disk by `sync`, and renames the file.
    fn put_then(
        &self,
        name: &str,
        bytes: &[u8],
        mode: u32,
        sync: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
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

    /// Returns the sorted names of the folder's entries, up to a limit.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn names(&self, most: usize) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.0.entries()?.take(most) {
            // Names that aren't UTF-8 don't belong to Toolhold.
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// The system's.
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

    /// Waits for the lock of this name. Dropping the result releases the lock.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::file`].
    pub fn lock(&self, name: &str) -> io::Result<File> {
        let file = self.updated(name)?;
        file.lock()?;
        Ok(file)
    }

    /// Takes the lock of this name, or returns `None` if another process has it. Dropping the
    /// result releases the lock.
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

/// A link leads elsewhere, and a FIFO would block the open.
const UNFOLLOWED: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()).cast_signed();

/// Checks whether something belongs to this user, and others lack the rights of `others`.
fn check_private(handle: &impl AsFd, others: u32) -> io::Result<()> {
    let stat = rustix::fs::fstat(handle)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refused(format!(
            "it belongs to user {}, not to the user who runs Toolhold",
            stat.st_uid
        )));
    }
    if stat.st_mode & others != 0 {
        let denies_reading = others & 0o044 != 0;
        let is_folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        let remedy = if is_folder || denies_reading { "go-rwx" } else { "go-w" };
        return Err(refused(format!(
            "others may use it (mode {:o}); check the content, then run: chmod {remedy}",
            stat.st_mode & 0o7777
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
