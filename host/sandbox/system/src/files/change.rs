//! Creates, removes, renames and links files and directories of a call, and sets their times.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, RenameFlags, Stat, Timestamps, Uid};
use rustix::io::Errno;
use toolhold_contract::{Access, ChangedPath};
use toolhold_policy::files::{Kind, Refusal};

use super::temporary::{may_get_to, outermost_temporary};
use super::{DirEntryRef, FileError, FileView, NO_LEAF, kernel, not_saved};

impl FileView {
    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal, or the kernel's error.
    pub fn create_directory(&self, dir: BorrowedFd<'_>, path: &str) -> Result<(), FileError> {
        let place = match self.place(dir, path) {
            // The path ends with `.` or `..`, so the directory must exist. Callers that create a
            // path directory by directory expect `EXIST` for an existing directory.
            Err(FileError::Errno(NO_LEAF)) => {
                let follow = true;
                self.find_at(dir, path, follow)?;
                return Err(Errno::EXIST.into());
            }
            other => other?,
        };
        self.check(&place.path(), FileType::Directory, Access::Write)?;
        self.check_temporary_limit(&place)?;
        self.before_change(&place)?;
        rustix::fs::mkdirat(&place.dir, place.leaf, self.mode_of_new_directory(&place))?;
        self.remember_temporary(&place)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal, or the kernel's error.
    pub fn remove_directory(&self, dir: BorrowedFd<'_>, path: &str) -> Result<(), FileError> {
        let place = self.place(dir, path)?;
        self.check(&place.path(), FileType::Directory, Access::Write)?;
        if let Some(refusal) = self.refused_below(&place.path()) {
            return Err(self.denied(refusal, &place.path(), Access::Write));
        }
        self.before_change(&place)?;
        Ok(rustix::fs::unlinkat(&place.dir, place.leaf, AtFlags::REMOVEDIR)?)
    }

    /// Removes anything except a directory.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal, or the kernel's error.
    pub fn unlink(&self, dir: BorrowedFd<'_>, path: &str) -> Result<(), FileError> {
        let place = self.place(dir, path)?;
        self.check(&place.path(), FileType::RegularFile, Access::Write)?;
        if place.wants_directory {
            return Err(Errno::NOTDIR.into());
        }
        self.before_change(&place)?;
        Ok(rustix::fs::unlinkat(&place.dir, place.leaf, AtFlags::empty())?)
    }

    /// Renames within and between grants of one file system.
    ///
    /// A renamed file that the call created gets the mode of the replaced file, and its owner if
    /// possible. Programs that rewrite a file through a temporary file thus keep mode and owner.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal, or the kernel's error. The rules check both names, all objects
    /// below a directory under both names, and the target of a link from its new path.
    pub fn rename(
        &self,
        from: (BorrowedFd<'_>, &str),
        to: (BorrowedFd<'_>, &str),
    ) -> Result<(), FileError> {
        let source = self.place(from.0, from.1)?;
        let target = self.place(to.0, to.1)?;
        let stat = rustix::fs::statat(&source.dir, source.leaf, AtFlags::SYMLINK_NOFOLLOW);
        // The rules also decide on a missing source.
        let kind = stat.as_ref().map_or(FileType::Unknown, kernel::file_type);
        for path in [source.path(), target.path()] {
            self.check(&path, kind, Access::Write)?;
            self.check(&path, kind, Access::Read)?;
        }
        let stat = stat?;
        if !may_get_to(&source.path(), &target.path()) {
            return Err(Errno::PERM.into());
        }
        let is_directory = kind == FileType::Directory;
        if (source.wants_directory || target.wants_directory) && !is_directory {
            return Err(Errno::NOTDIR.into());
        }
        if is_directory {
            for path in [source.path(), target.path()] {
                if let Some(refusal) = self.refused_below(&path) {
                    return Err(self.denied(refusal, &path, Access::Write));
                }
            }
            self.check_below(&source, &source.path(), &target.path())?;
        } else if kind == FileType::RegularFile {
            self.keep_mode(&source, &stat, &target);
        } else if kind == FileType::Symlink {
            self.check_moved_link(
                source.dir.as_fd(),
                source.leaf,
                &source.dir_path,
                &target.dir_path,
            )?;
        }

        self.before_rename(&source, &target)?;
        rustix::fs::renameat_with(
            &source.dir,
            source.leaf,
            &target.dir,
            target.leaf,
            RenameFlags::empty(),
        )?;

        if is_directory && source.path() != target.path() {
            // Another process may have created an object below the directory after the check. After
            // the rename, no process can use the old name, so this check is final. The rules don't
            // apply to an old name that is temporary.
            let mut old = source.path();
            if outermost_temporary(&old).is_some() {
                old = target.path();
            }
            if let Err(error) = self.check_below(&target, &old, &target.path()) {
                rename_back(&source, &target);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes the recorder save the objects of both names before a rename.
    fn before_rename(
        &self,
        source: &DirEntryRef<'_>,
        target: &DirEntryRef<'_>,
    ) -> Result<(), FileError> {
        let Some(changes) = &self.changes else { return Ok(()) };
        let follow = false;
        let object = kernel::resolve(source.dir.as_fd(), source.leaf, follow)?;
        let replaced = kernel::resolve(target.dir.as_fd(), target.leaf, follow).ok();
        let from = ChangedPath {
            path: &source.path(),
            object: Some(object.as_fd()),
            parent: Some(source.dir.as_fd()),
        };
        let to = ChangedPath {
            path: &target.path(),
            object: replaced.as_ref().map(AsFd::as_fd),
            parent: Some(target.dir.as_fd()),
        };
        changes.before_rename(&from, &to).map_err(not_saved)
    }

    /// Creates a second name for a regular file. Links the checked object, even if its name has got
    /// another object meanwhile.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal to read or write one of the names, or the kernel's error. The new
    /// name must not allow more than the old name.
    pub fn link(
        &self,
        from: (BorrowedFd<'_>, &str),
        to: (BorrowedFd<'_>, &str),
    ) -> Result<(), FileError> {
        let (from_dir, from_path) = from;
        let (to_dir, to_path) = to;
        let follow = false;
        let found = self.resolve(from_dir, from_path, follow, Access::Write)?;
        let target = self.place(to_dir, to_path)?;
        for path in [&found.path, &target.path()] {
            self.check(path, found.kind, Access::Write)?;
            self.check(path, found.kind, Access::Read)?;
        }
        let is_file = found.kind == FileType::RegularFile;
        let may_have_name = !target.wants_directory && may_get_to(&found.path, &target.path());
        if !is_file || !may_have_name {
            return Err(Errno::PERM.into());
        }
        // The call can change the file through the new name, so the file is saved now.
        self.before_change_of(&found)?;
        self.before_change(&target)?;
        let name = kernel::fd_name(found.handle.as_fd());
        Ok(rustix::fs::linkat(
            kernel::proc_fds()?,
            name.as_str(),
            &target.dir,
            target.leaf,
            AtFlags::SYMLINK_FOLLOW,
        )?)
    }

    /// Creates a symbolic link to `points_to`, relative to the link's folder.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal, or the kernel's error. Programs outside of the sandbox also follow
    /// links, so the rules check the target, too. `..` is allowed only at the start of the target,
    /// because a name before `..` may be or become a link.
    pub fn symlink(
        &self,
        points_to: &str,
        dir: BorrowedFd<'_>,
        path: &str,
    ) -> Result<(), FileError> {
        let place = self.place(dir, path)?;
        self.check(&place.path(), FileType::Symlink, Access::Write)?;
        let points_to = Path::new(points_to);
        if points_to.is_absolute() || has_late_parent(points_to) {
            let path = place.dir_path.join(points_to);
            return Err(self.denied(Refusal::Outside, &path, Access::Read));
        }
        let target = lexical_join(&place.dir_path, points_to);
        self.check(&target, FileType::Directory, Access::Read)?;
        if place.wants_directory {
            return Err(Errno::NOTDIR.into());
        }
        self.check_temporary_limit(&place)?;
        self.before_change(&place)?;
        rustix::fs::symlinkat(points_to, &place.dir, place.leaf)?;
        self.remember_temporary(&place)
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal, `INVAL` if the object isn't a link, or `ILSEQ` if the target isn't
    /// UTF-8.
    pub fn read_link(&self, dir: BorrowedFd<'_>, path: &str) -> Result<String, FileError> {
        let follow = false;
        let found = self.find_at(dir, path, follow)?;
        if found.kind != FileType::Symlink {
            return Err(Errno::INVAL.into());
        }
        let target = rustix::fs::readlinkat(&found.handle, "", Vec::new())?;
        Ok(target.into_string().map_err(|_| Errno::ILSEQ)?)
    }

    /// Sets the times of a file or directory.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal, `NOTSUP` for a link itself, or the kernel's error.
    pub fn set_times(
        &self,
        dir: BorrowedFd<'_>,
        path: &str,
        follow: bool,
        times: &Timestamps,
    ) -> Result<(), FileError> {
        let found = self.resolve(dir, path, follow, Access::Write)?;
        self.check(&found.path, found.kind, Access::Write)?;
        if !matches!(found.kind, FileType::RegularFile | FileType::Directory) {
            return Err(Errno::NOTSUP.into());
        }
        self.before_change_of(&found)?;
        let name = kernel::fd_name(found.handle.as_fd());
        Ok(rustix::fs::utimensat(kernel::proc_fds()?, name.as_str(), times, AtFlags::empty())?)
    }

    /// Checks whether the link `name` may move from the directory `old` to the directory `new`.
    /// Programs outside of the sandbox also follow links, so a readable target must stay readable.
    /// A link that already leads out of the grants may move, because the move adds no access.
    pub(super) fn check_moved_link(
        &self,
        dir: BorrowedFd<'_>,
        name: &str,
        old: &Path,
        new: &Path,
    ) -> Result<(), FileError> {
        let text = rustix::fs::readlinkat(dir, name, Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(text.into_bytes()));
        let before = lexical_join(old, &target);
        let after = lexical_join(new, &target);
        let Err(refusal) = self.decide(&after, Kind::Directory, Access::Read) else {
            return Ok(());
        };
        let adds_no_access =
            before == after || self.decide(&before, Kind::Directory, Access::Read).is_err();
        if adds_no_access {
            return Ok(());
        }
        Err(self.denied(refusal, &after, Access::Read))
    }

    /// Copies the mode and the owner of the replaced file to the file at `source`, if this call
    /// created that file. After a failure, the file keeps its own mode and owner.
    fn keep_mode(&self, source: &DirEntryRef<'_>, stat: &Stat, target: &DirEntryRef<'_>) {
        // A file with a second name must not change under that name. It may even be a file that the
        // call didn't create, with the inode number of a removed file.
        if !self.created(stat) || stat.st_nlink != 1 {
            return;
        }
        let Ok(replaced) = rustix::fs::statat(&target.dir, target.leaf, AtFlags::SYMLINK_NOFOLLOW)
        else {
            return;
        };
        let follow = false;
        let Ok(handle) = kernel::resolve(source.dir.as_fd(), source.leaf, follow) else { return };
        let Ok(current) = rustix::fs::fstat(&handle) else { return };
        let is_same = current.st_dev == stat.st_dev && current.st_ino == stat.st_ino;
        if is_same && kernel::file_type(&replaced) == FileType::RegularFile {
            copy_mode(&handle, stat, &replaced);
        }
    }
}

fn rename_back(source: &DirEntryRef<'_>, target: &DirEntryRef<'_>) {
    let renamed = rustix::fs::renameat_with(
        &target.dir,
        target.leaf,
        &source.dir,
        source.leaf,
        RenameFlags::NOREPLACE,
    );
    if let Err(errno) = renamed {
        tracing::warn!(
            "{} can't be moved back to {}: {errno}",
            target.path().display(),
            source.path().display()
        );
    }
}

/// Checks whether `..` follows a name in the path.
fn has_late_parent(path: &Path) -> bool {
    let mut after_start = path
        .components()
        .skip_while(|part| matches!(part, Component::ParentDir | Component::CurDir));
    after_start.any(|part| part == Component::ParentDir)
}

fn copy_mode(handle: &OwnedFd, stat: &Stat, replaced: &Stat) {
    let Ok(fds) = kernel::proc_fds() else { return };
    let name = kernel::fd_name(handle.as_fd());
    if replaced.st_uid != stat.st_uid || replaced.st_gid != stat.st_gid {
        let user = Some(Uid::from_raw(replaced.st_uid));
        let group = Some(Gid::from_raw(replaced.st_gid));
        // Only root can change the owner. Files of other users already have the right owner.
        let _ = rustix::fs::chownat(fds, name.as_str(), user, group, AtFlags::empty());
    }
    // New content must not inherit privileges, so bits such as set-user-ID are left out.
    let permission_bits = 0o777;
    let mode = Mode::from_raw_mode(replaced.st_mode & permission_bits);
    let _ = rustix::fs::chmodat(fds, name.as_str(), mode, AtFlags::empty());
}

/// Joins paths without reading the file system: `..` removes a component.
fn lexical_join(base: &Path, path: &Path) -> PathBuf {
    let mut joined = base.to_owned();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                joined.pop();
            }
            Component::Normal(part) => joined.push(part),
            Component::RootDir => joined = PathBuf::from("/"),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    joined
}
