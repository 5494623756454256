//! Decides which paths the commands of a plugin see and may change: the plugin's directories and
//! the parts of the system that programs need. Commands can't create files that other programs run
//! later, such as a git hook.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolhold_contract::{Access, PathRules, SessionNetwork};
use toolhold_data_dir::{PinnedDirectory, Repository};
use toolhold_policy::files::{OWN_NAMES, OwnFolder};

use super::call_rules;
use super::command::{Command, StartError};
use super::denied_paths::{DenialWalk, DeniedPaths};
use super::limits::{MAX_DENIED, MAX_DEPTH, MAX_LOOKED_AT, PlacesError};
use super::network::SharedNetwork;
use super::sandbox::CommandSandbox;
use super::sockets::{RememberedScan, Scope};
use super::warm::WarmSlot;
use crate::confine::{
    Identity, Limits, Preparation, Recorded, Sandbox, Tree, TreeAccess, TreeState, open_itself,
};
use crate::files::Grants;
use crate::mounts::{Mount, Mounts};

/// The parts of the system that programs need, mounted read-only: programs and libraries, public
/// settings, and information about processors.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/etc",
    "/sys/devices/system/cpu",
];

/// Folders with ssh settings. ssh refuses settings of other users. In the user namespace of an
/// ordinary user, root's files belong to nobody, so ssh would refuse them.
const SSH_SETTINGS: [&str; 2] = ["/etc/ssh/ssh_config.d", "/usr/etc/ssh/ssh_config.d"];

/// How long the list of private files of `/etc` is valid.
const PRIVATE_FOR: Duration = Duration::from_secs(30);

/// The places that processes of one plugin may use, and their sandbox. Each policy makes them once.
#[derive(Debug)]
pub struct Places {
    /// The plugin's directories and the rules for their content.
    pub grants: Arc<Grants>,
    /// Other trees that the processes see or change, such as caches of build tools, by their real
    /// paths.
    pub also: Vec<Tree>,
    /// Hidden paths in all of these trees, by their real paths: files with credentials.
    pub also_hidden: Vec<PathBuf>,
    /// Sockets and folders of sockets that the processes may connect to. The spelling matters,
    /// since the target of a link is another place.
    pub sockets: Vec<PathBuf>,
    /// How complete the sandbox must be.
    pub sandbox: Sandbox,
    /// The limits of the processes.
    pub limits: Limits,
    /// The home of the processes: an empty private directory, except for the granted parts.
    pub home: Option<PathBuf>,
    /// The program that confines itself. Its `main` begins with the helper hook. If this is `None`,
    /// no command starts.
    pub helper: Option<PathBuf>,
    /// State from earlier commands.
    pub known: RememberedPlaces,
}

/// State that later commands of a plugin can reuse.
#[derive(Debug, Default)]
pub struct RememberedPlaces {
    /// Whether namespaces turned out to be missing.
    pub(super) without_namespaces: AtomicBool,
    /// A prepared helper that waits for its command.
    pub(super) warm: WarmSlot,
    /// The result of the last search for sockets.
    pub(super) sockets: RememberedScan,
}

impl Places {
    /// Decides on the sandbox of a command. Reads the directories, so it may block.
    ///
    /// # Errors
    ///
    /// [`PlacesError`] if the places can't be determined.
    pub(super) fn sandbox(
        &self,
        command: &Command,
        namespaces: bool,
    ) -> Result<CommandSandbox, PlacesError> {
        let wanted = self.wanted_trees(command);
        let mounts = Mounts::current().map_err(|errno| {
            PlacesError::Unreadable("/proc/self/mountinfo".into(), errno.into())
        })?;
        let mut trees = self.trees(wanted, &mounts);
        if namespaces && trees.iter().any(|tree| tree.path == "/") {
            return Err(PlacesError::Root);
        }
        let (denied, held) = self.denied(command, namespaces, &mut trees, &mounts)?;
        let state = tree_state(&trees, &denied);
        let has_own_network = namespaces && !command.network;
        let network = if has_own_network { command.shared_network.clone() } else { None };
        let recorded = match &command.changes {
            None => Recorded::No,
            Some(changes) if changes.is_required() => Recorded::Required,
            Some(_) => Recorded::IfPossible,
        };
        let preparation = Preparation {
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            sandbox: self.sandbox,
            namespaces,
            network: command.network,
            shared_network: network.as_ref().map(|network| network.number),
            recorded,
            trees,
            home: self.home.as_deref().map(text),
            limits: self.limits,
        };
        Ok(CommandSandbox { preparation, mounts, network, state, held })
    }

