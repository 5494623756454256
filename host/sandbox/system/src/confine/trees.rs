//! Restricts a command with Landlock to the trees that it may read and write.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::FileType;

use super::raw::landlock_version;
use super::spec::{Preparation, TreeAccess, TreeState};
use super::view::{
    AUTHORITIES, DEVICES, OWN_WRITABLE, TERMINAL, TERMINALS, ViewError, open_itself,
};

/// The newest version of Landlock that is used.
const ABI_KNOWN: ABI = ABI::V6;

#[derive(Debug, thiserror::Error)]
pub(super) enum LandlockError {
    /// Another object has taken the place of a tree. Then nothing is enforced.
    #[error("a path was moved in the meantime: {0}")]
    Moved(String),
    #[error("Landlock: not supported by this kernel")]
    Missing,
    #[error("Landlock: {0}")]
    Ruleset(#[from] RulesetError),
    #[error("Landlock: {0}: {1}")]
    Tree(String, #[source] RulesetError),
    #[error("Landlock: only supported in part by this kernel")]
    Partial,
    #[error("Landlock: version {0} can't stop programs from truncating files; Linux 6.2 can")]
    Emptying(u32),
}

/// Restricts this process and its descendants to the trees of the preparation. `state` is the
/// required state of the trees. It is `None` if this process has a view, which is checked
/// separately. The error is the part that can't be enforced.
///
/// Version 1 isn't used with a view. It forbids moving or linking any file to another directory, so
/// ordinary programs fail. The view already protects all files.
pub(super) fn restrict(
    preparation: &Preparation,
    state: Option<&TreeState>,
) -> Result<(), LandlockError> {
    let has_view = state.is_none();
    let version = landlock_version().unwrap_or(0);
    let abi = ABI::from(i32::try_from(version).unwrap_or(i32::MAX)).min(ABI_KNOWN);
    if has_view && abi < ABI::V2 {
        return Ok(());
    }
    if abi == ABI::Unsupported {
        return Err(LandlockError::Missing);
    }

    // The kernel reported this version, so all of its rights are required.
    let all = AccessFs::from_all(abi);
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    if abi >= ABI::V6 {
        // Sockets without a path, and other processes.
        ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    // A process with a view also has a private network, so only a process without a view needs this
    // restriction.
    if abi >= ABI::V4 && !preparation.network && !has_view {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }

    let mut rules = ruleset.create()?;
    for (index, (path, access)) in accessible_paths(preparation, abi, has_view).iter().enumerate() {
        // Like a missing path, a path that can't be opened needs no rule.
        let opened = match open_itself(path) {
            Ok(opened) => opened,
            Err(ViewError::Moved(path)) => return Err(LandlockError::Moved(path)),
            Err(_) => None,
        };
        // The paths of the trees come first, so `index` is also the index of the tree.
        if let Some(expected) = state.and_then(|state| state.found.get(index)) {
            let identity = opened.as_ref().map(|(_, _, identity)| identity);
            if expected.as_ref() != identity {
                return Err(LandlockError::Moved(path.clone()));
            }
        }
        let Some((handle, kind, _)) = opened else { continue };
        let access = match kind {
            FileType::Directory => *access,
            // The target of the link has its own tree, or isn't granted.
            FileType::Symlink => continue,
            _ => *access & AccessFs::from_file(abi),
        };
        rules = rules
            .add_rule(PathBeneath::new(handle, access & all))
            .map_err(|error| LandlockError::Tree(path.clone(), error))?;
    }

    let status = rules.restrict_self()?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(LandlockError::Partial);
    }
    if !has_view && abi < ABI::V3 {
        return Err(LandlockError::Emptying(version));
    }
    Ok(())
}

/// Returns the paths that get a Landlock rule, and the access to each. The paths of the trees come
/// first, in the same order.
fn accessible_paths(
    preparation: &Preparation,
    abi: ABI,
    has_view: bool,
) -> Vec<(String, BitFlags<AccessFs>)> {
    let all = AccessFs::from_all(abi);
    let read = AccessFs::from_read(abi);
    let mut paths = Vec::new();
    for tree in &preparation.trees {
        let access = if tree.access == TreeAccess::Write { all } else { read };
        paths.push((tree.path.clone(), access));
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    paths.extend(DEVICES.map(|name| (format!("/dev/{name}"), device)));
    if has_view {
        let writable = OWN_WRITABLE.into_iter().chain(preparation.home.as_deref());
        paths.extend(writable.map(|path| (path.to_owned(), all)));
        let terminal = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        paths.push((TERMINAL.to_owned(), terminal));
        paths.push((TERMINALS.to_owned(), terminal | AccessFs::ReadDir));
        paths.push(("/proc".to_owned(), read));
        if preparation.authority.is_some() {
            paths.push((AUTHORITIES.to_owned(), AccessFs::ReadFile.into()));
        }
        // The root contains directories that only lead to the trees.
        paths.push(("/".to_owned(), AccessFs::ReadDir.into()));
    } else if let Ok(process) = std::fs::canonicalize("/proc/self") {
        // Programs read their own state.
        paths.extend(process.to_str().map(|path| (path.to_owned(), read)));
    }
    paths
}
