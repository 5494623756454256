//! Approves, installs, rolls back and removes versions of plugins in the lock file. An approval
//! applies to a name and a digest.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::PathBuf;

use semver::Version;
use toolhold_contract::HostError;
use toolhold_contract::text::shell_word;
use toolhold_data_dir::PrivateFolder;
use toolhold_engine::{Candidate, Origin, PluginInfo};
use toolhold_signing::{EXTENSION, join_signatures, read_signatures_beside};

use toolhold_config::Folders;
use toolhold_data_dir::state;

use super::lock_file::{ApprovedPlugin, FilePlace, LockFile, LockedPlugin, PluginSource};

const FILE: &str = "toolhold.lock";

/// One of several plugins in an installation.
#[derive(Clone, Debug)]
pub struct NewPlugin {
    /// The name of the plugin.
    pub name: String,
    /// The entry for the lock file.
    pub approved: ApprovedPlugin,
    /// The signatures of the component. They are stored next to the component.
    pub signatures: Vec<Vec<u8>>,
    /// The digest of the active version when the user decided, or `None` if the plugin wasn't
    /// installed.
    pub expected: Option<String>,
}

/// The approvals of a user, in the lock file.
///
/// A copy of each approved component is stored, so that the component still runs after its file is
/// replaced. Changes of the lock file are atomic. All functions block.
#[derive(Clone, Debug)]
pub struct PluginApprovals {
    data: PathBuf,
}

type LockedPlugins = BTreeMap<String, LockedPlugin>;

impl PluginApprovals {
    /// Opens the approvals in the data folder.
    pub fn open(folders: &Folders) -> Self {
        Self { data: folders.operator_data().to_owned() }
    }

    /// Returns the path of the lock file.
    pub fn file(&self) -> PathBuf {
        self.data.join(FILE)
    }

    /// Returns all plugins in the lock file, by name.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the file can't be read, or if other users can write to its folder.
    pub fn all(&self) -> Result<BTreeMap<String, LockedPlugin>, HostError> {
        Ok(state::read::<LockFile>(&self.data, FILE)?.plugins)
    }

    /// Finishes an interrupted installation of a bundle. Call this function before reading the
    /// configuration, because a bundle may contain a configuration file.
    ///
    /// # Errors
    ///
    /// Returns an error if a file can't be moved to its destination. A damaged lock file is
    /// ignored, because a later read of the lock file reports the damage.
    pub fn finish(&self) -> Result<(), HostError> {
        if !state::exists(&self.data, FILE) {
            return Ok(());
        }
        let lock = state::read::<LockFile>(&self.data, FILE);
        let is_interrupted = lock.is_ok_and(|lock| !lock.pending.is_empty());
        if is_interrupted {
            // `update` moves the pending files.
            self.update(|_| Ok(()))?;
        }
        Ok(())
    }

    /// Changes the lock file, after finishing an interrupted installation.
    fn update<R>(
        &self,
        change: impl FnOnce(&mut LockedPlugins) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        state::update(&self.data, FILE, |lock: &mut LockFile| {
            lock.finish()?;
            change(&mut lock.plugins)
        })
    }

    /// Installs several components and files together.
    ///
    /// If the process ends early, the next [`finish`](Self::finish) activates all of them or none.
    /// Only one process at a time may call this function. `component` reads the component of a
    /// plugin.
    ///
    /// # Errors
    ///
    /// [`HostError`] if something can't be stored, if the active version of a plugin isn't the
    /// expected version, or if a component has another digest. Nothing changes then.
    pub fn install_all(
        &self,
        plugins: &[NewPlugin],
        files: &[(FilePlace, Vec<u8>)],
        component: impl Fn(&NewPlugin) -> Result<Candidate, HostError>,
    ) -> Result<(), HostError> {
        let mut has_staged = false;
        let written = state::update(&self.data, FILE, |lock: &mut LockFile| {
            lock.finish()?;
            let mut all = lock.plugins.clone();
            for plugin in plugins {
                check_unchanged(&all, &plugin.name, plugin.expected.as_deref())?;
            }
            let folder = PrivateFolder::make(&self.path()).map_err(self.storing_error())?;
            for plugin in plugins {
                let candidate = component(plugin)?;
                self.put(&folder, &candidate, plugin)?;
                activate(&mut all, &plugin.name, plugin.approved.clone());
            }
            // From here on, an error leaves staged files, which must be removed.
            has_staged = true;
            for (place, bytes) in files {
                let path = place.folder.join(&place.name);
                place.stage(bytes).map_err(HostError::io(path.display().to_string()))?;
            }
            lock.pending = files.iter().map(|(place, _)| place.clone()).collect();
            lock.plugins = all;
            Ok(())
        });
        if written.is_err() && has_staged {
            files.iter().for_each(|(place, _)| place.discard());
        }
        // `update` also moves the staged files to their destinations.
        let finished = self.update(|all| {
            if let Ok(folder) = PrivateFolder::open(&self.path()) {
                remove_unused(&folder, all);
            }
            Ok(())
        });
        written.and(finished)
    }

