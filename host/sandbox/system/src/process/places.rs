//! Decides which paths the commands of a plugin may see and change: the plugin's directories, and
//! the parts of the system that programs need. Commands can't create files that other programs run
//! later, such as a git hook.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
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
use super::limits::{MAX_CHECKED, MAX_DENIED, MAX_DEPTH, PlacesError};
use super::network::{NetworkSockets, SharedNetwork};
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

/// Folders with ssh settings. ssh refuses settings that belong to other users. In the user
/// namespace of an ordinary user, root's files belong to nobody, so ssh would refuse them.
const SSH_SETTINGS: [&str; 2] = ["/etc/ssh/ssh_config.d", "/usr/etc/ssh/ssh_config.d"];

/// How long the list of private files of `/etc` is valid.
const REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// The paths that commands of one plugin may use, and their sandbox. Each policy makes this value
/// once.
#[derive(Debug)]
pub struct Places {
    /// The plugin's directories and their rules.
    pub grants: Arc<Grants>,
    /// Real paths of other trees for the commands, such as caches of build tools.
    pub also: Vec<Tree>,
    /// Real paths that are hidden in all trees: files with credentials.
    pub also_hidden: Vec<PathBuf>,
    /// Sockets, and folders of sockets, that commands may connect to. A link in this list doesn't
    /// allow its target.
    pub sockets: Vec<PathBuf>,
    /// How complete the sandbox must be.
    pub sandbox: Sandbox,
    /// The limits of each command.
    pub limits: Limits,
    /// The home of the commands: an empty private directory, except for granted paths in it.
    pub home: Option<PathBuf>,
    /// The helper program, whose `main` starts with the helper hook. If it is `None`, no command
    /// starts.
    pub helper: Option<PathBuf>,
    /// State of earlier commands.
    pub known: RememberedPlaces,
}

/// A relay, and the network that it serves. Without one, its commands are in the machine's network.
pub type Relayed<R> = (Option<Arc<SharedNetwork>>, Arc<R>);

/// State of earlier commands of a plugin that later commands reuse.
#[derive(Debug, Default)]
pub struct RememberedPlaces {
    pub(super) without_namespaces: AtomicBool,
    /// Prepared helpers that wait for their commands.
    pub(super) warm: WarmSlot,
    pub(super) sockets: RememberedScan,
}

impl Places {
    /// Decides on the sandbox of a command. Reads the directories, so it may block.
    pub(super) fn sandbox(
        &self,
        command: &Command,
        namespaces: bool,
    ) -> Result<CommandSandbox, PlacesError> {
        let wanted = self.wanted_trees(command);
        let mounts = Mounts::current().map_err(|errno| {
            PlacesError::Unreadable("/proc/self/mountinfo".into(), errno.into())
        })?;
        let mut trees = self.mounted_trees(wanted, &mounts);
        if namespaces && trees.iter().any(|tree| tree.path == "/") {
            return Err(PlacesError::Root);
        }
        // The directories in `held` reserve missing paths while the command runs.
        let (denied, held) = self.denied(command, namespaces, &mut trees, &mounts)?;
        let state = tree_state(&trees, &denied);
        let has_own_network = namespaces && !command.network;
        let network = if has_own_network { command.shared_network.clone() } else { None };
        // Without namespaces, the host makes the connections itself.
        let has_relay = network.is_some() || !namespaces;
        let relayed = has_relay && !command.network && command.connections.is_some();
        // Only a view has the file with the certificate.
        let trusts_authority = relayed && namespaces;
        let preparation = Preparation {
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            sandbox: self.sandbox,
            namespaces,
            network: command.network,
            shared_network: network.as_ref().map(|network| network.number),
            recorded: recording_of(command),
            relayed,
            authority: if trusts_authority { command.authority.clone() } else { None },
            trees,
            home: self.home.as_deref().map(text),
            limits: self.limits,
        };
        Ok(CommandSandbox { preparation, mounts, network, state, held })
    }

