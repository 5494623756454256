//! Finds the paths in a command's trees that the command may not see or change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toolhold_contract::{Access, PathRules};
use toolhold_policy::files::{FileRules, Kind};

use super::limits::{MAX_DENIED, MAX_DEPTH, PlacesError};

/// Paths in the trees that processes may not see (`hidden`) or change (`frozen`).
#[derive(Debug, Default)]
pub(super) struct DeniedPaths {
    pub(super) hidden: BTreeSet<PathBuf>,
    pub(super) frozen: BTreeSet<PathBuf>,
    /// Folders that may not be renamed. Each path ends with `..`.
    pub(super) left: BTreeSet<PathBuf>,
}

impl DeniedPaths {
    pub(super) fn hide(&mut self, path: PathBuf) -> Result<(), PlacesError> {
        Self::add(&mut self.hidden, path)
    }

    pub(super) fn freeze(&mut self, path: PathBuf) -> Result<(), PlacesError> {
        Self::add(&mut self.frozen, path)
    }

    fn add(set: &mut BTreeSet<PathBuf>, path: PathBuf) -> Result<(), PlacesError> {
        if path.to_str().is_none() {
            return Err(PlacesError::NotText(path));
        }
        set.insert(path);
        if set.len() > MAX_DENIED { Err(PlacesError::TooManyDenied) } else { Ok(()) }
    }
}

/// A walk that checks everything against the rules.
pub(super) struct DenialWalk<'l> {
    /// The rules of the grants. `None` outside of the grants.
    pub(super) rules: Option<&'l FileRules>,
    /// The rules about the call.
    pub(super) call: Option<&'l dyn PathRules>,
    pub(super) denied: &'l mut DeniedPaths,
    /// The number of entries that may still be checked.
    pub(super) entries_left: usize,
}

impl DenialWalk<'_> {
    /// Checks everything below a folder. `writable`: whether the command may write to the folder.
    pub(super) fn check_folder(
        &mut self,
        folder: &Path,
        depth: usize,
        writable: bool,
    ) -> Result<(), PlacesError> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            // The owner can change the permission.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && depth > 0 => {
                return self.denied.hide(folder.to_owned());
            }
            Err(error) => return Err(PlacesError::Unreadable(folder.to_owned(), error)),
        };
        for entry in entries.flatten() {
            self.entries_left = self.entries_left.checked_sub(1).ok_or(PlacesError::TooMany)?;
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if self.denied.hidden.contains(&path) {
                continue;
            }
            let is_visible = self.check_path(&path, kind.is_dir(), writable)?;
            if !is_visible || !kind.is_dir() {
                continue;
            }
            if depth == MAX_DEPTH {
                return Err(PlacesError::TooDeep(path));
            }
            // A frozen folder protects its content too.
            let writable = writable && !self.denied.frozen.contains(&path);
            self.check_folder(&path, depth + 1, writable)?;
        }
        Ok(())
    }

    /// Checks a path and returns whether it is visible.
    pub(super) fn check_path(
        &mut self,
        path: &Path,
        is_directory: bool,
        writable: bool,
    ) -> Result<bool, PlacesError> {
        if self.refuses(path, is_directory, Access::Read) {
            self.denied.hide(path.to_owned())?;
            return Ok(false);
        }
        if writable && self.refuses(path, is_directory, Access::Write) {
            self.denied.freeze(path.to_owned())?;
        }
        Ok(true)
    }

    fn refuses(&self, path: &Path, is_directory: bool, access: Access) -> bool {
        let kind = if is_directory { Kind::Directory } else { Kind::Other };
        if let Some(rules) = self.rules
            && rules.decide(path, kind, access).is_err()
        {
            return true;
        }
        self.call.is_some_and(|call| call.decide(path, access).is_err())
    }
}