    /// Stores the component of a plugin of a bundle.
    ///
    /// # Errors
    ///
    /// Returns an error if the component has another digest than `plugin`, or can't be stored.
    fn put(
        &self,
        folder: &PrivateFolder,
        candidate: &Candidate,
        plugin: &NewPlugin,
    ) -> Result<(), HostError> {
        let digest = &plugin.approved.digest;
        let is_unchanged = candidate.info().digest == *digest;
        if is_unchanged && let Some(bytes) = candidate.bytes() {
            return put_component(folder, digest, bytes, &plugin.signatures)
                .map_err(self.storing_error());
        }
        Err(load_error(&plugin.name, "the component changed in the meantime; try again"))
    }

    /// Approves exactly this component for its name, in place of the previous approval. An
    /// [offered](Self::offer) update with this component is installed.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the approval can't be stored.
    pub fn approve(&self, candidate: &Candidate) -> Result<(), HostError> {
        // Ignore an unreadable signature here. If a signature is required, loading reports it.
        let signatures = match &candidate.info().origin {
            Origin::File(path) => read_signatures_beside(path).unwrap_or_default(),
            Origin::BuiltIn => Vec::new(),
        };
        let name = &candidate.info().manifest.name;
        self.store(candidate, &signatures, |all, mut approved| {
            if let Some(locked) = all.get(name)
                && let Some(offered) = &locked.offered
                && offered.digest == approved.digest
            {
                approved.source.clone_from(&offered.source);
            }
            activate(all, name, approved);
            Ok(())
        })
    }

    /// Installs and approves a component. The signatures are stored next to its copy.
    ///
    /// `expected` is the digest of the active version when the user decided, or `None` if the
    /// plugin wasn't installed.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the component can't be stored, or if the active version isn't `expected`.
    pub fn install(
        &self,
        candidate: &Candidate,
        source: PluginSource,
        signatures: &[Vec<u8>],
        expected: Option<&str>,
    ) -> Result<(), HostError> {
        let name = &candidate.info().manifest.name;
        self.store(candidate, signatures, |all, mut approved| {
            check_unchanged(all, name, expected)?;
            approved.source = Some(source);
            activate(all, name, approved);
            Ok(())
        })
    }

    /// Stores an update of an installed plugin until the update is approved. The active version
    /// runs meanwhile.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the update can't be stored, or if the active version isn't `expected`.
    pub fn offer(
        &self,
        candidate: &Candidate,
        source: PluginSource,
        signatures: &[Vec<u8>],
        expected: &str,
    ) -> Result<(), HostError> {
        let name = &candidate.info().manifest.name;
        self.store(candidate, signatures, |all, mut offered| {
            check_unchanged(all, name, Some(expected))?;
            offered.source = Some(source);
            if let Some(locked) = all.get_mut(name) {
                locked.offered = Some(offered);
            }
            Ok(())
        })
    }

