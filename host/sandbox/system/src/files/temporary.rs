//! Removes temporary files at the end of a call. These are files that the call created under
//! reserved names and didn't rename.
//!
//! A stopped guest can't remove its own files. So the view remembers the objects that the call
//! created under reserved names, and keeps them open, so that no other object gets their identity.
//! An object that was created under another name can't be moved to a reserved name or below one. So
//! the clean-up removes only objects that calls have created. The rules decide on every entry, as
//! if the guest removed it.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use toolhold_contract::Access;
use toolhold_policy::files::{Kind, Refusal};

use super::{DirEntryRef, FileError, FileView, ResolvedObject, kernel};

/// Temporary names of a call at a time. Each keeps two handles open.
const MAX_TEMPORARY: usize = 16;

/// Levels that the clean-up enters. Every level keeps a handle open.
const MAX_DEPTH: usize = 128;

/// An object under a temporary name.
#[derive(Debug)]
pub(super) struct Temporary {
    parent: OwnedFd,
    name: String,
    /// An `O_PATH` handle. While the handle is open, no other object can have the same inode.
    made: OwnedFd,
}

impl FileView {
    /// Checks before the creation of an object whether another temporary name can be remembered.
    ///
    /// # Errors
    ///
    /// `MFILE` if too many names are remembered.
    pub(super) fn expect_temporary(&self, place: &DirEntryRef<'_>) -> Result<(), FileError> {
        if !is_outermost(place) {
            return Ok(());
        }
        let mut made = self.made();
        made.temporary.retain(|temporary| temporary.has_its_name());
        if made.temporary.len() < MAX_TEMPORARY { Ok(()) } else { Err(Errno::MFILE.into()) }
    }

    /// Remembers a new object of this call, if its name is temporary.
    pub(super) fn remember_temporary(&self, place: &DirEntryRef<'_>) -> Result<(), FileError> {
        if is_outermost(place) {
            let parent = rustix::io::fcntl_dupfd_cloexec(&place.dir, 0)?;
            let made = kernel::resolve(place.dir.as_fd(), place.leaf, false)?;
            let temporary = Temporary { parent, name: place.leaf.to_owned(), made };
            self.made().temporary.push(Arc::new(temporary));
        }
        Ok(())
    }

    /// Remembers the mode of an object that the call has opened for reading.
    pub(super) fn remember_read(&self, found: &ResolvedObject) {
        let mut made = self.made();
        let mode = Mode::from_raw_mode(found.stat.st_mode & 0o777);
        match found.kind {
            FileType::Directory => made.read.directory = Some(mode),
            _ => made.read.file = Some(mode),
        }
    }

    /// Returns the mode of a new file, which the process's umask limits further.
    ///
    /// A file under or below a temporary name is probably a copy of the file that was last opened
    /// for reading, or its replacement, so it gets the same mode. WASI has no modes, but the copy
    /// of a script should be executable, and the copy of a private file should be private.
    pub(super) fn mode_of_new_file(&self, place: &DirEntryRef<'_>) -> Mode {
        let is_temporary = outermost(&place.path()).is_some();
        if is_temporary && let Some(mode) = self.made().read.file {
            return mode;
        }
        Mode::from_raw_mode(0o666)
    }

    /// Returns the mode of a new directory like [`mode_of_new_file`](Self::mode_of_new_file). The
    /// creator can always enter and fill the directory.
    pub(super) fn mode_of_new_directory(&self, place: &DirEntryRef<'_>) -> Mode {
        let is_temporary = outermost(&place.path()).is_some();
        if is_temporary && let Some(mode) = self.made().read.directory {
            return mode | Mode::RWXU;
        }
        Mode::from_raw_mode(0o777)
    }

    /// Decides on a path under a temporary name of this call, without that name. The globs apply to
    /// the final name, when the object gets it. Returns `None` for every other path.
    pub(super) fn decide_temporary(
        &self,
        path: &Path,
        kind: Kind,
        access: Access,
    ) -> Option<Result<(), Refusal>> {
        let temporary = outermost(path)?;
        let folder = temporary.parent()?;
        if !self.is_made_by_call(temporary) {
            let stat = rustix::fs::statat(CWD, temporary, AtFlags::SYMLINK_NOFOLLOW);
            let is_free = matches!(stat, Err(Errno::NOENT));
            if access != Access::Write || !is_free {
                return None;
            }
        }
        let below = path.strip_prefix(temporary).ok()?;
        if below.as_os_str().is_empty() {
            return Some(self.rules().decide(folder, Kind::Directory, access));
        }
        match self.rules().decide(&folder.join(below), kind, access) {
            // The call itself has created this path.
            Err(Refusal::NotInAllowRead) => Some(Ok(())),
            decision => Some(decision),
        }
    }

