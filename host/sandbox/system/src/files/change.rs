//! Creates, removes, renames and links files and directories of a call, and sets their times.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, RenameFlags, Stat, Timestamps, Uid};
use rustix::io::Errno;
use toolhold_contract::{Access, ChangedPath};
use toolhold_policy::files::{Kind, Refusal};

use super::temporary::{may_get_to, outermost};
use super::{DirEntryRef, FileError, FileView, NO_LEAF, kernel, not_saved};

impl FileView {
    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// A rule's refusal, or the kernel's error.
    pub fn create_directory(&self, dir: BorrowedFd<'_>, path: &str) -> Result<(), FileError> {
        let place = match self.place(dir, path) {
            // A caller that creates a path directory by directory expects this error if the
            // directory exists already.
            Err(FileError::Errno(NO_LEAF)) => {
                self.find_at(dir, path, true)?;
                return Err(Errno::EXIST.into());
            }
            place => place?,
        };
        self.check(&place.path(), FileType::Directory, Access::Write)?;
        self.expect_temporary(&place)?;
        self.before_change(&place)?;
        rustix::fs::mkdirat(&place.dir, place.leaf, self.mode_of_new_directory(&place))?;
        self.remember_temporary(&place)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// A rule's refusal, or the kernel's error.
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
    /// A rule's refusal, or the kernel's error.
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
    /// A file that the call itself created gets the mode and, if allowed, the owner of the file
    /// that it replaces. So if a program rewrites a file through a temporary one, neither changes.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal. The rules check both names, all objects below a directory under
    /// both names, and a link's target from its new place. Otherwise, returns the kernel's error.
    pub fn rename(
        &self,
        from: (BorrowedFd<'_>, &str),
        to: (BorrowedFd<'_>, &str),
    ) -> Result<(), FileError> {
        let source = self.place(from.0, from.1)?;
        let target = self.place(to.0, to.1)?;
        let stat = rustix::fs::statat(&source.dir, source.leaf, AtFlags::SYMLINK_NOFOLLOW);
        // The rules decide before the error of a missing source is returned.
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
            // Another process may have created an object below the directory after the check. The
            // directory has a new name now, so no process changes it by the old name. If the old
            // name is temporary, the rules don't apply to it.
            let mut old = source.path();
            if outermost(&old).is_some() {
                old = target.path();
            }
            if let Err(error) = self.check_below(&target, &old, &target.path()) {
                rename_back(&source, &target);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Has the recorder save both objects of a rename.
    fn before_rename(
        &self,
        source: &DirEntryRef<'_>,
        target: &DirEntryRef<'_>,
    ) -> Result<(), FileError> {
        let Some(changes) = &self.changes else { return Ok(()) };
        let object = kernel::resolve(source.dir.as_fd(), source.leaf, false)?;
        let replaced = kernel::resolve(target.dir.as_fd(), target.leaf, false).ok();
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

    /// Creates a second name for a regular file. Links the object that the rules allowed, even if
    /// its name has another object by then.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal to read or write one of the names, because a link must not allow
    /// more than the old name did. Otherwise, returns the kernel's error.
    pub fn link(
        &self,
        from: (BorrowedFd<'_>, &str),
        to: (BorrowedFd<'_>, &str),
    ) -> Result<(), FileError> {
        let found = self.resolve(from.0, from.1, false, Access::Write)?;
        let target = self.place(to.0, to.1)?;
        for path in [&found.path, &target.path()] {
            self.check(path, found.kind, Access::Write)?;
            self.check(path, found.kind, Access::Read)?;
        }
        let is_file = found.kind == FileType::RegularFile;
        if !is_file || target.wants_directory || !may_get_to(&found.path, &target.path()) {
            return Err(Errno::PERM.into());
        }
        // The new name is a way to change the file.
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
    /// Returns a rule's refusal of the link, or of the spelling of its target, since programs
    /// outside the sandbox follow links too. `..` is allowed only at the beginning. After a name,
    /// `..` is refused, because the name may be or become a link. Otherwise, returns the kernel's
    /// error.
    pub fn symlink(
        &self,
        points_to: &str,
        dir: BorrowedFd<'_>,
        path: &str,
    ) -> Result<(), FileError> {
        let place = self.place(dir, path)?;
        self.check(&place.path(), FileType::Symlink, Access::Write)?;
        let points_to = Path::new(points_to);
        if points_to.is_absolute() || climbs_late(points_to) {
            let path = place.dir_path.join(points_to);
            return Err(self.denied(Refusal::Outside, &path, Access::Read));
        }
        let target = lexical_join(&place.dir_path, points_to);
        self.check(&target, FileType::Directory, Access::Read)?;
        if place.wants_directory {
            return Err(Errno::NOTDIR.into());
        }
        self.expect_temporary(&place)?;
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
        let found = self.find_at(dir, path, false)?;
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

    /// Checks whether a relative link may move to another directory. From there, a program outside
    /// the sandbox must not reach more through the link than before. A link that already points
    /// outside may move, because this adds no access.
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
        if before == after || self.decide(&before, Kind::Directory, Access::Read).is_err() {
            return Ok(());
        }
        Err(self.denied(refusal, &after, Access::Read))
    }

    /// Gives a new file the mode and the owner of the file that it replaces, if possible.
    /// Otherwise, the new file keeps its mode, which the process's umask limits.
    fn keep_mode(&self, source: &DirEntryRef<'_>, stat: &Stat, target: &DirEntryRef<'_>) {
        // A file with another name would change its mode under that name too. For example, another
        // file may have got the inode number of a file that this call created and removed.
        if !self.created(stat) || stat.st_nlink != 1 {
            return;
        }
        let Ok(replaced) = rustix::fs::statat(&target.dir, target.leaf, AtFlags::SYMLINK_NOFOLLOW)
        else {
            return;
        };
        let Ok(handle) = kernel::resolve(source.dir.as_fd(), source.leaf, false) else { return };
        let Ok(now) = rustix::fs::fstat(&handle) else { return };
        let is_same = now.st_dev == stat.st_dev && now.st_ino == stat.st_ino;
        if !is_same || kernel::file_type(&replaced) != FileType::RegularFile {
            return;
        }
        let Ok(fds) = kernel::proc_fds() else { return };

        let name = kernel::fd_name(handle.as_fd());
        if replaced.st_uid != stat.st_uid || replaced.st_gid != stat.st_gid {
            let user = Some(Uid::from_raw(replaced.st_uid));
            let group = Some(Gid::from_raw(replaced.st_gid));
            // Only root can change the owner. For other users, the new file already has the right
            // owner.
            let _ = rustix::fs::chownat(fds, name.as_str(), user, group, AtFlags::empty());
        }
        // The new mode has no set-user-ID and similar bits, because new content must not inherit
        // privileges.
        let mode = Mode::from_raw_mode(replaced.st_mode & 0o777);
        let _ = rustix::fs::chmodat(fds, name.as_str(), mode, AtFlags::empty());
    }
}

/// Renames a directory back to its name before the rename.
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
            "{} can't go back to {}: {errno}",
            target.path().display(),
            source.path().display()
        );
    }
}

/// Checks whether a `..` comes after a name.
fn climbs_late(path: &Path) -> bool {
    let mut after_start = path
        .components()
        .skip_while(|part| matches!(part, Component::ParentDir | Component::CurDir));
    after_start.any(|part| part == Component::ParentDir)
}

/// Joins paths without the file system: `..` removes a component.
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
