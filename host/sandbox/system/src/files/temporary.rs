//! Removes temporary files at the end of a call: files that the call created under reserved names
//! and didn't rename.
//!
//! A stopped guest can't remove its own files, so the view remembers the objects that a call
//! created under reserved names. The view keeps these objects open, so no other object gets their
//! identity. An object with another name can't be moved to or below a reserved name, so the
//! clean-up removes only objects that calls created. The rules decide on every entry, as if the
//! guest removed it.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use toolhold_contract::Access;
use toolhold_policy::files::{Kind, Refusal};

use super::{DirEntryRef, FileError, FileView, ResolvedObject, kernel};

/// Maximum number of temporary names of a call at a time, each with two open handles. The creation
/// of a further name fails.
const MAX_TEMPORARY: usize = 16;

/// Maximum number of levels that the clean-up enters, each with an open handle.
const MAX_DEPTH: usize = 128;

#[derive(Debug)]
pub(super) struct Temporary {
    parent: OwnedFd,
    name: String,
    /// An `O_PATH` handle. While it is open, no other object can have the same inode.
    object: OwnedFd,
}

impl FileView {
    /// Returns `MFILE` if the call has too many temporary names to create another one. Forgets
    /// names that the call no longer uses.
    pub(super) fn check_temporary_limit(&self, place: &DirEntryRef<'_>) -> Result<(), FileError> {
        if !is_outermost(place) {
            return Ok(());
        }
        let mut objects = self.call_objects();
        objects.temporary.retain(|temporary| temporary.has_its_name());
        if objects.temporary.len() < MAX_TEMPORARY { Ok(()) } else { Err(Errno::MFILE.into()) }
    }

    /// Remembers a new object with a temporary name for its removal at the end of the call.
    pub(super) fn remember_temporary(&self, place: &DirEntryRef<'_>) -> Result<(), FileError> {
        if is_outermost(place) {
            let lowest_descriptor = 0;
            let parent = rustix::io::fcntl_dupfd_cloexec(&place.dir, lowest_descriptor)?;
            let follow = false;
            let object = kernel::resolve(place.dir.as_fd(), place.leaf, follow)?;
            let temporary = Temporary { parent, name: place.leaf.to_owned(), object };
            self.call_objects().temporary.push(Arc::new(temporary));
        }
        Ok(())
    }

    /// Remembers the mode of a file or directory that was opened for reading. The next temporary
    /// file or directory gets the same mode.
    pub(super) fn remember_read(&self, found: &ResolvedObject) {
        let mut objects = self.call_objects();
        let permission_bits = 0o777;
        let mode = Mode::from_raw_mode(found.stat.st_mode & permission_bits);
        match found.kind {
            FileType::Directory => objects.read.directory = Some(mode),
            _ => objects.read.file = Some(mode),
        }
    }

    /// Returns the mode of a new file, before the umask.
    ///
    /// A temporary file, or a file below a temporary folder, is probably a copy or a new version of
    /// the file that was last opened for reading, so it gets the same mode. WASI has no modes, but
    /// the copy of a script should be executable, and the copy of a private file should be private.
    pub(super) fn mode_of_new_file(&self, place: &DirEntryRef<'_>) -> Mode {
        let is_temporary = outermost_temporary(&place.path()).is_some();
        if is_temporary && let Some(mode) = self.call_objects().read.file {
            return mode;
        }
        Mode::from_raw_mode(0o666)
    }

    /// Returns the mode of a new directory like [`mode_of_new_file`](Self::mode_of_new_file). The
    /// owner of the directory can always enter and fill it.
    pub(super) fn mode_of_new_directory(&self, place: &DirEntryRef<'_>) -> Mode {
        let is_temporary = outermost_temporary(&place.path()).is_some();
        if is_temporary && let Some(mode) = self.call_objects().read.directory {
            return mode | Mode::RWXU;
        }
        Mode::from_raw_mode(0o777)
    }

    /// Decides on a path at or below a temporary name of this call. The name itself gets the
    /// decision on its folder. A path below gets the decision on the path without the temporary
    /// name. Returns `None` for other paths.
    pub(super) fn decide_temporary(
        &self,
        path: &Path,
        kind: Kind,
        access: Access,
    ) -> Option<Result<(), Refusal>> {
        let temporary = outermost_temporary(path)?;
        let folder = temporary.parent()?;
        if !self.is_made_by_call(temporary) {
            let stat = rustix::fs::statat(CWD, temporary, AtFlags::SYMLINK_NOFOLLOW);
            // A free name becomes a temporary name of this call when the call creates an object.
            let is_free = matches!(stat, Err(Errno::NOENT));
            let may_become_temporary = is_free && access == Access::Write;
            if !may_become_temporary {
                return None;
            }
        }
        let below = path.strip_prefix(temporary).ok()?;
        if below.as_os_str().is_empty() {
            return Some(self.rules().decide(folder, Kind::Directory, access));
        }
        match self.rules().decide(&folder.join(below), kind, access) {
            // The call itself created this path, so it may read the path.
            Err(Refusal::NotInAllowRead) => Some(Ok(())),
            decision => Some(decision),
        }
    }

