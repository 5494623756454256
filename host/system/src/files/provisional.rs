//! What a call builds beside its place, under a name of a reserved form, and did not come to name:
//! it is removed when the call ends.
//!
//! A guest that is stopped can't tidy up after itself. So the view remembers what the call made
//! under such a name, and holds on to it, so that nothing else can pass for it. Nothing that was
//! made under another name gets such a name or comes to lie below one. So the clean-up removes only
//! what calls have made; and the rules decide on every entry, as if the guest removed it.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use berth_contract::Access;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{FileError, FileView, Place, ResolvedObject, kernel};

/// How many of them a call may have at a time. Each keeps two handles open.
const MAX_PROVISIONAL: usize = 16;

/// How deep the clean-up goes. Every level keeps a handle open.
const MAX_DEPTH: usize = 128;

/// Something under a provisional name.
#[derive(Debug)]
pub(super) struct Provisional {
    parent: OwnedFd,
    name: String,
    /// `O_PATH`. While it is open, nothing else has its inode.
    made: OwnedFd,
}

impl FileView {
    /// Has to be asked before something is made: whether there is room to remember it.
    pub(super) fn expect_provisional(&self, place: &Place<'_>) -> Result<(), FileError> {
        if !is_outermost(place) {
            return Ok(());
        }
        let mut made = self.made();
        made.provisional.retain(Provisional::is_there);
        if made.provisional.len() < MAX_PROVISIONAL { Ok(()) } else { Err(Errno::MFILE.into()) }
    }

    /// Remembers what this call has just made, where its name says that it is provisional.
    pub(super) fn remember_provisional(&self, place: &Place<'_>) -> Result<(), FileError> {
        if is_outermost(place) {
            let parent = rustix::io::fcntl_dupfd_cloexec(&place.dir, 0)?;
            let made = kernel::resolve(place.dir.as_fd(), place.leaf, false)?;
            self.made().provisional.push(Provisional { parent, name: place.leaf.to_owned(), made });
        }
        Ok(())
    }

    pub(super) fn remember_read(&self, found: &ResolvedObject) {
        let (mut made, mode) = (self.made(), Mode::from_raw_mode(found.stat.st_mode & 0o777));
        match found.kind {
            FileType::Directory => made.read.directory = Some(mode),
            _ => made.read.file = Some(mode),
        }
    }

    /// Less the process's umask. What is made under or below a provisional name is a copy of, or in
    /// place of, what was opened last for reading, and takes its mode: WASI has no modes, and a
    /// copy of a script should run, that of a private file be private.
    pub(super) fn mode_of_new_file(&self, place: &Place<'_>) -> Mode {
        let read = outermost(&place.path()).and_then(|_| self.made().read.file);
        read.unwrap_or(Mode::from_raw_mode(0o666))
    }

    /// The same for a directory, which its maker can enter and fill in any case.
    pub(super) fn mode_of_new_directory(&self, place: &Place<'_>) -> Mode {
        let read = outermost(&place.path()).and_then(|_| self.made().read.directory);
        read.map_or(Mode::from_raw_mode(0o777), |mode| mode | Mode::RWXU)
    }

    /// Removes what the call has left under provisional names. For the end of a call, however it
    /// came to it.
    ///
    /// What can't be removed stays, under its provisional name.
    pub fn remove_provisional(&self) {
        let left = std::mem::take(&mut self.made().provisional);
        for provisional in left.iter().filter(|left| left.is_there()) {
            // There is nobody to tell, and nothing else to do.
            let _ = self.remove_tree(provisional);
        }
    }

    fn remove_tree(&self, provisional: &Provisional) -> Result<(), FileError> {
        let stat = rustix::fs::fstat(&provisional.made)?;
        let path = kernel::real_path(provisional.parent.as_fd())?.join(&provisional.name);
        let kind = kernel::file_type(&stat);
        self.check(&path, kind, Access::Write)?;
        if kind != FileType::Directory {
            return Ok(rustix::fs::unlinkat(
                &provisional.parent,
                provisional.name.as_str(),
                AtFlags::empty(),
            )?);
        }
        // The directory that was made, whatever has its name by now.
        let top = kernel::reopen(provisional.made.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut levels = vec![(Dir::new(top)?, path, CString::default())];
        while let Some((entries, path, _)) = levels.last_mut() {
            let Some(entry) = entries.next() else {
                let (.., name) = levels.pop().ok_or(Errno::INVAL)?;
                match levels.last() {
                    Some((parent, ..)) => {
                        rustix::fs::unlinkat(parent.fd()?, &name, AtFlags::REMOVEDIR)?;
                    }
                    None => rustix::fs::unlinkat(
                        &provisional.parent,
                        provisional.name.as_str(),
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

impl Provisional {
    /// Whether its name still names it.
    fn is_there(&self) -> bool {
        let named = rustix::fs::statat(&self.parent, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        let made = rustix::fs::fstat(&self.made);
        matches!((named, made), (Ok(named), Ok(made)) if (named.st_dev, named.st_ino) == (made.st_dev, made.st_ino))
    }
}

/// Whether a provisional name begins here. What is below another goes with that, and stays with it
/// where that gets its name.
fn is_outermost(place: &Place<'_>) -> bool {
    is_provisional(place.leaf) && outermost(&place.dir_path).is_none()
}

/// Whether something may get from one path to another: into what is removed in the end comes only
/// what was made there.
pub(super) fn may_get_to(from: &Path, to: &Path) -> bool {
    outermost(to).is_none_or(|place| from.starts_with(place))
}

/// The path down to the first provisional name in it.
pub(super) fn outermost(path: &Path) -> Option<&Path> {
    let provisional =
        |part: &Path| part.file_name().and_then(|name| name.to_str()).is_some_and(is_provisional);
    let mut found = None;
    for above in path.ancestors() {
        if provisional(above) {
            found = Some(above);
        }
    }
    found
}

/// The reserved form: `.berth-`, sixteen hexadecimal digits, `.tmp`.
fn is_provisional(name: &str) -> bool {
    let digits = name.strip_prefix(".berth-").and_then(|rest| rest.strip_suffix(".tmp"));
    digits.is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}
