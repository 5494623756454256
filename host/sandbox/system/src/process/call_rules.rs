//! Removes trees from a command, or write access to them, if the rules about calls deny it.

use std::path::{Path, PathBuf};

use toolhold_contract::{Access, PathRules};

use super::denied_paths::{DenialWalk, DeniedPaths};
use super::limits::{MAX_LOOKED_AT, PlacesError};
use crate::confine::{Tree, TreeAccess};

/// Removes trees that the rules deny as a whole, and write access to others. Programs need the
/// trees of the system that aren't granted. Only a rule with an absolute path removes such a tree.
/// An allow list that omits the tree doesn't remove it.
pub(super) fn limit_trees(
    call: &dyn PathRules,
    trees: &mut Vec<Tree>,
    is_granted: impl Fn(&Path) -> bool,
    denied: &mut DeniedPaths,
) {
    let anchors = call.anchors();
    trees.retain_mut(|tree| {
        let path = Path::new(&tree.path);
        let is_named = anchors.iter().any(|anchor| path.starts_with(anchor));
        if !is_named && !is_granted(path) {
            return true;
        }
        if call.decide(path, Access::Read).is_err() {
            // The tree may be inside another one.
            denied.hidden.insert(path.to_owned());
            return false;
        }
        if call.decide(path, Access::Write).is_err() {
            tree.access = TreeAccess::Read;
        }
        true
    });
}

/// Searches trees that aren't grants for paths that the rules deny. These trees are system folders
/// and caches, which are large. So only the folders of rules with absolute paths are searched.
pub(super) fn search(
    call: &dyn PathRules,
    trees: &[Tree],
    is_granted: impl Fn(&Path) -> bool,
    denied: &mut DeniedPaths,
) -> Result<(), PlacesError> {
    for anchor in call.anchors() {
        for tree in trees {
            let path = PathBuf::from(&tree.path);
            let start = if anchor.starts_with(&path) {
                &anchor
            } else if path.starts_with(&anchor) {
                &path
            } else {
                continue;
            };
            let Ok(metadata) = std::fs::symlink_metadata(start) else { continue };
            if is_granted(start) || metadata.is_symlink() {
                continue;
            }
            let writable = tree.access == TreeAccess::Write;
            let mut walk =
                DenialWalk { rules: None, call: Some(call), denied, entries_left: MAX_LOOKED_AT };
            // The tree itself was decided on before.
            let is_visible =
                start == &path || walk.check_path(start, metadata.is_dir(), writable)?;
            if is_visible && metadata.is_dir() {
                walk.check_folder(start, 0, writable)?;
            }
        }
    }
    Ok(())
}
