//! Whether a directory may be renamed as a whole: nothing below it may be refused under its old or its new name.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use berth_contract::Access;
use berth_policy::files::Refusal;
use rustix::fs::{Dir, FileType, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{FileError, FileView, Place, kernel};

/// How many entries below a directory are looked at. A directory with more is refused: the check would take too long.
const MAX_ENTRIES: usize = 10_000;

/// How deep below a directory is looked.
const MAX_DEPTH: usize = 128;

impl FileView {
    /// Checks everything below `source` for being renamed to `target`.
    pub(super) fn check_below(&self, source: &Place<'_>, target: &Path) -> Result<(), FileError> {
        if let Some(refusal) = self.rules().refused_below(&source.path()) {
            return Err(self.denied(refusal, &source.path(), Access::Write));
        }
        let mut seen = 0;
        let mut pending = vec![(enter(source.dir.as_fd(), source.leaf)?, source.path(), target.to_owned(), 0)];
        while let Some((handle, old, new, depth)) = pending.pop() {
            for (name, kind) in names(&handle)? {
                seen += 1;
                if seen > MAX_ENTRIES || depth > MAX_DEPTH {
                    return Err(self.denied(Refusal::TooMuchBelow, &source.path(), Access::Write));
                }
                if kind == FileType::Symlink {
                    self.check_moved_link(handle.as_fd(), &name, &old, &new)?;
                }
                let (old, new) = (old.join(&name), new.join(&name));
                for path in [&old, &new] {
                    self.check(path, kind, Access::Write)?;
                    self.check(path, kind, Access::Read)?;
                }
                if kind == FileType::Directory {
                    pending.push((enter(handle.as_fd(), &name)?, old, new, depth + 1));
                }
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
