//! The interface that checks the rules about calls for each path that a call opens.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Access, Denial};

/// The rules about calls, applied to each path that one call opens, even if the path isn't in its
/// arguments.
pub trait PathRules: fmt::Debug + Send + Sync + 'static {
    /// Checks whether the call may open a real path.
    ///
    /// # Errors
    ///
    /// Returns the rule that denies the path.
    fn decide(&self, path: &Path, access: Access) -> Result<(), PathRefusal>;

    /// Returns a key that is equal for calls with equal rules and equal access. The key isn't
    /// reused while these rules exist.
    fn rights(&self) -> String;

    /// Describes a refusal.
    fn explain(&self, refusal: PathRefusal, path: &Path, access: Access) -> Denial;

    /// Returns the path directly in `folder` that the call's arguments name for writing. Temporary
    /// files next to this path get the same decision.
    fn written_in(&self, folder: &Path) -> Option<&Path>;

    /// Returns the anchor of each rule about a whole path: the folder above the first wildcard.
    fn anchors(&self) -> Vec<PathBuf>;
}

/// The rule that refuses a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRefusal {
    /// The index of the rule among the rules for the call.
    pub rule: usize,
    /// Whether the rule asks for approval. A call with the path in its arguments can then be
    /// approved.
    pub asks: bool,
}
