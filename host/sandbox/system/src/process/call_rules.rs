//! Removes trees from a command, or write access to them, if the rules for calls deny it.

use std::path::{Path, PathBuf};

use toolhold_contract::{Access, PathRules};

use super::denied_paths::{DenialWalk, DeniedPaths};
use super::limits::{MAX_CHECKED, PlacesError};
use crate::confine::{Tree, TreeAccess};

/// Removes each tree that may not be read, and makes a tree read-only if it may not be written.
/// Programs need the system's trees, which aren't granted. So only a rule with an absolute path
/// affects such a tree, and an allow list without the tree doesn't.
pub(super) fn limit_trees(
    call: &dyn PathRules,
    trees: &mut Vec<Tree>,
    is_granted: impl Fn(&Path) -> bool,
    denied: &mut DeniedPaths,
) {
    // The anchors are the folders of rules with absolute paths.
    let anchors = call.anchors();
    trees.retain_mut(|tree| {
        let path = Path::new(&tree.path);
        let is_in_anchor = anchors.iter().any(|anchor| path.starts_with(anchor));
        if !is_in_anchor && !is_granted(path) {
            return true;
        }
        if call.decide(path, Access::Read).is_err() {
            // The tree may be inside of another tree, so its path must be hidden too.
            denied.hidden.insert(path.to_owned());
            return false;
        }
        if call.decide(path, Access::Write).is_err() {
            tree.access = TreeAccess::Read;
        }
        true
    });
}

/// Searches trees that aren't grants for denied paths. These system folders and caches are large,
/// so only the folders of rules with absolute paths are searched.
pub(super) fn search(
    call: &dyn PathRules,
    trees: &[Tree],
    is_granted: impl Fn(&Path) -> bool,
    denied: &mut DeniedPaths,
) -> Result<(), PlacesError> {
    for anchor in call.anchors() {
        for tree in trees {
            let path = PathBuf::from(&tree.path);
            // The search starts at the inner folder of the two.
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
                DenialWalk { rules: None, call: Some(call), denied, entries_left: MAX_CHECKED };
            // `limit_trees` has checked the tree itself.
            let is_whole_tree = start == &path;
            let is_visible =
                is_whole_tree || walk.check_path(start, metadata.is_dir(), writable)?;
            if is_visible && metadata.is_dir() {
                let depth = 0;
                walk.check_folder(start, depth, writable)?;
            }
        }
    }
    Ok(())
}
