//! Reads a directory's entries, except those that the call may not read.

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
    /// The last component.
    pub name: String,
    /// The type in the directory's entry. [`FileType::Unknown`] on file systems that don't store
    /// it.
    pub kind: FileType,
}

impl FileView {
    /// Starts to read the entries of an open directory. The rules decide again, because the
    /// directory may have moved after it was opened.
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
    /// Returns the number of entries omitted so far, because a rule refuses them or their names
    /// aren't UTF-8.
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