    /// Checks whether the call has created the object of a temporary path.
    fn is_made_by_call(&self, path: &Path) -> bool {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
        self.made().temporary.iter().any(|made| {
            name == made.name.as_str()
                && kernel::real_path(made.parent.as_fd()).is_ok_and(|real| real == parent)
                && made.has_its_name()
        })
    }

    /// Removes the objects that remain under temporary names at the end of the call, even if the
    /// call was stopped.
    ///
    /// A file that can't be removed stays under its temporary name.
    pub fn remove_temporary(&self) {
        // The list is cloned. The rules must recognise the files as the call's own until they are
        // removed.
        let left_behind = self.made().temporary.clone();
        for temporary in left_behind.iter().filter(|temporary| temporary.has_its_name()) {
            // An error can't be reported, and has no other remedy.
            let _ = self.remove_tree(temporary);
        }
        self.made().temporary.clear();
    }

    fn remove_tree(&self, temporary: &Temporary) -> Result<(), FileError> {
        let stat = rustix::fs::fstat(&temporary.made)?;
        let path = kernel::real_path(temporary.parent.as_fd())?.join(&temporary.name);
        let kind = kernel::file_type(&stat);
        self.check(&path, kind, Access::Write)?;
        let parent = &temporary.parent;
        let name = temporary.name.as_str();
        if kind != FileType::Directory {
            return Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?);
        }
        // This opens the directory that the call created, even if its name has another object by
        // now.
        let top = kernel::reopen(temporary.made.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.remove_content(top, path)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes everything in the directory `top`, whose path is `path`. Doesn't recurse, so that a
    /// deep tree can't overflow the stack.
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

/// A directory whose content is removed.
struct Level {
    entries: Dir,
    path: PathBuf,
    /// The name in the parent directory, which is empty for the first level.
    name: CString,
}

/// Opens an entry of a directory. Returns `None` if the entry isn't a directory.
fn open_directory(parent: &Dir, leaf: &str, kind: FileType) -> Result<Option<OwnedFd>, Errno> {
    if !matches!(kind, FileType::Directory | FileType::Unknown) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let inside = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match kernel::open_beneath(parent.fd()?, leaf, flags, inside) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

impl Temporary {
    /// Checks whether the name still leads to the object that the call has created.
    fn has_its_name(&self) -> bool {
        let named = rustix::fs::statat(&self.parent, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(named), Ok(made)) = (named, rustix::fs::fstat(&self.made)) else { return false };
        named.st_dev == made.st_dev && named.st_ino == made.st_ino
    }
}

/// Checks whether the place is the outermost temporary name of its path. An object below another
/// temporary name is removed together with it, or stays in place when it gets its final name.
fn is_outermost(place: &DirEntryRef<'_>) -> bool {
    is_temporary(place.leaf) && outermost(&place.dir_path).is_none()
}

/// Checks whether an object may move from one path to another. A tree that is removed at the end
/// may only contain objects that were created in it.
pub(super) fn may_get_to(from: &Path, to: &Path) -> bool {
    match outermost(to) {
        Some(temporary) => from.starts_with(temporary),
        None => true,
    }
}

/// Returns the path up to its first temporary name, or `None` if no name in it is temporary.
pub(super) fn outermost(path: &Path) -> Option<&Path> {
    let mut outermost = None;
    // The loop goes from the path itself up to the root, so the last match is the outermost name.
    for above in path.ancestors() {
        let name = above.file_name().and_then(|name| name.to_str());
        if name.is_some_and(is_temporary) {
            outermost = Some(above);
        }
    }
    outermost
}

/// Checks whether a name has the reserved form: `.toolhold-`, sixteen hexadecimal digits, `.tmp`.
fn is_temporary(name: &str) -> bool {
    let Some(name) = name.strip_prefix(".toolhold-") else { return false };
    let Some(digits) = name.strip_suffix(".tmp") else { return false };
    digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}
