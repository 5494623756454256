//! Asks the kernel to resolve names without side effects, and for the real paths of objects.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// Maximum number of attempts to resolve a name while directories above the object are renamed.
const MAX_ATTEMPTS: usize = 16;

/// The kernel's limit for paths.
pub(super) const PATH_MAX: usize = 4096;

/// The error if the kernel's `/proc` isn't mounted.
pub(super) const NO_PROC: Errno = Errno::NOSYS;

/// Finds `path` below `dir` without opening the object for use. Doesn't wait for FIFOs, doesn't
/// touch devices, and doesn't follow links out of `dir`. `follow` says whether a final link is
/// followed. Returns `XDEV` if the path leads out of `dir`.
pub(super) fn resolve(dir: BorrowedFd<'_>, path: &str, follow: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::PATH;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    open_beneath(dir, path, flags, ResolveFlags::empty())
}

/// Finds `path` like [`resolve`], but only in the kernel's cache and in the file system of `dir`,
/// because other file systems may be slow or never answer. Returns `AGAIN` for a path outside of
/// the cache, and always before Linux 5.12. Returns `XDEV` for another file system.
pub(super) fn resolve_cached(
    dir: BorrowedFd<'_>,
    path: &str,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV
        | ResolveFlags::CACHED;
    match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
        // This kernel doesn't support `ResolveFlags::CACHED`.
        Err(Errno::INVAL) => Err(Errno::AGAIN),
        result => result,
    }
}

/// Opens `path` below `dir`, but never out of `dir` or through the magic links of `/proc`.
pub(super) fn open_beneath(
    dir: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    extra: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    if path.len() > PATH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | extra;
    for _ in 0..MAX_ATTEMPTS {
        match rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // The kernel gives up if a directory on the way is renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Gets the path of an open object from the kernel, with all links resolved. Returns `NOENT` for an
/// object whose name was removed, and [`NO_PROC`] if `/proc` isn't mounted.
pub(super) fn real_path(handle: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let path = path_by_proc(handle)?;
    let looks_removed = path.as_os_str().as_encoded_bytes().ends_with(GONE);
    // A real file name may also end with this suffix.
    if looks_removed && !is_named(handle, &path) {
        return Err(Errno::NOENT);
    }
    Ok(path)
}

/// Like [`real_path`], but without a lookup, which may block. Returns `AGAIN` if a lookup is
/// needed.
pub(super) fn real_path_at_once(handle: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let path = path_by_proc(handle)?;
    if path.as_os_str().as_encoded_bytes().ends_with(GONE) { Err(Errno::AGAIN) } else { Ok(path) }
}

/// Returns the path of an open object from its entry in `/proc/self/fd`.
fn path_by_proc(handle: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let name = fd_name(handle);
    let usual_length = 256;
    let buffer = Vec::with_capacity(usual_length);
    let target = rustix::fs::readlinkat(proc_fds()?, name.as_str(), buffer)?;
    let path = PathBuf::from(OsString::from_vec(target.into_bytes()));
    // An object outside of file systems, such as `pipe:[1]`, has no path for the rules. An object
    // outside of the process's root directory has no path either.
    if path.is_absolute() { Ok(path) } else { Err(Errno::NOENT) }
}

/// The kernel adds this suffix to the path of an object whose name was removed. The rules can't
/// decide on this path, because the object may have another name.
const GONE: &[u8] = b" (deleted)";

/// Checks whether a path still names an open object, because a real file name may also end with
/// [`GONE`].
fn is_named(handle: BorrowedFd<'_>, path: &Path) -> bool {
    let named = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    let (Ok(named), Ok(held)) = (named, rustix::fs::fstat(handle)) else { return false };
    named.st_dev == held.st_dev && named.st_ino == held.st_ino
}

/// Opens the object of an `O_PATH` handle for use, even if its name has got another object
/// meanwhile.
pub(super) fn reopen(handle: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    // The type was checked, so the flags against waiting and terminals are only a second safeguard.
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(proc_fds()?, fd_name(handle).as_str(), flags, Mode::empty())
}

/// Returns the name below [`proc_fds`] by which path-based system calls reach the object of a
/// handle.
pub(super) fn fd_name(handle: BorrowedFd<'_>) -> String {
    handle.as_raw_fd().to_string()
}

/// Returns the directory `/proc/self/fd`. Opens it once, and checks that it is in the kernel's own
/// procfs.
pub(super) fn proc_fds() -> Result<BorrowedFd<'static>, Errno> {
    const PROC_SUPER_MAGIC: i64 = 0x9fa0;
    static FDS: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let fds = FDS.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fds = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()?;
        let is_proc = rustix::fs::fstatfs(&fds).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC);
        if is_proc { Some(fds) } else { None }
    });
    fds.as_ref().map(AsFd::as_fd).ok_or(NO_PROC)
}

/// Checks whether the kernel's own `/proc` is mounted. No directory can be granted without `/proc`,
/// because the real paths of files are unknown.
pub fn proc_works() -> bool {
    proc_fds().is_ok()
}

/// Checks whether the kernel can resolve names below a directory without leaving the directory.
///
/// # Errors
///
/// Returns `NOSYS` before Linux 5.6, and `PERM` if a container's filter refuses `openat2`.
pub fn resolving_works() -> std::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty())?;
    let follow = true;
    resolve(root.as_fd(), ".", follow)?;
    match resolve(root.as_fd(), "..", follow) {
        Err(Errno::XDEV) => Ok(()),
        Ok(_) => {
            Err(std::io::Error::other("the kernel resolved a name to a path outside its directory"))
        }
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