    /// Activates the previous version again. Returns the new active version and the replaced
    /// version.
    ///
    /// # Errors
    ///
    /// [`HostError`] if there is no earlier version, or if the file can't be written.
    pub fn roll_back(&self, name: &str) -> Result<(ApprovedPlugin, ApprovedPlugin), HostError> {
        self.update(|all| {
            let locked = all.get_mut(name).ok_or_else(|| no_earlier(name))?;
            let earlier = locked.previous.first().cloned().ok_or_else(|| no_earlier(name))?;
            if self.component(name, &earlier)?.is_none() {
                return Err(load_error(
                    name,
                    "the copy of the earlier version is damaged, so nothing was changed",
                ));
            }
            // The replaced version isn't stored, so that a second rollback goes further back. An
            // update installs the newer version again.
            locked.previous.remove(0);
            let replaced = std::mem::replace(&mut locked.approved, earlier.clone());
            locked.offered = None;
            Ok((earlier, replaced))
        })
    }

    /// Removes a plugin and its copies. Returns `false` if the lock file doesn't contain the
    /// plugin.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the file can't be written.
    pub fn remove(&self, name: &str) -> Result<bool, HostError> {
        let remaining = self.update(|all| match all.remove(name) {
            Some(_) => Ok(Some(all.clone())),
            None => Ok(None),
        })?;
        let Some(remaining) = remaining else { return Ok(false) };
        if let Ok(folder) = PrivateFolder::open(&self.path()) {
            remove_unused(&folder, &remaining);
        }
        Ok(true)
    }

    /// Stores a component, and then changes the lock file with `change`. This order guarantees that
    /// every approved component exists.
    fn store(
        &self,
        candidate: &Candidate,
        signatures: &[Vec<u8>],
        change: impl FnOnce(&mut LockedPlugins, ApprovedPlugin) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        let PluginInfo { manifest, digest, .. } = &**candidate.info();
        let digest = digest.clone();
        let version = manifest.version.clone();
        let bytes = candidate.bytes().ok_or_else(|| {
            load_error(
                &manifest.name,
                "the component can't be stored, because the file wasn't read",
            )
        })?;
        self.update(|all| {
            let folder = PrivateFolder::make(&self.path()).map_err(self.storing_error())?;
            put_component(&folder, &digest, bytes, signatures).map_err(self.storing_error())?;
            let result = change(all, ApprovedPlugin { digest, version, source: None });
            // Removes the new copy if the change was refused.
            remove_unused(&folder, all);
            result
        })
    }

    fn storing_error(&self) -> impl FnOnce(io::Error) -> HostError + use<> {
        HostError::io(format!("can't store components in {}", self.path().display()))
    }

    /// Returns the stored copy of an approved component, or `None` if the copy has changed.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the copy can't be read.
    pub fn component(
        &self,
        name: &str,
        approved: &ApprovedPlugin,
    ) -> Result<Option<Candidate>, HostError> {
        let path = self.copy_path(approved);
        let file = self.open_copy(approved).map_err(HostError::io(path.display().to_string()))?;
        let candidate = Candidate::opened(file, &path)?.under(name);
        let info = candidate.info();
        let is_approved = info.digest == approved.digest && info.manifest.name == name;
        Ok(if is_approved { Some(candidate) } else { None })
    }

    /// Returns the path of the stored copy of a component. Its signatures are next to the copy.
    pub fn copy_path(&self, approved: &ApprovedPlugin) -> PathBuf {
        self.path().join(file_name(&approved.digest))
    }

    /// Opens the file at [`copy_path`](Self::copy_path) without checking its content.
    pub(super) fn open_copy(&self, approved: &ApprovedPlugin) -> io::Result<File> {
        PrivateFolder::open(&self.path())?.file(&file_name(&approved.digest))
    }

    fn path(&self) -> PathBuf {
        self.data.join("approved")
    }
}

fn load_error(plugin: &str, reason: &str) -> HostError {
    HostError::Load { plugin: plugin.to_owned(), reason: reason.to_owned() }
}

fn activate(all: &mut LockedPlugins, name: &str, approved: ApprovedPlugin) {
    match all.get_mut(name) {
        Some(locked) => locked.replace(approved),
        None => {
            all.insert(name.to_owned(), LockedPlugin::new(approved));
        }
    }
}

fn no_earlier(name: &str) -> HostError {
    load_error(name, "no earlier version is stored")
}

