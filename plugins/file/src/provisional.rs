//! Files and directories that are built under a provisional name. They get their own name when they
//! are complete, so no reader ever sees half of one.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::tree;

/// Other names are tried this often where the first was taken.
const MAX_NAMES: usize = 8;

/// Whether a name has the form of a provisional name. What has such a name belongs to another call,
/// and is about to be removed or renamed.
pub(crate) fn is_provisional(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b".berth-").and_then(|rest| rest.strip_suffix(b".tmp"));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Something under a provisional name, beside its final one. Dropping it removes it, unless it was
/// [named](Self::name). Where a call is stopped and drops nothing, the host removes what the call
/// made under a name of this form.
pub(crate) struct Provisional {
    path: PathBuf,
}

impl Provisional {
    /// A new file.
    pub(crate) fn file(for_path: &Path) -> io::Result<(Self, File)> {
        Self::make(for_path, |path| OpenOptions::new().write(true).create_new(true).open(path))
    }

    /// An empty directory.
    pub(crate) fn directory(for_path: &Path) -> io::Result<Self> {
        Self::make(for_path, |path| fs::create_dir(path)).map(|made| made.0)
    }

    /// A symbolic link.
    pub(crate) fn link(for_path: &Path, points_to: &std::ffi::CStr) -> io::Result<Self> {
        Self::make(for_path, |path| Ok(rustix::fs::symlink(points_to, path)?)).map(|made| made.0)
    }

    /// Makes it under a name that can't be guessed.
    fn make<T>(for_path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(Self, T)> {
        let directory = for_path.parent().ok_or(ErrorKind::IsADirectory)?;
        let mut tries = 0;
        loop {
            let path = directory
                .join(format!(".berth-{:016x}.tmp", RandomState::new().build_hasher().finish()));
            match make(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < MAX_NAMES => {
                    tries += 1;
                }
                made => return Ok((Self { path }, made?)),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name. What has that name is replaced, unless it is a directory with something
    /// in it.
    pub(crate) fn name(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path.clear();
        Ok(())
    }
}

impl Drop for Provisional {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // The caller reports the failure that led here. A leftover that can't be removed
            // doesn't change it.
            let _ = tree::remove(&self.path, &mut |_| {});
        }
    }
}
