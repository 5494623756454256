//! Reads the names and metadata of a directory's entries by handle, and opens the entries.
//!
//! Each entry below the root is opened by its name through the handle of its parent, without
//! following links. So if a name is replaced during the search, the name can't lead to a file
//! outside of the directory.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;

use toolhold_system::mounts;

/// The most bytes of names that are read from one directory: about a million names. All further
/// names count as one unreadable entry.
const MAX_NAMES: usize = 32 << 20;

/// Bytes of the buffer for one read of directory entries.
const SCRATCH: usize = 32 << 10;

/// How often an open that raced with a rename is tried.
const MAX_TRIES: usize = 16;

/// Names and kinds of the entries of a directory, without `.` and `..`.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The names, each NUL-terminated, without gaps.
    text: Vec<u8>,
    /// The position of each name in `text`, and its kind.
    entries: Vec<(u32, FileType)>,
    /// Whether a name begins with a dot. Without one, the directory has no ignore files.
    pub(super) any_hidden: bool,
}

impl Names {
    /// Reads the entries of a directory, with `buffer` as scratch space. The second value is false
    /// if entries may be missing.
    pub(super) fn read(dir: BorrowedFd<'_>, buffer: &mut [MaybeUninit<u8>]) -> (Self, bool) {
        let mut names = Self {
            text: Vec::with_capacity(512),
            entries: Vec::with_capacity(32),
            any_hidden: false,
        };
        let mut entries = RawDir::new(dir, buffer);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { return (names, false) };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if names.text.len() > MAX_NAMES {
                return (names, false);
            }
            let mut kind = entry.file_type();
            // Some file systems don't report the type here.
            if kind == FileType::Unknown
                && let Ok(status) = stat(dir, name)
            {
                kind = FileType::from_raw_mode(status.st_mode);
            }
            names.push(name, kind);
        }
        (names, true)
    }

    /// Returns the names of a directory with a single entry.
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
        // The cast loses nothing: `MAX_NAMES` is far below `u32::MAX`.
        self.entries.push((self.text.len() as u32, kind));
        self.text.extend_from_slice(name.to_bytes_with_nul());
        if name.to_bytes().starts_with(b".") {
            self.any_hidden = true;
        }
    }
}

/// Opens the directory `name` of `dir` for reading its entries.
pub(super) fn open_directory(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    open(dir, name, OFlags::DIRECTORY)
}

/// Opens the regular file `name` of `dir`, and returns it with its metadata. FIFOs and devices are
/// refused. Opening a FIFO doesn't block.
pub(super) fn open_file(dir: BorrowedFd<'_>, name: &CStr) -> Result<(OwnedFd, Stat), Errno> {
    let file = open(dir, name, OFlags::NOCTTY)?;
    let stat = rustix::fs::fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((file, stat)),
        _ => Err(Errno::NOTSUP),
    }
}

/// Returns the size of a file in bytes.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns the metadata of the entry `name` of `dir`. Doesn't follow links.
pub(super) fn stat(dir: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Reads the next bytes of a file into `buffer`. Returns their number, or 0 at the end of the file.
pub(super) fn read(file: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::read(file, &mut *buffer))?)
}

/// Checks whether the kernel reports `path` as the current path of a directory. Returns `false` if
/// the directory was moved or removed.
pub(super) fn is_at(dir: BorrowedFd<'_>, path: &[u8]) -> bool {
    static HANDLES: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let handles = HANDLES.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()
    });
    let Some(handles) = handles else { return false };
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let name = rustix::path::DecInt::new(dir.as_raw_fd());
    match rustix::fs::readlinkat_raw(handles, name, &mut buffer) {
        Ok((real, _)) => *real == *path,
        Err(_) => false,
    }
}

/// Opens the entry `name` of `dir` itself. Entries of the kernel's own file systems are refused.
fn open(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    for _ in 0..MAX_TRIES {
        match rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The entry is a mount point. The check below refuses file systems of the kernel.
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

/// Makes space for reading a directory's entries, in a buffer that is reused.
pub(super) fn scratch(buffer: &mut Vec<u8>) -> &mut [MaybeUninit<u8>] {
    buffer.clear();
    buffer.reserve(SCRATCH);
    buffer.spare_capacity_mut()
}
