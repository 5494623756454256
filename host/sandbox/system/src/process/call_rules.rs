//! Takes from the trees of a command what the rules about calls deny, or write access to it.

use std::path::{Path, PathBuf};

use toolhold_contract::{Access, PathRules};

use super::denied_paths::{DenialWalk, DeniedPaths};
use super::limits::{MAX_LOOKED_AT, PlacesError};
use crate::confine::{Tree, TreeAccess};

/// Removes trees that the rules deny as a whole, and write access to others. Trees that aren't
/// granted are what programs need: only a rule that names one from the root on removes it, and
/// never because it isn't listed.
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
            // Perhaps it is inside another one.
            denied.hidden.insert(path.to_owned());
            return false;
        }
        if call.decide(path, Access::Write).is_err() {
            tree.access = TreeAccess::Read;
        }
        true
    });
}

/// Searches trees that aren't grants for what the rules deny: system folders and caches, which are
/// large. So only below the folders of rules that name a path from the root on.
pub(super) fn look(
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
