//! Creates empty read-only directories at paths where a command must not create anything. They are
//! removed when the last command that uses them ends.

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

/// The modification time that marks such a directory. No other directory has this time, and
/// creating anything in the directory changes it. So the last command recognises the directory,
/// even if another program created it and was killed.
const MARK: Timespec = Timespec { tv_sec: 0xbe47, tv_nsec: 0 };

/// How often creating a directory is retried while the end of another command removes it.
const ATTEMPTS: usize = 16;

/// How folders on the way are opened.
const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A path can't be reserved.
#[derive(Debug, thiserror::Error)]
#[error(
    "commands must not create {}, but Toolhold can't reserve the path: remove the file there, or \
     make its folder writable",
    .0.display()
)]
pub struct NotKept(PathBuf);

/// A directory that stays while this is held.
#[derive(Debug)]
pub struct PinnedDirectory {
    path: PathBuf,
    place: DirEntryRef,
    /// The directory, with a lock that all commands that use it share.
    handle: OwnedFd,
    _around: MadeFolders,
}

/// A name in an open folder. Another folder at the same path is not meant.
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

    /// Removes the directory with this name, if it is empty and is `directory`.
    fn remove(&self, directory: &OwnedFd) {
        if !self.has(directory) {
            return;
        }
        if self.unlink() == Err(Errno::ACCESS) {
            // The command has removed its own user's permission.
            let _ = self.while_writable(|| {
                let _ = self.unlink();
            });
        }
    }

    fn unlink(&self) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::REMOVEDIR)
    }

    /// Runs `act` while the folder's owner has permission to write.
    fn while_writable(&self, act: impl FnOnce()) -> Result<(), Errno> {
        let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&self.folder)?.st_mode);
        rustix::fs::chmodat(CWD, &folder, mode | Mode::RWXU, AtFlags::empty())?;
        act();
        rustix::fs::chmodat(CWD, &folder, mode, AtFlags::empty())
    }

    /// Checks whether this name refers to `directory`.
    fn has(&self, directory: &OwnedFd) -> bool {
        let mut named_stat = self.stat();
        if matches!(named_stat, Err(Errno::ACCESS)) {
            let _ = self.while_writable(|| named_stat = self.stat());
        }
        let Ok(named) = named_stat else { return false };
        let Ok(opened) = rustix::fs::fstat(directory) else { return false };
        opened.st_dev == named.st_dev && opened.st_ino == named.st_ino
    }
}

/// The parent folders that were created for a directory, outer folders first. They are removed with
/// the directory, if they are empty then.
#[derive(Debug, Default)]
struct MadeFolders(Vec<(DirEntryRef, OwnedFd)>);

impl MadeFolders {
    /// Finds the place of a real path, and creates missing parent folders. Links aren't followed,
    /// since the rules haven't decided on the target of a new link.
    fn around(path: &Path) -> Result<(Self, DirEntryRef), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let mut names: Vec<&OsStr> = Vec::new();
        let mut existing = None;
        for above in path.ancestors().skip(1) {
            if above.symlink_metadata().is_ok() {
                let resolve = ResolveFlags::NO_SYMLINKS;
                existing = Some(rustix::fs::openat2(CWD, above, FOLDER, Mode::empty(), resolve)?);
                break;
            }
            names.extend(above.file_name());
        }

        let mut folder = existing.ok_or(Errno::NOENT)?;
        let mut made = Self::default();
        for name in names.into_iter().rev() {
            let place = DirEntryRef { folder, name: name.to_owned() };
            let is_new = match place.make_directory() {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(errno),
            };
            let inner = place.open(FOLDER)?;
            folder = rustix::io::dup(&inner)?;
            if is_new {
                made.0.push((place, inner));
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

impl PinnedDirectory {
    /// Creates or finds the directory, and creates missing parents. Returns `None` if another
    /// object has the path or the directory can't be created.
    pub fn at(path: &Path) -> Option<Self> {
        for _ in 0..ATTEMPTS {
            match Self::try_at(path) {
                // The end of another command removes the directory or its parents.
                Err(Errno::NOENT | Errno::AGAIN) => {}
                pinned => return pinned.ok(),
            }
        }
        None
    }

    fn try_at(path: &Path) -> Result<Self, Errno> {
        let (around, place) = MadeFolders::around(path)?;
        let is_new = place.make_directory().is_ok();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = place.open(flags)?;
        let locked = rustix::fs::flock(&handle, FlockOperation::NonBlockingLockShared);
        if is_new {
            place.mark();
        }
        // Another process is removing the directory or has removed it.
        if locked.is_err() || !place.has(&handle) {
            return Err(Errno::AGAIN);
        }
        Ok(Self { path: path.to_owned(), place, handle, _around: around })
    }

    /// Reserves a free path with an empty directory, or shares the directory of another command.
    /// Returns `None` if another object has the path, or this user's programs can't create an
    /// object there either.
    ///
    /// # Errors
    ///
    /// [`NotKept`] if the directory can't be created, although a program of this user could create
    /// an object at the path.
    pub fn keep_free(path: &Path) -> Result<Option<Self>, NotKept> {
        if let Ok(metadata) = path.symlink_metadata()
            && !is_empty_with_mark(path, &metadata)
        {
            return Ok(None);
        }
        match Self::at(path) {
            None if is_open(path) => Err(NotKept(path.to_owned())),
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

/// Creates an empty file at a free path. The file isn't removed.
///
/// # Errors
///
/// [`NotKept`] if the file can't be created, although a program of this user could create it.
pub fn keep_empty(path: &Path) -> Result<(), NotKept> {
    if make_file(path).is_err() && is_open(path) {
        return Err(NotKept(path.to_owned()));
    }
    Ok(())
}

fn make_file(path: &Path) -> Result<(), Errno> {
    let (mut around, place) = MadeFolders::around(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(&place.folder, &place.name, flags, Mode::from_raw_mode(0o666))?;
    // The parent folders of the file aren't removed either.
    around.0.clear();
    Ok(())
}

/// Checks whether a command has created this empty directory. A folder with content belongs to the
/// user, whatever its time is.
fn is_empty_with_mark(path: &Path, metadata: &Metadata) -> bool {
    metadata.is_dir()
        && metadata.mtime() == MARK.tv_sec
        && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Checks whether a program of this user could create an object at a path where this process can't.
/// The program could remove a file that is in the place of a parent folder, or change the mode of a
/// folder.
fn is_open(path: &Path) -> bool {
    let ancestors = path.ancestors().skip(1);
    let mut existing =
        ancestors.filter_map(|folder| Some((folder, folder.symlink_metadata().ok()?)));
    let Some((above, metadata)) = existing.next() else { return false };
    if path.symlink_metadata().is_ok() {
        return false;
    }
    if !metadata.is_dir() {
        return true;
    }
    if metadata.uid() != geteuid().as_raw() {
        return false;
    }
    match statvfs(above) {
        Ok(mount) => !mount.f_flag.contains(StatVfsMountFlags::RDONLY),
        Err(_) => true,
    }
}

impl Drop for PinnedDirectory {
    fn drop(&mut self) {
        // Another command that has mounted the directory in its view would lose it.
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