    /// Returns the trees that a command may need, by their paths.
    fn wanted_trees(&self, command: &Command) -> BTreeMap<String, TreeAccess> {
        let system = SYSTEM.iter().map(|path| ((*path).to_owned(), TreeAccess::Read));
        let programs = command.path_folders().into_iter().map(|path| (path, TreeAccess::Read));
        let also = self.also.iter().map(|tree| (tree.path.clone(), tree.access));
        let grants = self.grants.rules().grants().iter().map(|grant| {
            let access =
                if grant.access == Access::Write { TreeAccess::Write } else { TreeAccess::Read };
            (text(&grant.path), access)
        });
        // If several entries have the same path, the last one applies, which is the operator's
        // setting.
        system.chain(programs).chain(also).chain(grants).collect()
    }

    /// Returns the trees that are mounted, the outer before the inner.
    fn trees(&self, mut wanted: BTreeMap<String, TreeAccess>, mounts: &Mounts) -> Vec<Tree> {
        // A procfs shows other processes, and the memory of this process. Commands have their own
        // procfs.
        wanted.retain(|path, _| !mounts.mount_of(Path::new(path)).is_some_and(Mount::is_proc));
        let mut trees: Vec<Tree> =
            wanted.into_iter().map(|(path, access)| Tree { path, access }).collect();
        trees.sort_by_key(|tree| tree.path.split('/').count());
        let mut needed: Vec<Tree> = Vec::with_capacity(trees.len());
        for tree in trees {
            let around =
                needed.iter().rfind(|outer| Path::new(&tree.path).starts_with(&outer.path));
            if around.is_none_or(|outer| outer.access != tree.access) {
                needed.push(tree);
            }
        }
        needed.retain_mut(|tree| self.limit_in_own_folders(tree));
        needed
    }

    /// Removes write access to a tree inside one of Toolhold's own folders, because the tree is
    /// part of that folder. Returns false if the folder is secret, so that the tree must not be
    /// mounted.
    fn limit_in_own_folders(&self, tree: &mut Tree) -> bool {
        let is_given_by_host = self.also.iter().any(|given| given.path == tree.path);
        if is_given_by_host {
            return true;
        }
        let path = Path::new(&tree.path);
        let own = self.grants.rules().own().iter();
        let around: Vec<&OwnFolder> =
            own.filter(|own| path != own.path && path.starts_with(&own.path)).collect();
        if !around.is_empty() {
            tree.access = TreeAccess::Read;
        }
        around.iter().all(|own| !own.secret)
    }

    /// Returns the paths that a command may not see or change, and the directories that reserve
    /// missing paths. Removes from the trees what the rules about the call deny as a whole.
    fn denied(
        &self,
        command: &Command,
        namespaces: bool,
        trees: &mut Vec<Tree>,
        mounts: &Arc<Mounts>,
    ) -> Result<(DeniedPaths, Vec<PinnedDirectory>), PlacesError> {
        let call = command.path_rules.as_deref();
        let mut denied = DeniedPaths {
            hidden: self.also_hidden.iter().cloned().collect(),
            ..DeniedPaths::default()
        };
        if let Some(call) = call {
            call_rules::limit_trees(call, trees, |path| self.is_granted(path), &mut denied);
        }
        let held = self.protect_own(trees, namespaces, &mut denied)?;
        let kernels = find_kernel_mounts(trees, mounts);
        denied.hidden.extend(kernels.iter().cloned());
        denied.hidden.extend(system_settings(namespaces));
        // These paths are identified by their names, so they may be missing or outside of the
        // trees. Paths below the trees are added later.
        retain_existing(&mut denied, trees);

        // Commands without their own view can't create such a socket.
        let pipes =
            if namespaces { self.deny_sockets(&mut denied, kernels, mounts)? } else { Vec::new() };
        self.deny_by_rules(&mut denied, call)?;
        if let Some(call) = call {
            call_rules::search(call, trees, |path| self.is_granted(path), &mut denied)?;
        }
        hide_pipes(pipes, trees, &mut denied)?;

        remove_covered(&mut denied);
        if denied.hidden.len() + denied.frozen.len() > MAX_DENIED {
            return Err(PlacesError::TooManyDenied);
        }
        Ok((denied, held))
    }

    fn is_granted(&self, path: &Path) -> bool {
        self.grants.rules().grants().iter().any(|grant| path.starts_with(&grant.path))
    }

