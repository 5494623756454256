//! Reserves paths at which a command must not create anything. An empty read-only directory
//! reserves a path. The last command that uses the directory removes it.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, Stat, StatVfsMountFlags, Timespec,
    Timestamps, statvfs,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The modification time that marks these directories. After a crash, the next command recognises a
/// directory by this time. Creating an object in a directory changes the time, so a directory that
/// was used for something else isn't recognised.
const MARK: Timespec = Timespec { tv_sec: 0xbe47, tv_nsec: 0 };

/// Most attempts to create a directory that another command removes at the same time.
const ATTEMPTS: usize = 16;

const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The error for a path that can't be reserved.
#[derive(Debug, thiserror::Error)]
#[error(
    "commands must not create {}, but Toolhold can't reserve the path: remove the file at this \
     path, or make the folder writable",
    .0.display()
)]
pub struct NotKept(PathBuf);

/// A reserved directory. The last command that drops it removes the directory.
#[derive(Debug)]
pub struct PinnedDirectory {
    path: PathBuf,
    place: DirEntryRef,
    /// The directory. All commands that use it share its lock.
    handle: OwnedFd,
    _new_folders: MadeFolders,
}

/// A name in an open folder. It stays valid if the folder moves.
#[derive(Debug)]
struct DirEntryRef {
    folder: OwnedFd,
    name: OsString,
}

impl DirEntryRef {
    fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn make_directory(&self) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.folder, &self.name, Mode::from_raw_mode(0o777))
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty())
    }

    fn mark(&self) {
        let times = Timestamps { last_access: MARK, last_modification: MARK };
        let _ = rustix::fs::utimensat(&self.folder, &self.name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Removes the name, if it still belongs to `directory`.
    fn remove(&self, directory: &OwnedFd) {
        if !self.is_name_of(directory) {
            return;
        }
        if self.unlink() == Err(Errno::ACCESS) {
            // A command may have removed the user's write permission for the folder.
            let _ = self.while_writable(|| {
                let _ = self.unlink();
            });
        }
    }

    fn unlink(&self) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::REMOVEDIR)
    }

    /// Runs `act` while the owner has write permission for the folder, and then restores the
    /// permissions.
    fn while_writable(&self, act: impl FnOnce()) -> Result<(), Errno> {
        // `fchmod` doesn't accept an `O_PATH` handle, so the path of the handle is used.
        let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&self.folder)?.st_mode);
        rustix::fs::chmodat(CWD, &folder, mode | Mode::RWXU, AtFlags::empty())?;
        act();
        rustix::fs::chmodat(CWD, &folder, mode, AtFlags::empty())
    }

    /// Checks whether the name still belongs to `directory`.
    fn is_name_of(&self, directory: &OwnedFd) -> bool {
        let mut stat_of_name = self.stat();
        // A command may have removed the user's permissions for the folder. If the permissions
        // can't be changed, the error stays.
        if matches!(stat_of_name, Err(Errno::ACCESS)) {
            let _ = self.while_writable(|| stat_of_name = self.stat());
        }
        let Ok(named) = stat_of_name else { return false };
        let Ok(opened) = rustix::fs::fstat(directory) else { return false };
        opened.st_dev == named.st_dev && opened.st_ino == named.st_ino
    }
}

/// The parent folders that were created for a directory, outer folders first. Empty folders are
/// removed again.
#[derive(Debug, Default)]
struct MadeFolders(Vec<(DirEntryRef, OwnedFd)>);

impl MadeFolders {
    /// Opens the folder of a real path, and creates missing parent folders. Returns the new
    /// folders, and the place of the path in its folder.
    fn make_parent(path: &Path) -> Result<(Self, DirEntryRef), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let (mut folder, missing_names) = open_nearest(path)?;
        let mut made = Self::default();
        for missing_name in missing_names {
            let place = DirEntryRef { folder, name: missing_name.to_owned() };
            let is_new = match place.make_directory() {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(errno),
            };
            let handle = place.open(FOLDER)?;
            folder = rustix::io::dup(&handle)?;
            if is_new {
                made.0.push((place, handle));
            }
        }
        Ok((made, DirEntryRef { folder, name }))
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for (place, folder) in self.0.drain(..).rev() {
            place.remove(&folder);
        }
    }
}

