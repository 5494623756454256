//! Makes the missing cache directories of presets.

use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

/// Creates directories in an existing directory, and returns their path. Links aren't followed: if
/// a link appears meanwhile, its target wasn't granted.
pub(super) fn make(real: &Path, missing: &Path) -> Result<PathBuf, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = openat2(CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    for part in missing.components() {
        let Component::Normal(name) = part else { return Err(Errno::INVAL) };
        match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => folder = openat(&folder, name, flags, Mode::empty())?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(real.join(missing))
}