    /// Checks whether this call created the object at a temporary path.
    fn is_made_by_call(&self, path: &Path) -> bool {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
        for temporary in &self.call_objects().temporary {
            if name != temporary.name.as_str() {
                continue;
            }
            let is_in_parent =
                kernel::real_path(temporary.parent.as_fd()).is_ok_and(|real| real == parent);
            if is_in_parent && temporary.has_its_name() {
                return true;
            }
        }
        false
    }

    /// Removes the remaining objects under temporary names at the end of the call, even if the call
    /// was stopped. Skips objects that can't be removed.
    pub fn remove_temporary(&self) {
        // The list is cloned, because the rules must recognise the files as the call's own until
        // the removal.
        let remaining = self.call_objects().temporary.clone();
        for temporary in remaining.iter().filter(|temporary| temporary.has_its_name()) {
            // The call has ended, so no caller receives an error.
            let _ = self.remove_tree(temporary);
        }
        self.call_objects().temporary.clear();
    }

    /// Removes an object with a temporary name, and everything below it.
    fn remove_tree(&self, temporary: &Temporary) -> Result<(), FileError> {
        let stat = rustix::fs::fstat(&temporary.object)?;
        let path = kernel::real_path(temporary.parent.as_fd())?.join(&temporary.name);
        let kind = kernel::file_type(&stat);
        self.check(&path, kind, Access::Write)?;
        let parent = &temporary.parent;
        let name = temporary.name.as_str();
        if kind != FileType::Directory {
            return Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?);
        }
        // The handle opens the directory that the call created, even if its name has got another
        // object.
        let top = kernel::reopen(temporary.object.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.remove_content(top, path)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes everything in the directory `top` at `path`. The open levels are in a list, because
    /// recursion could overflow the stack in a deep tree.
    fn remove_content(&self, top: OwnedFd, path: PathBuf) -> Result<(), FileError> {
        let mut levels = vec![Level { entries: Dir::new(top)?, path, name: CString::default() }];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.next() else {
                let name = std::mem::take(&mut level.name);
                levels.pop();
                if let Some(parent) = levels.last() {
                    rustix::fs::unlinkat(parent.entries.fd()?, &name, AtFlags::REMOVEDIR)?;
                }
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let leaf = name.to_str().map_err(|_| Errno::ILSEQ)?;
            let path = level.path.join(leaf);
            match open_directory(&level.entries, leaf, entry.file_type())? {
                None => {
                    self.check(&path, FileType::RegularFile, Access::Write)?;
                    rustix::fs::unlinkat(level.entries.fd()?, name, AtFlags::empty())?;
                }
                Some(below) => {
                    self.check(&path, FileType::Directory, Access::Write)?;
                    let entries = Dir::new(below)?;
                    levels.push(Level { entries, path, name: name.to_owned() });
                    if levels.len() > MAX_DEPTH {
                        return Err(Errno::NAMETOOLONG.into());
                    }
                }
            }
        }
        Ok(())
    }
}

struct Level {
    entries: Dir,
    path: PathBuf,
    /// The name in the parent directory. Empty for the first level.
    name: CString,
}

/// Opens an entry if it is a directory. Returns `None` for any other object.
fn open_directory(parent: &Dir, leaf: &str, kind: FileType) -> Result<Option<OwnedFd>, Errno> {
    if !matches!(kind, FileType::Directory | FileType::Unknown) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match kernel::open_beneath(parent.fd()?, leaf, flags, resolve) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

impl Temporary {
    /// Checks whether the name still belongs to the object that the call created.
    fn has_its_name(&self) -> bool {
        let named = rustix::fs::statat(&self.parent, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(named), Ok(object)) = (named, rustix::fs::fstat(&self.object)) else {
            return false;
        };
        named.st_dev == object.st_dev && named.st_ino == object.st_ino
    }
}

/// Checks whether a name is the outermost temporary name of its path. Inner objects are removed or
/// renamed together with the outermost name.
fn is_outermost(place: &DirEntryRef<'_>) -> bool {
    is_temporary(place.leaf) && outermost_temporary(&place.dir_path).is_none()
}

/// Checks whether an object may move from one path to another. Other objects must not move into a
/// temporary tree, because the tree is removed at the end of the call.
pub(super) fn may_get_to(from: &Path, to: &Path) -> bool {
    match outermost_temporary(to) {
        Some(temporary) => from.starts_with(temporary),
        None => true,
    }
}

/// Returns the path up to its first temporary name, or `None` without a temporary name.
pub(super) fn outermost_temporary(path: &Path) -> Option<&Path> {
    let mut last_match = None;
    // The loop goes up to the root, so the last match is the outermost name.
    for above in path.ancestors() {
        let name = above.file_name().and_then(|name| name.to_str());
        if name.is_some_and(is_temporary) {
            last_match = Some(above);
        }
    }
    last_match
}

/// Checks whether a name has the reserved form: `.toolhold-`, sixteen hexadecimal digits, `.tmp`.
fn is_temporary(name: &str) -> bool {
    let Some(name) = name.strip_prefix(".toolhold-") else { return false };
    let Some(digits) = name.strip_suffix(".tmp") else { return false };
    digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}