    /// Returns the trees that a command needs, and the access to each. Some trees may be missing.
    fn wanted_trees(&self, command: &Command) -> BTreeMap<String, TreeAccess> {
        let mut wanted = BTreeMap::new();
        for path in SYSTEM {
            wanted.insert(path.to_owned(), TreeAccess::Read);
        }
        for path in command.path_folders() {
            wanted.insert(path, TreeAccess::Read);
        }
        // A later entry with the same path replaces an earlier one, so the entries of the operator
        // come last.
        for tree in &self.also {
            wanted.insert(tree.path.clone(), tree.access);
        }
        for grant in self.grants.rules().grants() {
            let is_writable = grant.access == Access::Write;
            let access = if is_writable { TreeAccess::Write } else { TreeAccess::Read };
            wanted.insert(text(&grant.path), access);
        }
        wanted
    }

    /// Returns the trees that are mounted. An outer tree comes before its inner trees.
    fn mounted_trees(&self, wanted: BTreeMap<String, TreeAccess>, mounts: &Mounts) -> Vec<Tree> {
        let mut trees: Vec<Tree> = Vec::with_capacity(wanted.len());
        for (path, access) in wanted {
            // A procfs shows other processes, and the memory of this process. Commands have their
            // own procfs.
            let is_in_proc = mounts.mount_of(Path::new(&path)).is_some_and(Mount::is_proc);
            if !is_in_proc {
                trees.push(Tree { path, access });
            }
        }
        // An outer tree has fewer components than its inner trees.
        trees.sort_by_key(|tree| tree.path.split('/').count());
        let mut needed = without_contained(trees);
        needed.retain_mut(|tree| self.limit_in_own_folders(tree));
        needed
    }

    /// Removes write access to a tree in one of Toolhold's own folders. Returns false for a tree in
    /// a secret folder, which must not be mounted.
    fn limit_in_own_folders(&self, tree: &mut Tree) -> bool {
        let is_given_by_host = self.also.iter().any(|given| given.path == tree.path);
        if is_given_by_host {
            return true;
        }
        let path = Path::new(&tree.path);
        let own = self.grants.rules().own().iter();
        let outer_folders: Vec<&OwnFolder> =
            own.filter(|own| path != own.path && path.starts_with(&own.path)).collect();
        if !outer_folders.is_empty() {
            tree.access = TreeAccess::Read;
        }
        let is_in_secret = outer_folders.iter().any(|own| own.secret);
        !is_in_secret
    }

    /// Returns the paths that a command may not see or change, and the directories that reserve
    /// missing paths. Removes trees that the rules for the call deny as a whole.
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
        let kernel_mounts = find_kernel_mounts(trees, mounts);
        denied.hidden.extend(kernel_mounts.iter().cloned());
        denied.hidden.extend(system_settings(namespaces));
        // The paths up to here may be missing, or outside of the trees.
        retain_existing(&mut denied, trees);

        let mut pipes = Vec::new();
        // Without namespaces, a command has no view. Then it can't create a socket with a path, so
        // it can't connect to other programs' sockets.
        if namespaces {
            pipes = self.deny_sockets(&mut denied, kernel_mounts, mounts)?;
        }
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

    /// Hides sockets of other programs in the granted directories, and freezes files with
    /// Toolhold's own names. Doesn't search in `kernel_mounts`. Returns the named pipes.
    fn deny_sockets(
        &self,
        denied: &mut DeniedPaths,
        kernel_mounts: BTreeSet<PathBuf>,
        mounts: &Arc<Mounts>,
    ) -> Result<Vec<PathBuf>, PlacesError> {
        let mut skipped = kernel_mounts;
        skipped.extend(denied.hidden.iter().cloned());
        skipped.extend(self.sockets.iter().cloned());
        let scope = Scope { skipped, roots: self.outer_grants() };
        let scan = self.known.sockets.search(scope, mounts)?;
        for path in scan.own_names {
            denied.freeze(path)?;
        }
        for path in scan.sockets.into_iter().chain(scan.unreadable) {
            denied.hide(path)?;
        }
        Ok(scan.pipes)
    }

    /// Returns the granted directories that aren't inside of another granted directory, and the
    /// object at the path of each.
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

