//! Restricts a command with Landlock to the trees that it may read and write.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::FileType;

use super::spec::{Preparation, TreeAccess, TreeState};
use super::view::{DEVICES, MOVED, OWN_WRITABLE, TERMINAL, TERMINALS, open_itself};

/// The required version; the oldest kernel that has it is 6.2. Newer features are used if the
/// kernel has them.
const ABI_NEEDED: ABI = ABI::V3;
const ABI_KNOWN: ABI = ABI::V6;

/// Restricts this process and its descendants to the trees of the preparation. `state`: what they
/// have to be; `None` if the root of this process is a view, which is checked itself.
///
/// # Errors
///
/// The reason why it can't be enforced. It begins with [`MOVED`] if a tree isn't what it was.
pub(super) fn restrict(preparation: &Preparation, state: Option<&TreeState>) -> Result<(), String> {
    let view = state.is_none();
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
    let read: BitFlags<AccessFs> = AccessFs::from_read(ABI_KNOWN);
    let trees = preparation.trees.iter().map(|tree| {
        (tree.path.as_str(), if tree.access == TreeAccess::Write { all } else { read })
    });
    let devices = DEVICES.map(|device| format!("/dev/{device}"));
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let mut paths: Vec<_> = trees.chain(devices.iter().map(|path| (&**path, device))).collect();
    let process = std::fs::canonicalize("/proc/self").unwrap_or_default();
    if view {
        let own = OWN_WRITABLE.into_iter().chain(preparation.home.as_deref());
        paths.extend(own.map(|path| (path, all)));
        let terminal = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        paths.extend([(TERMINAL, terminal), (TERMINALS, terminal | AccessFs::ReadDir)]);
        // The root has directories that only lead to the trees.
        paths.extend([("/proc", read), ("/", AccessFs::ReadDir.into())]);
    } else {
        paths.extend(process.to_str().map(|path| (path, read)));
    }
    let mut rules = ruleset.create().map_err(|error| failed(&error))?;
    for (at, (path, access)) in paths.into_iter().enumerate() {
        // What can't be opened needs no rule, as what doesn't exist.
        let opened = match open_itself(path) {
            Err(reason) if reason.starts_with(MOVED) => return Err(reason),
            opened => opened.ok().flatten(),
        };
        let found = opened.as_ref().map(|(_, _, identity)| identity);
        let expected = state.and_then(|state| state.found.get(at));
        if expected.is_some_and(|expected| expected.as_ref() != found) {
            return Err(format!("{MOVED}{path}"));
        }
        let Some((handle, kind, _)) = opened else { continue };
        let access = match kind {
            FileType::Directory => access,
            // What it leads to is a tree by its own path, or isn't granted.
            FileType::Symlink => continue,
            _ => access & AccessFs::from_file(ABI_KNOWN),
        };
        rules = rules
            .add_rule(PathBeneath::new(handle, access))
            .map_err(|error| format!("Landlock: {path}: {error}"))?;
    }
    let status = rules.restrict_self().map_err(|error| failed(&error))?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("Landlock: this kernel does not have it".to_owned()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// The kernel's version of Landlock, as far as Toolhold knows it. `None`: the kernel has none or
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
