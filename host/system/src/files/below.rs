//! Whether a directory may be renamed as a whole: nothing below it may be refused under its old or its new name.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use berth_contract::Access;
use berth_policy::files::Refusal;
use rustix::fs::{Dir, FileType, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{FileError, FileView, Place, kernel};

/// How many entries below a directory are looked at, some 5 µs each. A directory with more is refused: the check would take too long.
const MAX_ENTRIES: usize = 100_000;

/// How deep below a directory is looked. Every level keeps a handle open.
const MAX_DEPTH: usize = 128;

impl FileView {
    /// Checks everything below `source` for being renamed to `target`.
    pub(super) fn check_below(&self, source: &Place<'_>, target: &Path) -> Result<(), FileError> {
        if let Some(refusal) = self.refused_below(&source.path()) {
            return Err(self.denied(refusal, &source.path(), Access::Write));
        }
        let mut seen = 0;
        let top = enter(source.dir.as_fd(), source.leaf)?;
        // Of every level only the directory that is being looked at is open.
        let mut levels = vec![(names(&top)?, top, source.path(), target.to_owned())];
        while let Some((names_left, handle, old, new)) = levels.last_mut() {
            let Some((name, kind)) = names_left.pop() else {
                levels.pop();
                continue;
            };
            seen += 1;
            if kind == FileType::Symlink {
                self.check_moved_link(handle.as_fd(), &name, old, new)?;
            }
            let (old, new) = (old.join(&name), new.join(&name));
            for path in [&old, &new] {
                self.check(path, kind, Access::Write)?;
                self.check(path, kind, Access::Read)?;
            }
            if kind == FileType::Directory {
                let below = enter(handle.as_fd(), &name)?;
                levels.push((names(&below)?, below, old, new));
            }
            if seen > MAX_ENTRIES || levels.len() > MAX_DEPTH {
                return Err(self.denied(Refusal::TooMuchBelow, &source.path(), Access::Write));
            }
        }
        Ok(())
    }
}

fn enter(dir: std::os::fd::BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    kernel::open_beneath(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, ResolveFlags::NO_SYMLINKS)
}

/// The entries of a directory, at most one more than are ever looked at. A name that is not UTF-8 can't be decided on by rules that are,
/// so the directory is refused.
fn names(dir: &OwnedFd) -> Result<Vec<(String, FileType)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)?.take(MAX_ENTRIES + 3) {
        let entry = entry?;
        let name = entry.file_name().to_str().map_err(|_| Errno::ILSEQ)?;
        if matches!(name, "." | "..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kernel::file_type(&rustix::fs::statat(dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?),
            kind => kind,
        };
        names.push((name.to_owned(), kind));
    }
    Ok(names)
}