    /// Hides sockets of other programs in the granted directories, and freezes files with Toolhold's
    /// own names. Returns the pipes.
    fn deny_sockets(
        &self,
        denied: &mut DeniedPaths,
        kernels: BTreeSet<PathBuf>,
        mounts: &Arc<Mounts>,
    ) -> Result<Vec<PathBuf>, PlacesError> {
        let passed = denied.hidden.iter().chain(&self.sockets).cloned().chain(kernels).collect();
        let scope = Scope { passed, roots: self.outer_grants() };
        let scan = self.known.sockets.search(scope, mounts)?;
        for path in scan.own_names {
            denied.freeze(path)?;
        }
        for path in scan.sockets.into_iter().chain(scan.unreadable) {
            denied.hide(path)?;
        }
        Ok(scan.pipes)
    }

    /// Returns the granted directories that aren't inside another one, with the objects at their
    /// paths.
    fn outer_grants(&self) -> Vec<(PathBuf, Option<Identity>)> {
        let grants = self.grants.rules().grants();
        let mut outer = Vec::new();
        for path in grants.iter().map(|grant| &grant.path) {
            let is_inner =
                grants.iter().any(|around| *path != around.path && path.starts_with(&around.path));
            if !is_inner {
                outer.push((path.clone(), identity(path)));
            }
        }
        outer
    }

    /// Denies the paths that the globs and the rules about the call deny in the granted
    /// directories.
    fn deny_by_rules(
        &self,
        denied: &mut DeniedPaths,
        call: Option<&dyn PathRules>,
    ) -> Result<(), PlacesError> {
        let rules = self.grants.rules();
        if !rules.has_globs() && call.is_none() {
            return Ok(());
        }
        for grant in rules.grants() {
            let mut walk = DenialWalk {
                rules: Some(rules),
                call,
                denied: &mut *denied,
                entries_left: MAX_LOOKED_AT,
            };
            walk.check_folder(&grant.path, 0, grant.access == Access::Write)?;
        }
        Ok(())
    }

    /// Returns the network of a session's commands, and makes it if it is missing. Blocks. Returns
    /// `None` if this machine can't make a network and the sandbox may be incomplete.
    ///
    /// # Errors
    ///
    /// Returns an error if this machine can't make a network, but the sandbox must be complete.
    pub fn shared_network(
        &self,
        session: &SessionNetwork,
    ) -> Result<Option<Arc<SharedNetwork>>, StartError> {
        let Some(helper) = self.helper.as_deref() else { return Ok(None) };
        if !self.tries_namespaces() {
            return Ok(None);
        }
        match session.get_or_make(|| SharedNetwork::make(helper)) {
            Ok(network) => Ok(Some(network)),
            Err(_) if self.sandbox == Sandbox::BestEffort => Ok(None),
            Err(error) => Err(StartError::Sandbox(format!("a network for the session: {error}"))),
        }
    }

    /// Checks whether namespaces are still tried.
    pub(crate) fn tries_namespaces(&self) -> bool {
        self.sandbox != Sandbox::Off && !self.known.without_namespaces.load(Ordering::Relaxed)
    }

    /// Protects Toolhold's own files below the trees regardless of the globs, and the files that
    /// git would run. `view`: whether the command has its own view. Returns the directories that
    /// reserve missing paths.
    fn protect_own(
        &self,
        trees: &[Tree],
        view: bool,
        denied: &mut DeniedPaths,
    ) -> Result<Vec<PinnedDirectory>, PlacesError> {
        let mut held = self.protect_own_folders(trees, denied)?;
        let roots: Vec<&Path> =
            self.grants.roots().iter().map(|root| root.path.as_path()).collect();
        let writable = if view { trees } else { &[] };
        for root in &roots {
            // A new file with this name can only add restrictions, and the answer reports it. A
            // reserved path would be visible to every program that lists the directory.
            let own_files = OWN_NAMES.iter().map(|name| root.join(name));
            denied.frozen.extend(own_files.filter(|path| path.exists()));

            let repository = Repository::find(root);
            protect_repository(&repository, writable, denied, &mut held)?;
            denied.frozen.extend(repository.names.iter().cloned());
            for path in repository.later.iter().filter(|path| path.exists()) {
                let mut others = roots.iter().filter(|other| *other != root);
                let is_in_other_grant = others
                    .any(|other| other.starts_with(&repository.folder) && path.starts_with(other));
                if !is_in_other_grant {
                    denied.frozen.insert(path.clone());
                }
            }
        }
        Ok(held)
    }