    /// Denies the paths in the granted directories that the globs and the rules for the call deny.
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
                entries_left: MAX_CHECKED,
            };
            let depth = 0;
            let is_writable = grant.access == Access::Write;
            walk.check_folder(&grant.path, depth, is_writable)?;
        }
        Ok(())
    }

    /// Returns the network of a session's commands, and makes it if it is missing. Blocks. Returns
    /// `None` if this machine can't make a network and the sandbox may lack it.
    ///
    /// # Errors
    ///
    /// Returns an error if this machine can't make a network and the sandbox must have it.
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
            Err(error) => {
                Err(StartError::Sandbox(format!("the session's network can't be set up: {error}")))
            }
        }
    }

    /// Returns the relay of a session's commands, and the network that it serves. Makes them if they
    /// are missing: `start` gets the sockets in the network, or `None` if this machine has no
    /// namespaces. Then the commands are in the machine's network, and the relay serves no network.
    /// Blocks. Returns `None` if there is no sandbox.
    ///
    /// # Errors
    ///
    /// Returns an error if the relay can't be started, and the error of
    /// [`shared_network`](Self::shared_network).
    pub fn relay<R: Any + Send + Sync>(
        &self,
        session: &SessionNetwork,
        start: fn(Option<NetworkSockets>) -> io::Result<R>,
    ) -> Result<Option<Relayed<R>>, StartError> {
        let may_lack_network = self.sandbox == Sandbox::BestEffort;
        if let Some(network) = self.shared_network(session)? {
            match network.relay(|sockets| start(Some(sockets))) {
                Ok(relay) => return Ok(Some((Some(network), relay))),
                // Some machines allow namespaces, but no rights in them.
                Err(_) if may_lack_network => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !may_lack_network {
            return Ok(None);
        }
        Ok(Some((None, session.get_or_make(|| start(None))?)))
    }

    pub(crate) fn tries_namespaces(&self) -> bool {
        self.sandbox != Sandbox::Off && !self.known.without_namespaces.load(Ordering::Relaxed)
    }

    /// Protects Toolhold's own files below the trees, and the files that git would run, whatever
    /// the globs say. `view` means that the command has its own view. Returns the directories that
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
            // Only existing files are protected. A new file with this name can only add
            // restrictions. A reserved path would be visible to every program that lists the
            // directory.
            let own_files = OWN_NAMES.iter().map(|name| root.join(name));
            denied.frozen.extend(own_files.filter(|path| path.exists()));

            let repository = Repository::find(root);
            protect_repository(&repository, writable, denied, &mut held)?;
            denied.frozen.extend(repository.names.iter().cloned());
            for path in repository.later.iter().filter(|path| path.exists()) {
                // A part of the repository with its own grant may be changed.
                let has_own_grant = roots.iter().any(|other| {
                    let is_part = other != root && other.starts_with(&repository.folder);
                    is_part && path.starts_with(other)
                });
                if !has_own_grant {
                    denied.frozen.insert(path.clone());
                }
            }
        }
        Ok(held)
    }

    /// Hides Toolhold's own secret folders below the trees and freezes its other folders, under all
    /// their names. Returns the directories that reserve missing folders.
    fn protect_own_folders(
        &self,
        trees: &[Tree],
        denied: &mut DeniedPaths,
    ) -> Result<Vec<PinnedDirectory>, PlacesError> {
        let mut held = Vec::new();
        let aliases = self.grants.aliases();
        let all = self.grants.rules().own();
        // Commands have their own procfs.
        let folders = all.iter().filter(|own| own.path != Path::new("/proc"));
        for own in folders.chain(aliases.iter()) {
            let outer_trees = trees.iter().filter(|tree| own.path.starts_with(&tree.path));
            let access = outer_trees.map(|tree| tree.access).max();
            let is_writable = access == Some(TreeAccess::Write);
            // If a link replaced the folder before `..`, the path would lead to another folder. So
            // the folder must stay in place.
            if own.path.ends_with("..") {
                if is_writable && let Some(folder) = own.path.parent() {
                    held.extend(PinnedDirectory::keep_free(folder)?);
                }
                denied.left.insert(own.path.clone());
                continue;
            }
            let is_outside_of_trees = access.is_none();
            if is_outside_of_trees {
                continue;
            }
            // A command could create a missing folder or file with configuration. A path inside of
            // another own path is protected with that path.
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

/// Freezes the parts of a git repository that decide what git runs, and reserves missing parts.
fn protect_repository(
    repository: &Repository,
    writable: &[Tree],
    denied: &mut DeniedPaths,
    held: &mut Vec<PinnedDirectory>,
) -> Result<(), PlacesError> {
    denied.left.extend(repository.left.iter().map(|folder| folder.join("..")));
    // The command could create a missing folder in a path of the repository.
    for folder in repository.left.iter().filter(|path| is_writable(writable, path)) {
        held.extend(PinnedDirectory::keep_free(folder)?);
    }

    let folder = &*repository.folder;
    let is_folder_writable = is_writable(writable, folder);
    // A link or a `.git` file may lead to a folder that is missing. Then the whole folder is
    // reserved, because the command could create it.
    let is_named = !repository.names.is_empty();
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

fn is_writable(trees: &[Tree], path: &Path) -> bool {
    let innermost = trees.iter().rfind(|tree| path.starts_with(&tree.path));
    innermost.is_some_and(|tree| tree.access == TreeAccess::Write)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns the mount points of the kernel's own file systems in the trees.
fn find_kernel_mounts(trees: &[Tree], mounts: &Mounts) -> BTreeSet<PathBuf> {
    let mut points = BTreeSet::new();
    for tree in trees {
        let path = Path::new(&tree.path);
        for mount in mounts.below(path) {
            let is_root_of_tree = mount.point == path;
            if !is_root_of_tree && mount.is_kernels() {
                points.insert(mount.point.clone());
            }
        }
    }
    points
}

/// Returns the system settings that commands may not see. For root, these are the private files.
/// For other users in a user namespace, these are the files whose owner ssh would refuse.
fn system_settings(namespaces: bool) -> Vec<PathBuf> {
    if rustix::process::geteuid().is_root() {
        private_settings()
    } else if namespaces {
        SSH_SETTINGS.iter().filter_map(|path| Path::new(path).canonicalize().ok()).collect()
    } else {
        Vec::new()
    }
}

fn retain_existing(denied: &mut DeniedPaths, trees: &[Tree]) {
    denied.hidden.retain(|path| exists_in(trees, path));
    denied.frozen.retain(|path| exists_in(trees, path));
    denied.left.retain(|path| path.exists());
}

fn exists_in(trees: &[Tree], path: &Path) -> bool {
    trees.iter().any(|tree| path.starts_with(&tree.path)) && std::fs::symlink_metadata(path).is_ok()
}

/// Hides the pipes that a command may not write, because reading from a pipe empties it, and a
/// read-only mount doesn't prevent writing to a pipe.
fn hide_pipes(
    pipes: Vec<PathBuf>,
    trees: &[Tree],
    denied: &mut DeniedPaths,
) -> Result<(), PlacesError> {
    for pipe in pipes {
        let innermost = trees.iter().rfind(|tree| pipe.starts_with(&tree.path));
        let is_read_only = innermost.is_some_and(|tree| tree.access == TreeAccess::Read);
        let is_frozen = pipe.ancestors().any(|above| denied.frozen.contains(above));
        if is_read_only || is_frozen {
            denied.hide(pipe)?;
        }
    }
    Ok(())
}

/// Removes paths below a hidden path, because they are already invisible.
fn remove_covered(denied: &mut DeniedPaths) {
    let covers = denied.hidden.clone();
    denied.hidden.retain(|path| !is_covered(&covers, path));
    denied.frozen.retain(|path| !is_covered(&covers, path));
}

fn is_covered(covers: &BTreeSet<PathBuf>, path: &Path) -> bool {
    path.ancestors().skip(1).any(|above| covers.contains(above))
}

/// Returns the objects at the paths of the trees, and the paths in the trees that need protection.
fn tree_state(trees: &[Tree], denied: &DeniedPaths) -> TreeState {
    let DeniedPaths { hidden, frozen, left } = denied;
    let all_denied = hidden.iter().chain(frozen).chain(left).cloned();
    TreeState {
        found: trees.iter().map(|tree| identity(Path::new(&tree.path))).collect(),
        pinned: directories_to_pin(trees, all_denied),
        hidden: hidden.iter().map(|path| text(path)).collect(),
        frozen: frozen.difference(hidden).map(|path| text(path)).collect(),
    }
}

/// Returns the current object at a real path, without following a link.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    let (_, _, identity) = open_itself(path.to_str()?).ok()??;
    Some(identity)
}

/// Returns the directories between a writable tree and the denied paths in it, outer directories
/// first.
fn directories_to_pin(trees: &[Tree], denied: impl Iterator<Item = PathBuf>) -> Vec<String> {
    // A read-only tree is protected too. If its parent moved, the tree would be writable there.
    let read_only_trees = trees
        .iter()
        .filter(|tree| tree.access == TreeAccess::Read)
        .map(|tree| PathBuf::from(&tree.path));
    // An outer directory has fewer components, so the set contains it before inner directories.
    let mut folders_by_depth = BTreeSet::new();
    for path in denied.chain(read_only_trees) {
        let next_outer = trees
            .iter()
            .rfind(|tree| path != Path::new(&tree.path) && path.starts_with(&tree.path));
        let Some(next_outer) = next_outer else { continue };
        if next_outer.access != TreeAccess::Write {
            continue;
        }
        let top = Path::new(&next_outer.path);
        let parents = path.ancestors().skip(1);
        for folder in parents.take_while(|above| *above != top) {
            folders_by_depth.insert((folder.components().count(), text(folder)));
        }
    }
    folders_by_depth.into_iter().map(|(_, folder)| folder).collect()
}

/// Removes the trees that are parts of an outer tree with the same access. In `trees`, an outer
/// tree comes before its inner trees.
fn without_contained(trees: Vec<Tree>) -> Vec<Tree> {
    let mut needed: Vec<Tree> = Vec::with_capacity(trees.len());
    for tree in trees {
        let next_outer =
            needed.iter().rfind(|outer| Path::new(&tree.path).starts_with(&outer.path));
        let is_contained = next_outer.is_some_and(|outer| outer.access == tree.access);
        if !is_contained {
            needed.push(tree);
        }
    }
    needed
}

/// Returns whether the changes of a command are recorded.
fn recording_of(command: &Command) -> Recorded {
    match &command.changes {
        None => Recorded::No,
        Some(changes) if changes.is_required() => Recorded::Required,
        Some(_) => Recorded::IfPossible,
    }
}

/// Returns the files of `/etc` that aren't public. The list is remembered for a while, because the
/// search is slow.
fn private_settings() -> Vec<PathBuf> {
    static KNOWN: Mutex<Option<(Instant, Vec<PathBuf>)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((since, paths)) = &*known
        && since.elapsed() < REMEMBERED_FOR
    {
        return paths.clone();
    }
    let mut paths = Vec::new();
    let depth = 0;
    private_below(Path::new("/etc"), depth, &mut paths);
    *known = Some((Instant::now(), paths.clone()));
    paths
}

/// The permission bits of all users to read an object, and to list and enter a folder.
const EVERYBODY_READS: u32 = 0o004;
const EVERYBODY_ENTERS: u32 = 0o005;

/// Adds the files and folders below `folder` that not every user may read to the list `private`.
/// Folders are searched to a limited depth.
fn private_below(folder: &Path, depth: usize, private: &mut Vec<PathBuf>) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        // For a link, this is the metadata of the link itself, because its target is checked at the
        // target's path.
        let Ok(metadata) = entry.metadata() else { continue };
        let mode = metadata.permissions().mode();
        if metadata.is_dir() {
            let is_public = mode & EVERYBODY_ENTERS == EVERYBODY_ENTERS;
            if !is_public {
                private.push(entry.path());
            } else if depth < MAX_DEPTH {
                private_below(&entry.path(), depth + 1, private);
            }
        } else if metadata.is_file() && mode & EVERYBODY_READS == 0 {
            private.push(entry.path());
        }
    }
}
