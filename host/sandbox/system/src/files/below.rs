//! Decides whether a whole directory may be renamed. The rules must allow each path below it under
//! its old and its new name.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, ResolveFlags};
use rustix::io::Errno;
use toolhold_contract::Access;
use toolhold_policy::files::Refusal;

use super::{DirEntryRef, FileError, FileView, kernel};

/// The most entries below a directory that are checked, at about 5 µs each. The rename of a larger
/// directory is refused, since the check would take too long.
const MAX_ENTRIES: usize = 100_000;

/// Levels that are checked. Every level keeps a handle open.
const MAX_DEPTH: usize = 128;

impl FileView {
    /// Checks everything below the directory at `place` before a rename from `old` to `new`. One of
    /// these paths is the current path.
    pub(super) fn check_below(
        &self,
        place: &DirEntryRef<'_>,
        old: &Path,
        new: &Path,
    ) -> Result<(), FileError> {
        let mut checked = 0;
        let handle = enter(place.dir.as_fd(), place.leaf)?;
        let entries = read_entries(&handle)?;
        let mut levels = vec![Level { entries, handle, old: old.to_owned(), new: new.to_owned() }];
        while let Some(level) = levels.last_mut() {
            let Some((name, kind)) = level.entries.pop() else {
                levels.pop();
                continue;
            };
            checked += 1;
            if kind == FileType::Symlink {
                let link =
                    self.check_moved_link(level.handle.as_fd(), &name, &level.old, &level.new);
                unless_gone(link)?;
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
            if checked > MAX_ENTRIES || levels.len() > MAX_DEPTH {
                return Err(self.denied(Refusal::TooMuchBelow, &place.path(), Access::Write));
            }
        }
        Ok(())
    }
}

/// A directory whose entries are checked.
struct Level {
    /// The entries that aren't checked yet.
    entries: Vec<(String, FileType)>,
    handle: OwnedFd,
    old: PathBuf,
    new: PathBuf,
}

/// Returns `None` for an entry that was removed after its directory was read. Such an entry is no
/// reason for a refusal.
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

/// Reads the entries of a directory, at most one more than the limit. Rules are UTF-8. If a name
/// isn't UTF-8, the rules can't decide on it, so the directory is refused.
fn read_entries(dir: &OwnedFd) -> Result<Vec<(String, FileType)>, Errno> {
    let mut entries = Vec::new();
    // Two more for `.` and `..`.
    for entry in Dir::read_from(dir)?.take(MAX_ENTRIES + 3) {
        let entry = entry?;
        let name = entry.file_name().to_str().map_err(|_| Errno::ILSEQ)?;
        if matches!(name, "." | "..") {
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
