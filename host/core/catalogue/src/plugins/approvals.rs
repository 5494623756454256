//! Reads and changes the lock file: approves, installs, rolls back and removes versions of plugins.
//! An approval applies to a name and a digest.

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

/// The file in the data folder.
const FILE: &str = "toolhold.lock";

/// One of several plugins that are installed in one step.
#[derive(Clone, Debug)]
pub struct NewPlugin {
    /// The name of the plugin.
    pub name: String,
    /// The entry for the lock file.
    pub approved: ApprovedPlugin,
    /// The signatures of the component, which are stored next to it.
    pub signatures: Vec<Vec<u8>>,
    /// The digest of the active version at the time of the user's decision. `None` means that there
    /// was no version.
    pub expected: Option<String>,
}

/// The approvals of a user, in the lock file.
///
/// A copy of each approved component is stored, so that the component still runs if its file is
/// replaced. Each change of the lock file is atomic: a reader sees the state before or after it.
/// The functions block.
#[derive(Clone, Debug)]
pub struct PluginApprovals {
    data: PathBuf,
}

type All = BTreeMap<String, LockedPlugin>;

impl PluginApprovals {
    /// Returns the approvals in the data folder.
    pub fn open(folders: &Folders) -> Self {
        Self { data: folders.data.clone() }
    }

    /// Returns the lock file.
    pub fn file(&self) -> PathBuf {
        self.data.join(FILE)
    }

    /// Returns every plugin of the lock file, by name.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the file can't be read, or if other users can write to its folder.
    pub fn all(&self) -> Result<BTreeMap<String, LockedPlugin>, HostError> {
        Ok(state::read::<LockFile>(&self.data, FILE)?.plugins)
    }

    /// Finishes an interrupted installation of a bundle that is already active. Call this function
    /// before the configuration is read.
    ///
    /// # Errors
    ///
    /// Returns an error if a file can't be moved to its destination. A damaged lock file isn't
    /// reported here.
    pub fn finish(&self) -> Result<(), HostError> {
        if !state::exists(&self.data, FILE) {
            return Ok(());
        }
        match state::read::<LockFile>(&self.data, FILE) {
            Ok(lock) if !lock.pending.is_empty() => self.update(|_| Ok(())),
            _ => Ok(()),
        }
    }

    /// Changes the lock file, once an interrupted installation is finished.
    fn update<R>(
        &self,
        change: impl FnOnce(&mut All) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        state::update(&self.data, FILE, |lock: &mut LockFile| {
            lock.finish()?;
            change(&mut lock.plugins)
        })
    }

    /// Installs several components and files in one step.
    ///
    /// If the process ends early, the next [`finish`](Self::finish) activates all of them or none.
    /// Only one process at a time may call this function. `component` reads one of `plugins`.
    ///
    /// # Errors
    ///
    /// [`HostError`] if something can't be stored, if another version of a plugin is active by now,
    /// or if a component has another digest. In these cases nothing changes.
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
                put_in_force(&mut all, &plugin.name, plugin.approved.clone());
            }
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
        let finished = self.update(|all| {
            if let Ok(folder) = PrivateFolder::open(&self.path()) {
                remove_unused(&folder, all);
            }
            Ok(())
        });
        written.and(finished)
    }

    /// Stores the component of a new plugin.
    fn put(
        &self,
        folder: &PrivateFolder,
        candidate: &Candidate,
        plugin: &NewPlugin,
    ) -> Result<(), HostError> {
        let digest = &plugin.approved.digest;
        let is_unchanged = candidate.info().digest == *digest;
        match candidate.bytes() {
            Some(bytes) if is_unchanged => put_component(folder, digest, bytes, &plugin.signatures)
                .map_err(self.storing_error()),
            _ => Err(failed(&plugin.name, "its component changed meanwhile; try again")),
        }
    }

    /// Approves exactly this component for its name, in place of the previous approval. An
    /// [offered](Self::offer) update is installed.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the approval can't be stored.
    pub fn approve(&self, candidate: &Candidate) -> Result<(), HostError> {
        // A signature that can't be read isn't valid, and is reported when it is needed.
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
            put_in_force(all, name, approved);
            Ok(())
        })
    }

    /// Installs a component and approves it. The signatures are stored next to the component's
    /// copy.
    ///
    /// `expected` is the digest of the active version at the time of the user's decision, or `None`
    /// if there was no plugin with this name.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the component can't be stored, or if another version is active by now.
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
            put_in_force(all, name, approved);
            Ok(())
        })
    }

    /// Stores an update of an installed plugin until it is approved. The active version runs
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the update can't be stored, or if another version is active by now.
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

    /// Activates the previous version again. Returns the new active version and the version that it
    /// replaced.
    ///
    /// # Errors
    ///
    /// [`HostError`] if there is no earlier version, or if the file can't be written.
    pub fn roll_back(&self, name: &str) -> Result<(ApprovedPlugin, ApprovedPlugin), HostError> {
        self.update(|all| {
            let locked = all.get_mut(name).ok_or_else(|| no_earlier(name))?;
            let earlier = locked.previous.first().cloned().ok_or_else(|| no_earlier(name))?;
            if self.component(name, &earlier)?.is_none() {
                return Err(failed(
                    name,
                    "the copy of its earlier version is damaged, so nothing was changed",
                ));
            }
            // The replaced version isn't stored. So a second rollback goes further back, and an
            // update installs the newer version again.
            locked.previous.remove(0);
            let replaced = std::mem::replace(&mut locked.approved, earlier.clone());
            locked.offered = None;
            Ok((earlier, replaced))
        })
    }

    /// Removes a plugin from the lock file, with its copies. Returns whether the lock file
    /// contained it.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the file can't be written.
    pub fn remove(&self, name: &str) -> Result<bool, HostError> {
        let remaining = self.update(|all| Ok(all.remove(name).map(|_| all.clone())))?;
        let Some(remaining) = remaining else { return Ok(false) };
        if let Ok(folder) = PrivateFolder::open(&self.path()) {
            remove_unused(&folder, &remaining);
        }
        Ok(true)
    }

    /// Stores the component before it changes the lock file, so that each approval has its
    /// component.
    fn store(
        &self,
        candidate: &Candidate,
        signatures: &[Vec<u8>],
        change: impl FnOnce(&mut All, ApprovedPlugin) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        let PluginInfo { manifest, digest, .. } = &**candidate.info();
        let digest = digest.clone();
        let version = manifest.version.clone();
        let bytes = candidate
            .bytes()
            .ok_or_else(|| failed(&manifest.name, "its file wasn't read, so it can't be kept"))?;
        self.update(|all| {
            let folder = PrivateFolder::make(&self.path()).map_err(self.storing_error())?;
            put_component(&folder, &digest, bytes, signatures).map_err(self.storing_error())?;
            let result = change(all, ApprovedPlugin { digest, version, source: None });
            // The copies for a rejected change are also removed.
            remove_unused(&folder, all);
            result
        })
    }

    fn storing_error(&self) -> impl FnOnce(io::Error) -> HostError + use<> {
        HostError::io(format!("storing {}", self.path().display()))
    }

    /// Returns the stored copy of the approved component, or `None` if the copy has changed since
    /// the approval.
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
        Ok(is_approved.then_some(candidate))
    }

    /// Returns the path of the stored copy of a component. The signatures of the component are next
    /// to the copy.
    pub fn copy_path(&self, approved: &ApprovedPlugin) -> PathBuf {
        self.path().join(file_name(&approved.digest))
    }

    /// Opens the file at [`copy_path`](Self::copy_path) without checking its contents.
    pub(super) fn open_copy(&self, approved: &ApprovedPlugin) -> io::Result<File> {
        PrivateFolder::open(&self.path())?.file(&file_name(&approved.digest))
    }

    /// Returns the folder of the copies.
    fn path(&self) -> PathBuf {
        self.data.join("approved")
    }
}

