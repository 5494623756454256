//! Decides whether a whole directory may be renamed. The rules must allow the old and the new path
//! of each entry below the directory.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, ResolveFlags};
use rustix::io::Errno;
use toolhold_contract::Access;
use toolhold_policy::files::Refusal;

use super::{DirEntryRef, FileError, FileView, kernel};

/// Maximum number of checked entries below a directory, at about 5 µs each. The rename of a larger
/// directory is refused, because the check takes too long.
const MAX_ENTRIES: usize = 100_000;

/// Maximum number of checked levels, each with an open handle. The rename of a deeper directory is
/// refused.
const MAX_DEPTH: usize = 128;

impl FileView {
    /// Checks whether everything below the directory at `place` may be renamed from `old` to `new`.
    /// The check runs before the rename, when the directory is at `old`, and again after it, when
    /// the directory is at `new`.
    pub(super) fn check_below(
        &self,
        place: &DirEntryRef<'_>,
        old: &Path,
        new: &Path,
    ) -> Result<(), FileError> {
        let mut checked_entries = 0;
        let handle = enter(place.dir.as_fd(), place.leaf)?;
        let entries = read_entries(&handle)?;
        let mut levels = vec![Level { entries, handle, old: old.to_owned(), new: new.to_owned() }];
        while let Some(level) = levels.last_mut() {
            let Some((name, kind)) = level.entries.pop() else {
                levels.pop();
                continue;
            };
            checked_entries += 1;
            if kind == FileType::Symlink {
                let checked_link =
                    self.check_moved_link(level.handle.as_fd(), &name, &level.old, &level.new);
                unless_gone(checked_link)?;
            }
            let old = level.old.join(&name);
            let new = level.new.join(&name);
            for path in [&old, &new] {
                self.check(path, kind, Access::Write)?;
                self.check(path, kind, Access::Read)?;
            }
            if kind == FileType::Directory {
                let entered = enter(level.handle.as_fd(), &name).map_err(FileError::from);
                if let Some(handle) = unless_gone(entered)? {
                    levels.push(Level { entries: read_entries(&handle)?, handle, old, new });
                }
            }
            if checked_entries > MAX_ENTRIES || levels.len() > MAX_DEPTH {
                return Err(self.denied(Refusal::TooMuchBelow, &place.path(), Access::Write));
            }
        }
        Ok(())
    }
}

struct Level {
    entries: Vec<(String, FileType)>,
    handle: OwnedFd,
    old: PathBuf,
    new: PathBuf,
}

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

/// Reads the entries of a directory, up to one more than the limit. A name that isn't UTF-8 is an
/// error, because rules can't decide on it.
fn read_entries(dir: &OwnedFd) -> Result<Vec<(String, FileType)>, Errno> {
    let mut entries = Vec::new();
    let own_and_parent = [".", ".."];
    // The entry beyond the limit makes the caller refuse the directory.
    let max_read = own_and_parent.len() + MAX_ENTRIES + 1;
    for entry in Dir::read_from(dir)?.take(max_read) {
        let entry = entry?;
        let name = entry.file_name().to_str().map_err(|_| Errno::ILSEQ)?;
        if own_and_parent.contains(&name) {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            kind = kernel::file_type(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?);
        }
        entries.push((name.to_owned(), kind));
    }
    Ok(entries)
}
