//! Makes the missing cache directories of presets.

use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

/// Makes directories in an existing directory, and returns their path. No link is followed: nobody
/// has granted the target of a link that appears in the meantime.
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
