//! Creates the missing cache directories of presets.

use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

/// Creates the folders `missing` inside `real`, and returns their path. Links aren't followed: a
/// tool could create a link to a folder that isn't granted.
pub(super) fn make(real: &Path, missing: &Path) -> Result<PathBuf, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = openat2(CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    for part in missing.components() {
        let Component::Normal(name) = part else { return Err(Errno::INVAL) };
        // As for other programs, the umask removes the permissions of other users.
        match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => folder = openat(&folder, name, flags, Mode::empty())?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(real.join(missing))
}