/// Opens the nearest existing folder above a path. Also returns the names of the missing folders
/// between this folder and the path, the outermost first.
fn open_nearest(path: &Path) -> Result<(OwnedFd, Vec<&OsStr>), Errno> {
    let mut missing_names: Vec<&OsStr> = Vec::new();
    // The first ancestor is the path itself.
    for above in path.ancestors().skip(1) {
        if above.symlink_metadata().is_ok() {
            // Don't follow links, because a link in the path may be new, and may lead to a target
            // that the rules deny.
            let resolve = ResolveFlags::NO_SYMLINKS;
            let folder = rustix::fs::openat2(CWD, above, FOLDER, Mode::empty(), resolve)?;
            missing_names.reverse();
            return Ok((folder, missing_names));
        }
        missing_names.extend(above.file_name());
    }
    Err(Errno::NOENT)
}

impl PinnedDirectory {
    /// Creates or finds the directory, and creates missing parents. If another command removes the
    /// directory at the same time, tries again. Returns `None` if all attempts fail.
    pub fn at(path: &Path) -> Option<Self> {
        for _ in 0..ATTEMPTS {
            match Self::try_at(path) {
                // Another command is removing the directory or its parents, so try again.
                Err(Errno::NOENT | Errno::AGAIN) => {}
                pinned => return pinned.ok(),
            }
        }
        None
    }

    /// Creates or finds the directory once. Fails with `AGAIN` if another process removes it at the
    /// same time.
    fn try_at(path: &Path) -> Result<Self, Errno> {
        let (new_folders, place) = MadeFolders::make_parent(path)?;
        let is_new = place.make_directory().is_ok();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = place.open(flags)?;
        let is_locked = rustix::fs::flock(&handle, FlockOperation::NonBlockingLockShared).is_ok();
        if is_new {
            place.mark();
        }
        // If the lock isn't free, another process is removing the directory. If the name belongs to
        // another object, another process has already removed the directory.
        if !is_locked || !place.is_name_of(&handle) {
            return Err(Errno::AGAIN);
        }
        Ok(Self { path: path.to_owned(), place, handle, _new_folders: new_folders })
    }