fn failed(plugin: &str, reason: &str) -> HostError {
    HostError::Load { plugin: plugin.to_owned(), reason: reason.to_owned() }
}

fn put_in_force(all: &mut All, name: &str, approved: ApprovedPlugin) {
    match all.get_mut(name) {
        Some(locked) => locked.replace(approved),
        None => drop(all.insert(name.to_owned(), LockedPlugin::new(approved))),
    }
}

fn no_earlier(name: &str) -> HostError {
    failed(name, "no earlier version of it is kept")
}

/// Checks the active version. A decision of the user applies only if this version hasn't changed
/// since.
fn check_unchanged(all: &All, name: &str, expected: Option<&str>) -> Result<(), HostError> {
    let digest = all.get(name).map(|locked| &*locked.approved.digest);
    if digest == expected {
        Ok(())
    } else {
        Err(failed(name, "another process changed it meanwhile; try again"))
    }
}

/// Removes components that the lock file doesn't contain. Errors are ignored, because these files
/// only use space.
fn remove_unused(folder: &PrivateFolder, all: &All) {
    let used: HashSet<String> =
        all.values().flat_map(LockedPlugin::versions).map(|one| file_name(&one.digest)).collect();
    for name in folder.names(usize::MAX).unwrap_or_default() {
        if !used.contains(name.strip_suffix(EXTENSION).unwrap_or(&name)) {
            let _ = folder.remove(&name);
        }
    }
}

fn file_name(digest: &str) -> String {
    format!("{digest}.wasm")
}

/// Stores a component after its signatures, so that a signed component never exists without them.
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

/// Returns the reason why a component without an approval is held back, and what to do.
pub(super) fn hold_reason(
    name: &str,
    info: &PluginInfo,
    approved: Option<&ApprovedPlugin>,
) -> String {
    let version = &info.manifest.version;
    let what = match approved {
        None => format!("version {version} was never approved"),
        Some(ApprovedPlugin { version: old, .. }) if old == version => {
            format!("it changed, but its version is still {version}")
        }
        Some(ApprovedPlugin { version: old, .. })
            if compare_versions(version, old) == Some(Ordering::Less) =>
        {
            format!(
                "version {version} isn't approved and is a downgrade from the approved version {old}"
            )
        }
        Some(ApprovedPlugin { version: old, .. }) => {
            format!("version {version} isn't approved; the approved version is {old}")
        }
    };
    let name = shell_word(name);
    format!(
        "{what}; inspect it with `toolhold plugin inspect {name}`, then run `toolhold plugin approve {name}`"
    )
}

/// Compares two versions as semantic versions. One or two missing numbers at the end are treated as
/// 0. Returns `None` if one of the versions has another form.
pub fn compare_versions(version: &str, other: &str) -> Option<Ordering> {
    let version = parse_version(version)?;
    let other = parse_version(other)?;
    Some(version.cmp_precedence(&other))
}

fn parse_version(version: &str) -> Option<Version> {
    let numbers_end = version.find(['-', '+']).unwrap_or(version.len());
    let (numbers, suffix) = version.split_at(numbers_end);
    let missing_numbers = 2_usize.saturating_sub(numbers.matches('.').count());
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