/// Checks that the active version hasn't changed since the user's decision.
fn check_unchanged(
    all: &LockedPlugins,
    name: &str,
    expected: Option<&str>,
) -> Result<(), HostError> {
    let active = all.get(name).map(|locked| &*locked.approved.digest);
    if active == expected {
        Ok(())
    } else {
        Err(load_error(name, "another process changed the plugin in the meantime; try again"))
    }
}

/// Removes copies of components that the lock file doesn't contain. Errors are ignored, because
/// unused files only take space.
fn remove_unused(folder: &PrivateFolder, all: &LockedPlugins) {
    let mut used_names = HashSet::new();
    for version in all.values().flat_map(LockedPlugin::versions) {
        used_names.insert(file_name(&version.digest));
    }
    for name in folder.names(usize::MAX).unwrap_or_default() {
        // The files of signatures are named after their component, with an extension.
        let component_name = name.strip_suffix(EXTENSION).unwrap_or(&name);
        if !used_names.contains(component_name) {
            let _ = folder.remove(&name);
        }
    }
}

fn file_name(digest: &str) -> String {
    format!("{digest}.wasm")
}

/// Stores a component and its signatures. The signatures come first, so that a signed component
/// never exists without them.
fn put_component(
    folder: &PrivateFolder,
    digest: &str,
    component: &[u8],
    signatures: &[Vec<u8>],
) -> io::Result<()> {
    let name = file_name(digest);
    if !signatures.is_empty() {
        folder.put(&format!("{name}{EXTENSION}"), &join_signatures(signatures))?;
    }
    folder.put(&name, component)
}

/// Returns the reason why a component without approval is held, and the remedy.
pub(super) fn hold_reason(
    name: &str,
    info: &PluginInfo,
    approved: Option<&ApprovedPlugin>,
) -> String {
    let version = &info.manifest.version;
    let old_version = approved.map(|approved| &approved.version);
    let what = match old_version {
        None => format!("version {version} was never approved"),
        Some(old) if old == version => {
            format!("the component changed, but the version is still {version}")
        }
        Some(old) if compare_versions(version, old) == Some(Ordering::Less) => {
            format!(
                "version {version} isn't approved and is a downgrade from the approved version {old}"
            )
        }
        Some(old) => format!("version {version} isn't approved; the approved version is {old}"),
    };
    let name = shell_word(name);
    format!(
        "{what}; check the component with `toolhold plugin inspect {name}`, then run `toolhold \
         plugin approve {name}`"
    )
}

/// Compares two versions as semantic versions. `1` and `1.0` are equal to `1.0.0`. Returns `None`
/// if a version has another form.
pub fn compare_versions(version: &str, other: &str) -> Option<Ordering> {
    let version = parse_version(version)?;
    let other = parse_version(other)?;
    Some(version.cmp_precedence(&other))
}

fn parse_version(version: &str) -> Option<Version> {
    /// Dots between the three numbers of a semantic version.
    const DOTS: usize = 2;
    let numbers_end = version.find(['-', '+']).unwrap_or(version.len());
    let (numbers, suffix) = version.split_at(numbers_end);
    let missing_numbers = DOTS.saturating_sub(numbers.matches('.').count());
    let zeros = ".0".repeat(missing_numbers);
    Version::parse(&format!("{numbers}{zeros}{suffix}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_semantic_versions() {
        for (version, other, expected) in [
            ("1.9.0", "1.10.0", Some(Ordering::Less)),
            ("1.10.0", "1.9.0", Some(Ordering::Greater)),
            ("1.0", "1.0.0", Some(Ordering::Equal)),
            ("1.0.0-alpha", "1.0.0", Some(Ordering::Less)),
            ("1.0.0-alpha.2", "1.0.0-alpha.10", Some(Ordering::Less)),
            ("2-rc1", "2", Some(Ordering::Less)),
            ("1.0.0+b", "1.0.0+a", Some(Ordering::Equal)),
            ("a", "1", None),
            ("1", "99999999999999999999.0.0", None),
            ("1.2.3.4", "1.2.3", None),
            ("", "1", None),
        ] {
            assert_eq!(compare_versions(version, other), expected, "{version} {other}");
        }
    }
}
