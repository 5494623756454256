//! Landlock: the trees that may be read and written.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
    Scope,
};

use super::spec::{Preparation, TreeAccess};

/// The required version; the oldest kernel that has it is 6.2. Newer features are used if the
/// kernel has them.
const ABI_NEEDED: ABI = ABI::V3;
const ABI_KNOWN: ABI = ABI::V6;

/// Restricts this process and its descendants to the trees of the preparation. `view`: whether its
/// root holds nothing else.
///
/// # Errors
///
/// The reason why it can't be enforced.
pub(super) fn restrict(preparation: &Preparation, view: bool) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("Landlock: {error}");
    let all = AccessFs::from_all(ABI_KNOWN);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI_NEEDED))
        .map_err(|error| failed(&error))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(|error| failed(&error))?
        // Sockets without a path, and other processes.
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(|error| failed(&error))?;
    // With a view, it also has a private network.
    if !preparation.network && !view {
        ruleset = ruleset
            .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)
            .map_err(|error| failed(&error))?;
    }
    let mut rules = ruleset.create().map_err(|error| failed(&error))?;
    let read: BitFlags<AccessFs> = AccessFs::from_read(ABI_KNOWN);
    for tree in &preparation.trees {
        rules =
            allow(rules, &tree.path, if tree.access == TreeAccess::Write { all } else { read })?;
    }
    let own = super::view::OWN_WRITABLE.into_iter().chain(preparation.home.as_deref());
    for path in own.filter(|_| view) {
        rules = allow(rules, path, all)?;
    }
    for device in super::view::DEVICES {
        let path = format!("/dev/{device}");
        rules = allow(rules, &path, AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate)?;
    }
    if view {
        let terminal = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        rules = allow(rules, super::view::TERMINAL, terminal)?;
        rules = allow(rules, super::view::TERMINALS, terminal | AccessFs::ReadDir)?;
        rules = allow(rules, "/proc", read)?;
        // Directories that only lead to the trees.
        rules = allow(rules, "/", AccessFs::ReadDir.into())?;
    } else {
        rules = allow(rules, "/proc/self", read)?;
    }
    let status = rules.restrict_self().map_err(|error| failed(&error))?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("Landlock: this kernel does not have it".to_owned()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// The kernel's version of Landlock, as far as Berth knows it. `None`: the kernel has none or
/// doesn't allow it.
///
/// Only a restricted thread learns it, so a thread that ends at once restricts itself.
pub fn landlock_version() -> Option<u32> {
    let tried = || {
        let ruleset = Ruleset::default().handle_access(AccessFs::MakeSock).ok()?.create().ok()?;
        match ruleset.restrict_self().ok()?.landlock {
            LandlockStatus::Available { effective_abi, .. } => {
                u32::try_from(effective_abi as i32).ok()
            }
            _ => None,
        }
    };
    std::thread::scope(|scope| scope.spawn(tried).join().ok().flatten())
}

fn allow(
    rules: RulesetCreated,
    path: &str,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    // A path that doesn't exist needs no rule.
    let Ok(handle) = PathFd::new(path) else { return Ok(rules) };
    let file = AccessFs::from_file(ABI_KNOWN);
    let access = if Path::new(path).is_dir() { access } else { access & file };
    rules
        .add_rule(PathBeneath::new(handle, access))
        .map_err(|error| format!("Landlock: {path}: {error}"))
}
