//! Reads the names and metadata of a directory's entries, and opens the entries.
//!
//! Each entry below the root is opened through the handle of its parent, without following links.
//! So a name that a guest replaces during the search can't lead to a file outside of the directory.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;

use toolhold_system::mounts;

/// Bytes of names that are read from one directory: about a million names. All further names count
/// as one unreadable entry.
const MAX_NAMES: usize = 32 << 20;

const SCRATCH: usize = 32 << 10;

/// The expected bytes of names in a directory, and the expected number of names.
const EXPECTED_BYTES: usize = 512;
const EXPECTED_NAMES: usize = 32;

/// The kernel's limit for paths.
const PATH_MAX: usize = 4096;

/// Attempts to open an entry while other entries are renamed.
const MAX_ATTEMPTS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Names {
    /// The names, each with a NUL byte at its end.
    text: Vec<u8>,
    /// The offset of each name in `text`, and its kind.
    entries: Vec<(u32, FileType)>,
    /// Whether a name begins with a dot. If not, the directory has no ignore files.
    pub(super) any_hidden: bool,
}

impl Names {
    /// Reads the entries of a directory with `buffer` as scratch space. The second value is whether
    /// all entries were read.
    pub(super) fn read(dir: BorrowedFd<'_>, buffer: &mut [MaybeUninit<u8>]) -> (Self, bool) {
        let mut names = Self {
            text: Vec::with_capacity(EXPECTED_BYTES),
            entries: Vec::with_capacity(EXPECTED_NAMES),
            any_hidden: false,
        };
        let mut entries = RawDir::new(dir, buffer);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                let is_complete = false;
                return (names, is_complete);
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if names.text.len() > MAX_NAMES {
                let is_complete = false;
                return (names, is_complete);
            }
            let mut kind = entry.file_type();
            // Some file systems don't report the type.
            if kind == FileType::Unknown
                && let Ok(status) = stat(dir, name)
            {
                kind = FileType::from_raw_mode(status.st_mode);
            }
            names.push(name, kind);
        }
        let is_complete = true;
        (names, is_complete)
    }

    pub(super) fn single(name: &CStr, kind: FileType) -> Self {
        let mut names = Self::default();
        names.push(name, kind);
        names
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn kind(&self, index: usize) -> FileType {
        self.entries[index].1
    }

    pub(super) fn name(&self, index: usize) -> &CStr {
        let start = self.entries[index].0 as usize;
        CStr::from_bytes_until_nul(&self.text[start..]).unwrap_or_default()
    }

    fn push(&mut self, name: &CStr, kind: FileType) {
        // The offset fits, because `MAX_NAMES` is far below `u32::MAX`.
        self.entries.push((self.text.len() as u32, kind));
        self.text.extend_from_slice(name.to_bytes_with_nul());
        if name.to_bytes().starts_with(b".") {
            self.any_hidden = true;
        }
    }
}

pub(super) fn open_directory(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    open(dir, name, OFlags::DIRECTORY)
}

/// Opens the regular file `name` of `dir`, and returns its metadata. Refuses FIFOs and devices,
/// without waiting for a writer of a FIFO.
pub(super) fn open_file(dir: BorrowedFd<'_>, name: &CStr) -> Result<(OwnedFd, Stat), Errno> {
    let file = open(dir, name, OFlags::NOCTTY)?;
    let stat = rustix::fs::fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((file, stat)),
        _ => Err(Errno::NOTSUP),
    }
}

pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(super) fn stat(dir: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) fn read(file: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::read(file, &mut *buffer))?)
}

/// Returns whether the kernel still reports `path` as the path of a directory. Returns false if the
/// directory was moved or removed, or if `/proc` isn't mounted.
pub(super) fn is_at(dir: BorrowedFd<'_>, path: &[u8]) -> bool {
    static HANDLES: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let handles = HANDLES.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()
    });
    let Some(handles) = handles else { return false };
    let mut buffer = [MaybeUninit::uninit(); PATH_MAX];
    let name = rustix::path::DecInt::new(dir.as_raw_fd());
    match rustix::fs::readlinkat_raw(handles, name, &mut buffer) {
        Ok((real, _)) => *real == *path,
        Err(_) => false,
    }
}

/// Opens an entry without following links. Refuses entries of the kernel's own file systems.
fn open(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    for _ in 0..MAX_ATTEMPTS {
        match rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve) {
            // The kernel gives up if a directory on the way is renamed meanwhile, so try again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The entry is a mount point, so the next attempt may enter another file system. The
            // check below refuses file systems of the kernel.
            Err(Errno::XDEV) if resolve.contains(ResolveFlags::NO_XDEV) => {
                resolve.remove(ResolveFlags::NO_XDEV);
            }
            Err(errno) => return Err(errno),
            Ok(opened) => {
                let is_mounted = !resolve.contains(ResolveFlags::NO_XDEV);
                if is_mounted && mounts::is_kernels(&opened)? {
                    return Err(Errno::ACCESS);
                }
                return Ok(opened);
            }
        }
    }
    Err(Errno::AGAIN)
}

pub(super) fn scratch(buffer: &mut Vec<u8>) -> &mut [MaybeUninit<u8>] {
    buffer.clear();
    buffer.reserve(SCRATCH);
    buffer.spare_capacity_mut()
}