    /// Hides Toolhold's own secret folders below the trees and freezes the others, under all their
    /// names. Returns the directories that reserve missing folders.
    fn protect_own_folders(
        &self,
        trees: &[Tree],
        denied: &mut DeniedPaths,
    ) -> Result<Vec<PinnedDirectory>, PlacesError> {
        let mut held = Vec::new();
        let aliases = self.grants.aliases();
        let all = self.grants.rules().own();
        let named = all.iter().filter(|own| own.path != Path::new("/proc"));
        for own in named.chain(aliases.iter()) {
            let around = trees.iter().filter(|tree| own.path.starts_with(&tree.path));
            let access = around.map(|tree| tree.access).max();
            let is_writable = access == Some(TreeAccess::Write);
            // If a link replaces the folder before `..`, the path leads to another place.
            if own.path.ends_with("..") {
                if is_writable && let Some(folder) = own.path.parent() {
                    held.extend(PinnedDirectory::keep_free(folder)?);
                }
                denied.left.insert(own.path.clone());
                continue;
            }
            if access.is_none() {
                continue;
            }
            // A command could create a missing folder or file with a configuration that applies
            // from then on. A path inside another one is protected together with that one.
            let is_inner =
                all.iter().any(|outer| outer.path != own.path && own.path.starts_with(&outer.path));
            if is_writable && !is_inner {
                held.extend(PinnedDirectory::keep_free(&own.path)?);
            }
            if own.secret {
                denied.hide(own.path.clone())?;
            } else {
                denied.freeze(own.path.clone())?;
            }
        }
        Ok(held)
    }
}

/// Freezes the parts of a git repository that decide what git runs, and reserves the missing parts.
fn protect_repository(
    repository: &Repository,
    writable: &[Tree],
    denied: &mut DeniedPaths,
    held: &mut Vec<PinnedDirectory>,
) -> Result<(), PlacesError> {
    denied.left.extend(repository.left.iter().map(|folder| folder.join("..")));
    // The command could create a missing folder that a path of the repository refers to.
    for folder in repository.left.iter().filter(|path| is_writable(writable, path)) {
        held.extend(PinnedDirectory::keep_free(folder)?);
    }

    let folder = &*repository.folder;
    let is_named = !repository.names.is_empty();
    let is_folder_writable = is_writable(writable, folder);
    if is_named
        && is_folder_writable
        && let Some(pinned) = PinnedDirectory::keep_free(folder)?
    {
        denied.frozen.insert(folder.to_owned());
        held.push(pinned);
        return Ok(());
    }

    if let Some(hooks) = repository.part("hooks")
        && is_writable(writable, hooks)
    {
        held.extend(PinnedDirectory::keep_free(hooks)?);
    }
    let is_repository = is_named || folder.join("HEAD").symlink_metadata().is_ok();
    if let Some(config) = repository.part("config")
        && is_repository
        && is_writable(writable, config)
        && config.symlink_metadata().is_err()
    {
        toolhold_data_dir::keep_empty(config)?;
    }
    if is_folder_writable {
        for hooks in repository.inner_hooks() {
            held.extend(PinnedDirectory::keep_free(&hooks)?);
        }
        denied.frozen.extend(repository.inner_parts());
    }
    Ok(())
}

