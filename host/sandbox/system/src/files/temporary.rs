//! Removes temporary files at the end of a call: what it created under a reserved form of name and
//! didn't rename.
//!
//! A stopped guest can't tidy up after itself. So the view remembers what the call created under
//! such a name and keeps it open, so that nothing else can be taken for it. An object that was
//! created under another name never gets such a name and never comes to be below one. So the
//! clean-up removes only what calls have created; and the rules decide on every entry, as if the
//! guest removed it.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
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
    /// `O_PATH`. While it is open, no other object can have its inode.
    made: OwnedFd,
}

impl FileView {
    /// Whether there is room to remember another one. Asked before something is created.
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

    pub(super) fn remember_read(&self, found: &ResolvedObject) {
        let mut made = self.made();
        let mode = Mode::from_raw_mode(found.stat.st_mode & 0o777);
        match found.kind {
            FileType::Directory => made.read.directory = Some(mode),
            _ => made.read.file = Some(mode),
        }
    }

    /// Further limited by the process's umask. A file under or below a temporary name is a copy of
    /// the file that was last opened for reading, or replaces it, and takes its mode. WASI has no
    /// modes, and the copy of a script should run, that of a private file be private.
    pub(super) fn mode_of_new_file(&self, place: &DirEntryRef<'_>) -> Mode {
        let read = outermost(&place.path()).and_then(|_| self.made().read.file);
        read.unwrap_or(Mode::from_raw_mode(0o666))
    }

    /// The same for a directory, which its creator can always enter and fill.
    pub(super) fn mode_of_new_directory(&self, place: &DirEntryRef<'_>) -> Mode {
        let read = outermost(&place.path()).and_then(|_| self.made().read.directory);
        read.map_or(Mode::from_raw_mode(0o777), |mode| mode | Mode::RWXU)
    }

    /// Decides on a path under a temporary name of this call, without that name: the operator's
    /// globs are about the final name, which is decided on when the object gets it. `None` for
    /// every other path.
    pub(super) fn decide_temporary(
        &self,
        path: &Path,
        kind: Kind,
        access: Access,
    ) -> Option<Result<(), Refusal>> {
        let built = outermost(path)?;
        let folder = built.parent()?;
        if !self.is_made_by_call(built) {
            let found = rustix::fs::statat(CWD, built, AtFlags::SYMLINK_NOFOLLOW);
            let is_free = access == Access::Write && matches!(found, Err(Errno::NOENT));
            if !is_free {
                return None;
            }
        }
        let below = path.strip_prefix(built).ok()?;
        Some(if below.as_os_str().is_empty() {
            self.rules().decide(folder, Kind::Directory, access)
        } else {
            match self.rules().decide(&folder.join(below), kind, access) {
                // The call itself has put it there.
                Err(Refusal::NotInAllowRead) => Ok(()),
                decided => decided,
            }
        })
    }

    fn is_made_by_call(&self, built: &Path) -> bool {
        self.made().temporary.iter().any(|made| {
            built.file_name().is_some_and(|name| name == made.name.as_str())
                && kernel::real_path(made.parent.as_fd()).ok().as_deref() == built.parent()
                && made.has_its_name()
        })
    }

    /// Removes what the call has left under temporary names. For the end of a call, however it
    /// ends.
    ///
    /// A file that can't be removed stays under its temporary name.
    pub fn remove_temporary(&self) {
        // The rules have to know the files as the call's own until they are gone.
        let left = self.made().temporary.clone();
        for temporary in left.iter().filter(|left| left.has_its_name()) {
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
        if kind != FileType::Directory {
            return Ok(rustix::fs::unlinkat(
                &temporary.parent,
                temporary.name.as_str(),
                AtFlags::empty(),
            )?);
        }
        // The directory that was created, whatever its name leads to by now.
        let top = kernel::reopen(temporary.made.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut levels = vec![(Dir::new(top)?, path, CString::default())];
        while let Some((entries, path, _)) = levels.last_mut() {
            let Some(entry) = entries.next() else {
                let (.., name) = levels.pop().ok_or(Errno::INVAL)?;
                match levels.last() {
                    Some((parent, ..)) => {
                        rustix::fs::unlinkat(parent.fd()?, &name, AtFlags::REMOVEDIR)?;
                    }
                    None => rustix::fs::unlinkat(
                        &temporary.parent,
                        temporary.name.as_str(),
                        AtFlags::REMOVEDIR,
                    )?,
                }
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let leaf = name.to_str().map_err(|_| Errno::ILSEQ)?;
            let path = path.join(leaf);
            let below = match entry.file_type() {
                FileType::Directory | FileType::Unknown => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                    match kernel::open_beneath(
                        entries.fd()?,
                        leaf,
                        flags,
                        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
                    ) {
                        Err(Errno::NOTDIR | Errno::LOOP) => None,
                        below => Some(below?),
                    }
                }
                _ => None,
            };
            self.check(
                &path,
                if below.is_some() { FileType::Directory } else { FileType::RegularFile },
                Access::Write,
            )?;
            match below {
                None => rustix::fs::unlinkat(entries.fd()?, name, AtFlags::empty())?,
                Some(below) => {
                    levels.push((Dir::new(below)?, path, name.to_owned()));
                    if levels.len() > MAX_DEPTH {
                        return Err(Errno::NAMETOOLONG.into());
                    }
                }
            }
        }
        Ok(())
    }
}

impl Temporary {
    /// Whether its name still names it.
    fn has_its_name(&self) -> bool {
        let named = rustix::fs::statat(&self.parent, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        let made = rustix::fs::fstat(&self.made);
        matches!((named, made), (Ok(named), Ok(made)) if (named.st_dev, named.st_ino) == (made.st_dev, made.st_ino))
    }
}

/// Whether a temporary name starts here. An object below another temporary one is removed with it,
/// and stays with it if that gets its final name.
fn is_outermost(place: &DirEntryRef<'_>) -> bool {
    is_temporary(place.leaf) && outermost(&place.dir_path).is_none()
}

/// Whether something may move from one path to another: only objects that were created there may
/// come into a tree that is removed in the end.
pub(super) fn may_get_to(from: &Path, to: &Path) -> bool {
    outermost(to).is_none_or(|place| from.starts_with(place))
}

/// The path up to its first temporary name.
pub(super) fn outermost(path: &Path) -> Option<&Path> {
    let mut found = None;
    for above in path.ancestors() {
        if above.file_name().and_then(|name| name.to_str()).is_some_and(is_temporary) {
            found = Some(above);
        }
    }
    found
}

/// The reserved form: `.toolhold-`, sixteen hexadecimal digits, `.tmp`.
fn is_temporary(name: &str) -> bool {
    let digits = name.strip_prefix(".toolhold-").and_then(|rest| rest.strip_suffix(".tmp"));
    digits.is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}
