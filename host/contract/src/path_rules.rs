use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Access, Denial};

/// What the rules about calls say of the paths that one call reaches, whether it named them or not.
/// The host compiles it for the call once that may run, and whoever opens files for the call asks
/// it.
pub trait PathRules: fmt::Debug + Send + Sync + 'static {
    /// Whether a real path may be reached.
    ///
    /// # Errors
    ///
    /// The rule that is against it.
    fn decide(&self, path: &Path, access: Access) -> Result<(), PathRefusal>;

    /// Puts a refusal into words.
    fn explain(&self, refusal: PathRefusal, path: &Path, access: Access) -> Denial;

    /// The path directly in `folder` that the call writes by its name. What is built beside its
    /// place is decided on as what it will be.
    fn written_in(&self, folder: &Path) -> Option<&Path>;

    /// Where rules that name whole paths begin to match: the folders above their first wildcard.
    fn anchors(&self) -> Vec<PathBuf>;
}

/// The rule that is against a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRefusal {
    /// Its number among those that the call is decided by.
    pub rule: usize,
    /// Whether it asks, so that the path could be named in a call of its own.
    pub asks: bool,
}
