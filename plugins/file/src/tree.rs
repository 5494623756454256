//! Deletes and copies directories with everything in them. It works on handles, so it never follows
//! a link that replaces a directory meanwhile.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::temporary_name::is_temporary;

/// The greatest depth of a copy. Every level needs two open handles, and a call has few of them.
pub(crate) const MAX_DEPTH: usize = 64;

/// The number of bytes that are read at once: the most that the host moves in one call.
const CHUNK: usize = 256 * 1024;

/// The numbers of copied entries and bytes.
#[derive(Default)]
pub(crate) struct CopyCounts {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) links: u64,
    pub(crate) bytes: u64,
    /// The number of entries that weren't copied: links that may not be created, pipes, sockets and
    /// the like, and unfinished entries of another call.
    pub(crate) left_out: u64,
}

/// The options of a copy.
pub(crate) struct CopyOptions<'a> {
    /// The name of the copy itself. Finding it in the source means that a directory is copied into
    /// itself.
    pub(crate) own_name: &'a [u8],
    /// Whether every file is flushed to the disk. A move needs it, since it deletes the original.
    pub(crate) durable: bool,
    /// Called after each entry with the counts so far.
    pub(crate) progress: &'a mut dyn FnMut(&CopyCounts),
}

/// Deletes `path`, with everything below it if it is a directory. Links are deleted, not followed.
/// `removed` is called with the number of deleted entries so far.
pub(crate) fn remove(path: &Path, removed: &mut dyn FnMut(u64)) -> io::Result<u64> {
    let top = match open_directory(rustix::fs::CWD, path) {
        Err(Errno::NOTDIR | Errno::LOOP) => {
            rustix::fs::unlink(path)?;
            return Ok(1);
        }
        top => top?,
    };
    let mut count = 0;
    let mut levels = vec![(entries(&top)?, top, CString::default())];
    while let Some((entries, directory, name)) = levels.last_mut() {
        let Some((entry, kind)) = entries.pop() else {
            let name = std::mem::take(name);
            levels.pop();
            match levels.last() {
                Some((_, parent, _)) => rustix::fs::unlinkat(parent, &name, AtFlags::REMOVEDIR)?,
                None => rustix::fs::rmdir(path)?,
            }
            count += 1;
            continue;
        };
        // A link that has replaced a directory meanwhile is deleted as a link.
        let below = match kind {
            FileType::Directory => match open_directory(directory.as_fd(), &entry) {
                Err(Errno::NOTDIR | Errno::LOOP) => None,
                below => Some(below?),
            },
            _ => None,
        };
        match below {
            Some(below) => levels.push((self::entries(&below)?, below, entry)),
            None => {
                rustix::fs::unlinkat(&*directory, &entry, AtFlags::empty())?;
                count += 1;
            }
        }
        removed(count);
    }
    Ok(count)
}

/// Copies the content of the directory `source` to the empty directory `target`.
pub(crate) fn copy(
    source: OwnedFd,
    target: &Path,
    options: &mut CopyOptions<'_>,
) -> io::Result<CopyCounts> {
    struct Level {
        entries: Vec<(CString, FileType)>,
        source: OwnedFd,
        target: OwnedFd,
    }
    let target = open_directory(rustix::fs::CWD, target)?;
    let mut copied = CopyCounts { directories: 1, ..CopyCounts::default() };
    let mut buffer = vec![0; CHUNK];
    let mut levels = vec![Level { entries: entries(&source)?, source, target }];
    while let Some(level) = levels.last_mut() {
        let Some((name, kind)) = level.entries.pop() else {
            levels.pop();
            continue;
        };
        if name.to_bytes() == options.own_name {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "a directory can't be copied into itself",
            ));
        }
        match kind {
            _ if is_temporary(name.to_bytes()) => copied.left_out += 1,
            FileType::Directory => {
                let source = open_directory(level.source.as_fd(), &name)?;
                rustix::fs::mkdirat(&level.target, &name, Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
                let target = open_directory(level.target.as_fd(), &name)?;
                if levels.len() > MAX_DEPTH {
                    let message = format!(
                        "directories are nested deeper than {MAX_DEPTH}, which is the limit"
                    );
                    return Err(io::Error::new(ErrorKind::InvalidInput, message));
                }
                levels.push(Level { entries: entries(&source)?, source, target });
                copied.directories += 1;
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let from = rustix::fs::openat(&level.source, &name, flags, Mode::empty())?;
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let to =
                    rustix::fs::openat(&level.target, &name, flags, Mode::from_raw_mode(0o666))?;
                copied.bytes += copy_bytes(
                    &mut File::from(from),
                    &mut File::from(to),
                    &mut buffer,
                    options.durable,
                )?;
                copied.files += 1;
            }
            FileType::Symlink => {
                let points_to = rustix::fs::readlinkat(&level.source, &name, Vec::new())?;
                match rustix::fs::symlinkat(&*points_to, &level.target, &name) {
                    // The target isn't granted.
                    Err(Errno::PERM | Errno::ACCESS) => copied.left_out += 1,
                    made => {
                        made?;
                        copied.links += 1;
                    }
                }
            }
            _ => copied.left_out += 1,
        }
        (options.progress)(&copied);
    }
    Ok(copied)
}

/// Copies one file.
pub(crate) fn copy_file(from: &mut File, to: &mut File, durable: bool) -> io::Result<u64> {
    copy_bytes(from, to, &mut vec![0; CHUNK], durable)
}

fn copy_bytes(from: &mut File, to: &mut File, buffer: &mut [u8], durable: bool) -> io::Result<u64> {
    let mut bytes = 0;
    loop {
        let count = from.read(buffer)?;
        if count == 0 {
            break;
        }
        to.write_all(&buffer[..count])?;
        bytes += count as u64;
    }
    if durable {
        to.sync_all()?;
    }
    Ok(bytes)
}

/// Opens a directory. Fails if `name` is a link.
fn open_directory(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        parent,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn entries(directory: &OwnedFd) -> io::Result<Vec<(CString, FileType)>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => FileType::from_raw_mode(
                rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode,
            ),
            kind => kind,
        };
        entries.push((name.to_owned(), kind));
    }
    Ok(entries)
}