/// Checks whether the innermost tree around a path is writable.
fn is_writable(trees: &[Tree], path: &Path) -> bool {
    let innermost = trees.iter().rfind(|tree| path.starts_with(&tree.path));
    innermost.is_some_and(|tree| tree.access == TreeAccess::Write)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Finds the kernel's file systems that are mounted inside of the trees.
fn find_kernel_mounts(trees: &[Tree], mounts: &Mounts) -> BTreeSet<PathBuf> {
    let mut points = BTreeSet::new();
    for tree in trees {
        let path = Path::new(&tree.path);
        let inside = mounts.below(path).filter(|mount| mount.point != path);
        let kernels = inside.filter(|mount| mount.is_kernels());
        points.extend(kernels.map(|mount| mount.point.clone()));
    }
    points
}

/// Returns the system settings that commands may not see: root's private files, and the files that
/// ssh refuses.
fn system_settings(namespaces: bool) -> Vec<PathBuf> {
    if rustix::process::geteuid().is_root() {
        private_settings()
    } else if namespaces {
        SSH_SETTINGS.iter().filter_map(|path| Path::new(path).canonicalize().ok()).collect()
    } else {
        Vec::new()
    }
}

/// Leaves only paths that are in the trees and exist.
fn retain_existing(denied: &mut DeniedPaths, trees: &[Tree]) {
    denied.hidden.retain(|path| exists_in(trees, path));
    denied.frozen.retain(|path| exists_in(trees, path));
    denied.left.retain(|path| path.exists());
}

fn exists_in(trees: &[Tree], path: &Path) -> bool {
    trees.iter().any(|tree| path.starts_with(&tree.path)) && std::fs::symlink_metadata(path).is_ok()
}

/// Hides the pipes that a command may not use. A read-only mount doesn't prevent writing to a pipe,
/// and reading from a pipe empties it.
fn hide_pipes(
    pipes: Vec<PathBuf>,
    trees: &[Tree],
    denied: &mut DeniedPaths,
) -> Result<(), PlacesError> {
    for pipe in pipes {
        let tree = trees.iter().rfind(|tree| pipe.starts_with(&tree.path));
        let is_read_only = tree.is_some_and(|tree| tree.access == TreeAccess::Read);
        let is_frozen = pipe.ancestors().any(|above| denied.frozen.contains(above));
        if is_read_only || is_frozen {
            denied.hide(pipe)?;
        }
    }
    Ok(())
}

/// Removes paths below a hidden path, since they are already invisible.
fn remove_covered(denied: &mut DeniedPaths) {
    let covers = denied.hidden.clone();
    denied.hidden.retain(|path| !is_covered(&covers, path));
    denied.frozen.retain(|path| !is_covered(&covers, path));
}

fn is_covered(covers: &BTreeSet<PathBuf>, path: &Path) -> bool {
    path.ancestors().skip(1).any(|above| covers.contains(above))
}

/// Returns the state that the trees must have when the command starts.
fn tree_state(trees: &[Tree], denied: &DeniedPaths) -> TreeState {
    let DeniedPaths { hidden, frozen, left } = denied;
    TreeState {
        found: trees.iter().map(|tree| identity(Path::new(&tree.path))).collect(),
        pinned: pinned(trees, hidden.iter().chain(frozen).chain(left).cloned()),
        hidden: hidden.iter().map(|path| text(path)).collect(),
        frozen: frozen.difference(hidden).map(|path| text(path)).collect(),
    }
}

/// Returns the current object of a real path, without following a link.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    let (_, _, identity) = open_itself(path.to_str()?).ok()??;
    Some(identity)
}

/// Returns the directories between a writable tree and denied paths in it, outer directories first.
fn pinned(trees: &[Tree], denied: impl Iterator<Item = PathBuf>) -> Vec<String> {
    // This includes read-only trees. In another place, such a tree would be writable together with
    // its parent.
    let read_only = trees
        .iter()
        .filter(|tree| tree.access == TreeAccess::Read)
        .map(|tree| PathBuf::from(&tree.path));
    // The depth of each folder determines the order.
    let mut folders = BTreeSet::new();
    for path in denied.chain(read_only) {
        let around = trees
            .iter()
            .rfind(|tree| path != Path::new(&tree.path) && path.starts_with(&tree.path));
        let Some(around) = around else { continue };
        if around.access != TreeAccess::Write {
            continue;
        }
        let top = Path::new(&around.path);
        for folder in path.ancestors().skip(1).take_while(|above| *above != top) {
            folders.insert((folder.components().count(), text(folder)));
        }
    }
    folders.into_iter().map(|(_, folder)| folder).collect()
}

/// Returns the files of `/etc` that aren't public. Users other than root can't read them anyway,
/// but root can.
fn private_settings() -> Vec<PathBuf> {
    static KNOWN: Mutex<Option<(Instant, Vec<PathBuf>)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((since, paths)) if since.elapsed() < PRIVATE_FOR => paths.clone(),
        _ => {
            let mut paths = Vec::new();
            private_below(Path::new("/etc"), 0, &mut paths);
            *known = Some((Instant::now(), paths.clone()));
            paths
        }
    }
}

fn private_below(folder: &Path, depth: usize, private: &mut Vec<PathBuf>) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        // The target of a link is checked at its own path.
        let Ok(metadata) = entry.metadata() else { continue };
        let mode = metadata.permissions().mode();
        if metadata.is_dir() {
            let everybody_enters = mode & 0o005 == 0o005;
            if !everybody_enters {
                private.push(entry.path());
            } else if depth < MAX_DEPTH {
                private_below(&entry.path(), depth + 1, private);
            }
        } else if metadata.is_file() && mode & 0o004 == 0 {
            private.push(entry.path());
        }
    }
}
