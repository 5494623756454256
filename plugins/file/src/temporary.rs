//! Builds files and directories under a temporary name. They get their final name when they are
//! complete, so no reader sees half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::temporary_name::random_name;
use crate::tree;

/// The greatest number of other names that are tried if the first is taken.
const MAX_NAMES: usize = 8;

/// A file, directory or link under a temporary name, in the directory of its final name. Dropping
/// this removes the entry, unless it was [named](Self::name). If a call is stopped before the drop,
/// the host removes the entries that the call created under such names.
pub(crate) struct Temporary {
    path: PathBuf,
}

impl Temporary {
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

    /// Creates an entry under a random name.
    fn make<T>(for_path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(Self, T)> {
        let directory = for_path.parent().ok_or(ErrorKind::IsADirectory)?;
        let mut tries = 0;
        loop {
            let path = directory.join(random_name());
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

    /// Gives the entry its final name. It replaces an entry of that name, unless that is a
    /// directory with entries.
    pub(crate) fn name(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path.clear();
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // The caller reports the failure that led here. An error of the removal is ignored,
            // since it doesn't change that failure.
            let _ = tree::remove(&self.path, &mut |_| {});
        }
    }
}
