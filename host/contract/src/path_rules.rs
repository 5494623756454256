//! The interface that asks the rules about calls for each path that a call reaches.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Access, Denial};

/// The rules about calls for the paths that one call reaches, even paths that its arguments don't
/// contain. The host compiles the rules after it has allowed the call, and checks them whenever it
/// opens a file for the call.
pub trait PathRules: fmt::Debug + Send + Sync + 'static {
    /// Checks whether the call may reach a real path.
    ///
    /// # Errors
    ///
    /// Returns the rule that denies the path.
    fn decide(&self, path: &Path, access: Access) -> Result<(), PathRefusal>;

    /// Returns a key for the rules and the allowed access. Two calls have the same key if their
    /// rules and their allowed access are equal. The key stays unique while these rules exist.
    fn rights(&self) -> String;

    /// Describes a refusal.
    fn explain(&self, refusal: PathRefusal, path: &Path, access: Access) -> Denial;

    /// Returns the path directly in `folder` that the call writes by its name. The decision on this
    /// path also applies to a temporary file next to it.
    fn written_in(&self, folder: &Path) -> Option<&Path>;

    /// Returns the folders above the first wildcard of rules that name whole paths.
    fn anchors(&self) -> Vec<PathBuf>;
}

/// The rule that refuses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRefusal {
    /// The index of the rule among the rules for the call.
    pub rule: usize,
    /// Whether the rule asks for approval. A call with the path in its arguments could then be
    /// approved.
    pub asks: bool,
}
