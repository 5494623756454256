//! Decides whether a whole directory may be renamed: nothing below it may be refused under its old
//! or its new name.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Dir, FileType, OFlags, ResolveFlags};
use rustix::io::Errno;
use toolhold_contract::Access;
use toolhold_policy::files::Refusal;

use super::{DirEntryRef, FileError, FileView, kernel};

/// Entries below a directory that are checked, at about 5 µs each. A larger directory is refused:
/// the check would take too long.
const MAX_ENTRIES: usize = 100_000;

/// Levels that are checked. Every level keeps a handle open.
const MAX_DEPTH: usize = 128;

impl FileView {
    /// Checks everything below the directory at `place` for being renamed from `old` to `new`, one
    /// of which is its current path.
    pub(super) fn check_below(
        &self,
        place: &DirEntryRef<'_>,
        old: &Path,
        new: &Path,
    ) -> Result<(), FileError> {
        let mut seen = 0;
        let top = enter(place.dir.as_fd(), place.leaf)?;
        // Of every level, only the directory that is being read is open.
        let mut levels = vec![(names(&top)?, top, old.to_owned(), new.to_owned())];
        while let Some((names_left, handle, old, new)) = levels.last_mut() {
            let Some((name, kind)) = names_left.pop() else {
                levels.pop();
                continue;
            };
            seen += 1;
            if kind == FileType::Symlink {
                unless_gone(self.check_moved_link(handle.as_fd(), &name, old, new))?;
            }
            let old = old.join(&name);
            let new = new.join(&name);
            for path in [&old, &new] {
                self.check(path, kind, Access::Write)?;
                self.check(path, kind, Access::Read)?;
            }
            if kind == FileType::Directory
                && let Some(below) =
                    unless_gone(enter(handle.as_fd(), &name).map_err(FileError::from))?
            {
                levels.push((names(&below)?, below, old, new));
            }
            if seen > MAX_ENTRIES || levels.len() > MAX_DEPTH {
                return Err(self.denied(Refusal::TooMuchBelow, &place.path(), Access::Write));
            }
        }
        Ok(())
    }
}

/// An entry that was removed since its directory was read is no reason to refuse.
fn unless_gone<T>(result: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match result {
        Err(FileError::Errno(Errno::NOENT)) => Ok(None),
        result => result.map(Some),
    }
}

fn enter(dir: std::os::fd::BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    kernel::open_beneath(
        dir,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW,
        ResolveFlags::NO_SYMLINKS,
    )
}

/// The entries of a directory, at most one more than the limit. Rules are UTF-8 and can't decide on
/// a name that isn't, so the directory is refused.
fn names(dir: &OwnedFd) -> Result<Vec<(String, FileType)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)?.take(MAX_ENTRIES + 3) {
        let entry = entry?;
        let name = entry.file_name().to_str().map_err(|_| Errno::ILSEQ)?;
        if matches!(name, "." | "..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kernel::file_type(&rustix::fs::statat(
                dir,
                name,
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            )?),
            kind => kind,
        };
        names.push((name.to_owned(), kind));
    }
    Ok(names)
}
