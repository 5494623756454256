//! The interface that asks the rules about calls for each path that a call reaches.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Access, Denial};

/// The rules about calls for the paths that one call reaches, whether it named them or not. The
/// host compiles them once the call may run, and asks them whenever it opens a file for the call.
pub trait PathRules: fmt::Debug + Send + Sync + 'static {
    /// Checks whether the call may reach a real path.
    ///
    /// # Errors
    ///
    /// The rule that refuses it.
    fn decide(&self, path: &Path, access: Access) -> Result<(), PathRefusal>;

    /// Returns a key of the rules and the allowed access. Calls with the same rules and the same
    /// allowed access have the same key. As long as these rules exist, other rules have other keys.
    fn rights(&self) -> String;

    /// Describes a refusal.
    fn explain(&self, refusal: PathRefusal, path: &Path, access: Access) -> Denial;

    /// Returns the path directly in `folder` that the call writes by its name. The decision on this
    /// path applies to a temporary file next to it.
    fn written_in(&self, folder: &Path) -> Option<&Path>;

    /// Returns the folders above the first wildcard of rules that name whole paths.
    fn anchors(&self) -> Vec<PathBuf>;
}

/// The rule that refuses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRefusal {
    /// Its number among the rules for the call.
    pub rule: usize,
    /// Whether it asks for approval, so that a call that names the path could be approved.
    pub asks: bool,
}
