//! What of the trees isn't for one command, since the rules about calls say so.

use std::path::{Path, PathBuf};

use berth_contract::{Access, PathRules};

use super::places::{DenialWalk, DeniedPaths, MAX_LOOKED_AT, PlacesError};
use crate::confine::{Tree, TreeAccess};

/// Takes trees away that the rules deny as a whole, and the right to write to others. What is no
/// grant, programs need: only a rule that names it from the root on takes that away, and none for
/// not being listed.
pub(super) fn bound(
    call: &dyn PathRules,
    trees: &mut Vec<Tree>,
    is_granted: impl Fn(&Path) -> bool,
    denied: &mut DeniedPaths,
) {
    let anchors = call.anchors();
    trees.retain_mut(|tree| {
        let path = Path::new(&tree.path);
        if !is_granted(path) && !anchors.iter().any(|anchor| path.starts_with(anchor)) {
            return true;
        }
        if call.decide(path, Access::Read).is_err() {
            // Perhaps it lies in another one.
            denied.hidden.insert(path.to_owned());
            return false;
        }
        if call.decide(path, Access::Write).is_err() {
            tree.access = TreeAccess::Read;
        }
        true
    });
}

/// Looks for what the rules deny in trees that are no grants: system folders and caches, which are
/// large. So only where a rule names the path from the root on.
pub(super) fn look(
    call: &dyn PathRules,
    trees: &[Tree],
    is_granted: impl Fn(&Path) -> bool,
    denied: &mut DeniedPaths,
) -> Result<(), PlacesError> {
    for anchor in call.anchors() {
        for tree in trees {
            let path = PathBuf::from(&tree.path);
            let start = match () {
                () if anchor.starts_with(&path) => &anchor,
                () if path.starts_with(&anchor) => &path,
                () => continue,
            };
            let Ok(metadata) = std::fs::symlink_metadata(start) else { continue };
            if is_granted(start) || metadata.is_symlink() {
                continue;
            }
            let writable = tree.access == TreeAccess::Write;
            let mut look =
                DenialWalk { rules: None, call: Some(call), denied, left: MAX_LOOKED_AT };
            if start != &path && !look.at(start, metadata.is_dir(), writable)? || !metadata.is_dir()
            {
                continue;
            }
            look.below(start, 0, writable)?;
        }
    }
    Ok(())
}
