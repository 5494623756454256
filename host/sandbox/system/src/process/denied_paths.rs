//! Finds the paths in a command's trees that the command may not see or change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toolhold_contract::{Access, PathRules};
use toolhold_policy::files::{FileRules, Kind};

use super::limits::{MAX_DENIED, MAX_DEPTH, PlacesError};

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

pub(super) struct DenialWalk<'l> {
    /// The rules of the grants. `None` outside of the grants.
    pub(super) rules: Option<&'l FileRules>,
    pub(super) call: Option<&'l dyn PathRules>,
    pub(super) denied: &'l mut DeniedPaths,
    pub(super) entries_left: usize,
}

impl DenialWalk<'_> {
    /// Hides and freezes the denied paths below a folder. `depth` is the number of levels above the
    /// folder in this walk. `writable` means that the command may write to the folder.
    pub(super) fn check_folder(
        &mut self,
        folder: &Path,
        depth: usize,
        writable: bool,
    ) -> Result<(), PlacesError> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            // The command may run as the owner of the folder, and could make it readable. So the
            // folder is hidden.
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
            let is_frozen = self.denied.frozen.contains(&path);
            self.check_folder(&path, depth + 1, writable && !is_frozen)?;
        }
        Ok(())
    }

    /// Hides or freezes a path if the rules deny it. Returns false if the path is now hidden.
    pub(super) fn check_path(
        &mut self,
        path: &Path,
        is_directory: bool,
        writable: bool,
    ) -> Result<bool, PlacesError> {
        if self.is_denied(path, is_directory, Access::Read) {
            self.denied.hide(path.to_owned())?;
            return Ok(false);
        }
        if writable && self.is_denied(path, is_directory, Access::Write) {
            self.denied.freeze(path.to_owned())?;
        }
        Ok(true)
    }

    /// Returns whether the rules of the grants or the rules for the call deny a path.
    fn is_denied(&self, path: &Path, is_directory: bool, access: Access) -> bool {
        let kind = if is_directory { Kind::Directory } else { Kind::Other };
        if let Some(rules) = self.rules
            && rules.decide(path, kind, access).is_err()
        {
            return true;
        }
        self.call.is_some_and(|call| call.decide(path, access).is_err())
    }
}