    /// Reserves a free path with an empty directory, or shares the directory of another command.
    /// Returns `None` if the path has another object, or if no program of this user can create one.
    ///
    /// # Errors
    ///
    /// [`NotKept`] if the directory can't be created, but a program of this user could create an
    /// object at the path.
    pub fn keep_free(path: &Path) -> Result<Option<Self>, NotKept> {
        if let Ok(metadata) = path.symlink_metadata()
            && !is_empty_with_mark(path, &metadata)
        {
            return Ok(None);
        }
        match Self::at(path) {
            None if is_creatable(path) => Err(NotKept(path.to_owned())),
            pinned => Ok(pinned),
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_marked(&self) -> bool {
        rustix::fs::fstat(&self.handle).is_ok_and(|stat| stat.st_mtime == MARK.tv_sec)
    }
}

/// Creates an empty file at a free path. The file stays.
///
/// # Errors
///
/// [`NotKept`] if the file can't be created, but a program of this user could create it.
pub fn keep_empty(path: &Path) -> Result<(), NotKept> {
    if make_file(path).is_err() && is_creatable(path) {
        return Err(NotKept(path.to_owned()));
    }
    Ok(())
}

fn make_file(path: &Path) -> Result<(), Errno> {
    let (mut new_folders, place) = MadeFolders::make_parent(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(&place.folder, &place.name, flags, Mode::from_raw_mode(0o666))?;
    // Dropping `new_folders` removes the folders in its list, so the list is emptied.
    new_folders.0.clear();
    Ok(())
}

/// Checks whether a command created this empty directory.
fn is_empty_with_mark(path: &Path, metadata: &Metadata) -> bool {
    metadata.is_dir()
        && metadata.mtime() == MARK.tv_sec
        && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Checks whether a program of this user could create an object at a path where this process can't.
/// The program could first replace a file by a folder, or change the mode of a folder.
fn is_creatable(path: &Path) -> bool {
    // The first ancestor is the path itself.
    let nearest_existing = path.ancestors().skip(1).find_map(|ancestor| {
        let metadata = ancestor.symlink_metadata().ok()?;
        Some((ancestor, metadata))
    });
    let Some((above, metadata)) = nearest_existing else { return false };
    if path.symlink_metadata().is_ok() {
        return false;
    }
    // A program can replace a file with a folder.
    if !metadata.is_dir() {
        return true;
    }
    if metadata.uid() != geteuid().as_raw() {
        return false;
    }
    match statvfs(above) {
        Ok(mount) => !mount.f_flag.contains(StatVfsMountFlags::RDONLY),
        // If the mount is unknown, it may be writable.
        Err(_) => true,
    }
}

impl Drop for PinnedDirectory {
    fn drop(&mut self) {
        // Each command that uses the directory has a shared lock. Only the last command gets the
        // exclusive lock.
        let is_last =
            rustix::fs::flock(&self.handle, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_last && self.is_marked() {
            self.place.remove(&self.handle);
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
    fn pinned_directory_is_removed_from_a_folder_that_its_owner_may_not_write() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        for mode in [0, 0o555] {
            let held = PinnedDirectory::at(&dir.path().join("hooks")).expect("it is made");
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.path(), permissions).expect("it is set");
            drop(held);
            let now = dir.path().metadata().expect("it is there").permissions().mode();
            assert_eq!(now & 0o777, mode);
            let readable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(dir.path(), readable).expect("it is set");
            assert!(!dir.path().join("hooks").exists());
        }
    }

    /// The folders are exchanged meanwhile for a link, or moved away.
    #[test]
    fn nothing_is_made_or_removed_behind_a_link() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(root.join("out/b/hooks")).expect("folders");
        let held = PinnedDirectory::at(&root.join("a/b/hooks")).expect("it is made");
        std::fs::rename(root.join("a"), root.join("old")).expect("it is moved");
        std::os::unix::fs::symlink("out", root.join("a")).expect("a link");
        std::fs::remove_dir(root.join("out/b/hooks")).expect("it is removed");
        for path in ["a/b/hooks", "a/other", "a/x/y"] {
            assert!(PinnedDirectory::at(&root.join(path)).is_none(), "{path}");
            let _ = keep_empty(&root.join(path));
        }
        drop(held);
        assert!(root.join("out/b").is_dir() && !root.join("old/b").exists());
        let names = |path: &str| std::fs::read_dir(root.join(path)).expect("it is listed").count();
        assert_eq!((names("out"), names("out/b")), (1, 0));
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
        // Whoever made it, the last one to end removes it. Folders around it go with their maker.
        for first_ends_first in [false, true] {
            let first = PinnedDirectory::keep_free(&path).expect("it is kept");
            let second = PinnedDirectory::keep_free(&path).expect("it is kept");
            assert!(first.is_some() && second.is_some());
            let (one, other) = if first_ends_first { (first, second) } else { (second, first) };
            drop(one);
            assert!(path.is_dir());
            drop(other);
            assert!(!path.exists() && dir.path().join("a").exists() == first_ends_first);
        }
        std::fs::remove_dir_all(dir.path().join("a")).expect("it is removed");
        std::fs::create_dir(dir.path().join("a")).expect("a folder");
        let held = PinnedDirectory::at(&path);
        std::fs::write(dir.path().join("a/b/file"), "").expect("a file");
        drop(held);
        assert!(!path.exists() && dir.path().join("a/b/file").exists());
    }
}
