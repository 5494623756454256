//! Makes the requests to the kernel: resolves a name without side effects, and finds the real path
//! of the result.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// How often a resolution is retried after a race with a rename above the object.
const RACES: usize = 16;

/// The longest path, the kernel's own limit.
pub(super) const PATH_MAX: usize = 4096;

/// The error if `/proc` isn't the kernel's.
pub(super) const NO_PROC: Errno = Errno::NOSYS;

/// Finds `path` below `dir` without opening the object for use. FIFOs don't block, devices aren't
/// touched, and links can't lead out of `dir`. `follow`: whether a final link is followed.
///
/// # Errors
///
/// `XDEV` if the path leads out of `dir`, otherwise the kernel's error.
pub(super) fn resolve(dir: BorrowedFd<'_>, path: &str, follow: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::PATH;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    open_beneath(dir, path, flags, ResolveFlags::empty())
}

/// Finds `path` like [`resolve`], but only in the kernel's cache and in the file system of `dir`.
/// Sends no request to a file system, since it may be slow or never answer.
///
/// # Errors
///
/// `AGAIN` if the path isn't in the cache, and always before Linux 5.12. `XDEV` also for another
/// file system.
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
        // This kernel doesn't support the flag for its cache.
        Err(Errno::INVAL) => Err(Errno::AGAIN),
        result => result,
    }
}

/// Opens `path` below `dir`, never out of `dir` and never through the magic links of `/proc`.
pub(super) fn open_beneath(
    dir: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    also: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    if path.len() > PATH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | also;
    for _ in 0..RACES {
        match rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Gets the path of the object behind a handle from the kernel. Links are resolved.
///
/// # Errors
///
/// `NOENT` for an object whose name was removed, [`NO_PROC`] if `/proc` isn't mounted.
pub(super) fn real_path(handle: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let path = path_by_proc(handle)?;
    if path.as_os_str().as_encoded_bytes().ends_with(GONE) && !is_named(handle, &path) {
        return Err(Errno::NOENT);
    }
    Ok(path)
}

/// Gets the path from the kernel like [`real_path`], without a lookup, which may block.
///
/// # Errors
///
/// `AGAIN` if a lookup is needed, otherwise the errors of [`real_path`].
pub(super) fn real_path_at_once(handle: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let path = path_by_proc(handle)?;
    if path.as_os_str().as_encoded_bytes().ends_with(GONE) { Err(Errno::AGAIN) } else { Ok(path) }
}

fn path_by_proc(handle: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let name = fd_name(handle);
    let target = rustix::fs::readlinkat(proc_fds()?, name.as_str(), Vec::with_capacity(256))?;
    let path = PathBuf::from(OsString::from_vec(target.into_bytes()));
    // An object outside of file systems (`pipe:[1]`) or not below our root has no path for the
    // rules.
    if path.is_absolute() { Ok(path) } else { Err(Errno::NOENT) }
}

/// The suffix that the kernel adds to the path of an object whose name was removed. The object may
/// have another name, so a rule would decide on a name that doesn't exist.
const GONE: &[u8] = b" (deleted)";

/// Checks whether a path still names the object behind a handle. The real name of a file may also
/// end with [`GONE`].
fn is_named(handle: BorrowedFd<'_>, path: &Path) -> bool {
    let named = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    let (Ok(named), Ok(held)) = (named, rustix::fs::fstat(handle)) else { return false };
    named.st_dev == held.st_dev && named.st_ino == held.st_ino
}

/// Opens the object of an `O_PATH` handle for use. This is the same object, even if its name has
/// another object by now.
pub(super) fn reopen(handle: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    // After the type check, both flags are only a second line of defence.
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(proc_fds()?, fd_name(handle).as_str(), flags, Mode::empty())
}

/// Returns the name below [`proc_fds`] that gives path-based system calls access to the object
/// behind a handle.
pub(super) fn fd_name(handle: BorrowedFd<'_>) -> String {
    handle.as_raw_fd().to_string()
}

/// Returns the directory `/proc/self/fd`, opened once and checked to be the kernel's.
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

/// Checks whether the kernel's own `/proc` is mounted. Without it, the real path of a file is
/// unknown, and no directory can be granted.
pub fn proc_works() -> bool {
    proc_fds().is_ok()
}

/// Checks whether the kernel can resolve names below a handle and never out of it.
///
/// # Errors
///
/// `NOSYS` before Linux 5.6, `PERM` if a container's filter refuses `openat2`.
pub fn resolving_works() -> std::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty())?;
    resolve(root.as_fd(), ".", true)?;
    match resolve(root.as_fd(), "..", true) {
        Err(Errno::XDEV) => Ok(()),
        Ok(_) => Err(std::io::Error::other("the kernel let a name lead out of its directory")),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the file type of a `stat`.
pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
