//! Reads the entries of a directory that the call may read.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{Dir, FileType, OFlags, ResolveFlags};
use toolhold_contract::Access;
use toolhold_policy::files::Kind;

use super::{FileError, FileView, kernel};

/// The entries of one directory. Each entry is read when it is requested.
#[derive(Debug)]
pub struct Listing {
    view: FileView,
    dir: Dir,
    path: PathBuf,
    hidden: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingEntry {
    /// The name without its folder.
    pub name: String,
    /// The type of the entry. [`FileType::Unknown`] if the file system doesn't store it in the
    /// directory.
    pub kind: FileType,
}

impl FileView {
    /// Starts to read the entries of an open directory. The rules decide again, because the
    /// directory may have been moved since it was opened.
    ///
    /// # Errors
    ///
    /// Returns a rule's refusal, or the kernel's error.
    pub fn list(&self, dir: BorrowedFd<'_>) -> Result<Listing, FileError> {
        let handle = kernel::open_beneath(
            dir,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY,
            ResolveFlags::NO_SYMLINKS,
        )?;
        let path = kernel::real_path(handle.as_fd())?;
        self.check(&path, FileType::Directory, Access::Read)?;
        self.record_at(path.as_os_str().as_bytes(), handle.as_fd());
        Ok(Listing { view: self.clone(), dir: Dir::new(handle)?, path, hidden: 0 })
    }
}

impl Listing {
    /// Returns the number of entries that were omitted so far, because a rule denies them or their
    /// names aren't UTF-8.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }
}

impl Iterator for Listing {
    type Item = Result<ListingEntry, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.dir.next()? {
                Ok(entry) => entry,
                Err(errno) => {
                    self.view.mark_incomplete();
                    return Some(Err(errno.into()));
                }
            };
            let kind = entry.file_type();
            // Rules can't decide on a name that isn't UTF-8.
            let Ok(name) = entry.file_name().to_str() else {
                self.hidden += 1;
                continue;
            };
            if matches!(name, "." | "..") {
                continue;
            }
            let rule_kind = if kind == FileType::Directory { Kind::Directory } else { Kind::Other };
            if self.view.leaves_out(&self.path.join(name), rule_kind) {
                self.hidden += 1;
                continue;
            }
            return Some(Ok(ListingEntry { name: name.to_owned(), kind }));
        }
    }
}
