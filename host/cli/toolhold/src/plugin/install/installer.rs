//! Installs, updates, removes, rolls back and verifies plugins, and refuses an offer that the rules
//! or the user's own table don't allow.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use toolhold_core::config::insert::{self, WrittenGrants};
use toolhold_core::config::{self, Config, Folders};
use toolhold_core::{
    ApprovedPlugin, Difference, HostError, LockedPlugin, PluginApprovals, PluginInspection,
    SignerChange, compare_versions,
};

use toolhold_registry::Source;

use crate::plugin::install::names::check_name;
use crate::plugin::install::offer::{Offer, is_more};

/// The installed plugins of a user. The functions block, except the functions that load components.
pub(crate) struct Installer<'a> {
    pub(crate) folders: &'a Folders,
    pub(crate) loaded: &'a Config,
    built_in: &'a [&'a str],
    approvals: PluginApprovals,
}

/// The result of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    /// The offered version is in force.
    InForce,
    /// The offered version waits for approval, and the version before serves.
    Held,
}

/// The offer of a source, compared with the version in force.
#[derive(Debug)]
pub(crate) enum Comparison {
    /// The source gives the version that is in force.
    Same,
    /// The source gives another version.
    Other {
        /// The differences from the version in force.
        difference: Box<Difference>,
        /// The signers, if they differ.
        signer: Option<SignerChange>,
        /// Whether the update needs a new approval.
        is_more: bool,
    },
}

impl<'a> Installer<'a> {
    /// Makes an installer. `built_in` contains the names of the built-in plugins.
    pub(crate) fn new(folders: &'a Folders, loaded: &'a Config, built_in: &'a [&'a str]) -> Self {
        Self { folders, loaded, built_in, approvals: PluginApprovals::open(folders) }
    }

    /// Returns the installed plugins, by name.
    ///
    /// # Errors
    ///
    /// The lock file can't be read.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, LockedPlugin>, HostError> {
        let mut all = self.approvals.all()?;
        all.retain(|_, locked| locked.approved.source.is_some());
        Ok(all)
    }

    /// Returns the names and sources of plugins that the configuration names by a source but that
    /// aren't installed.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock file can't be read.
    pub(crate) fn wanted(&self) -> Result<Vec<(String, String)>, HostError> {
        let installed = self.all()?;
        let mut wanted = Vec::new();
        for (name, plugin) in &self.loaded.values.plugins {
            if !plugin.source.is_empty() && !installed.contains_key(name) {
                wanted.push((name.clone(), self.resolve_source(name, &plugin.source)));
            }
        }
        Ok(wanted)
    }

    /// Resolves the source in a plugin's table. As with `path`, a relative path starts at the
    /// folder of the file that contains the table.
    fn resolve_source(&self, name: &str, source: &str) -> String {
        let Ok(Source::Path(path)) = Source::parse(source) else { return source.to_owned() };
        if let Some(home) = &self.folders.home
            && let Some(below_home) = source.strip_prefix('~')
        {
            return home.join(below_home.trim_start_matches('/')).display().to_string();
        }
        if let config::Source::File { path: file, .. } =
            self.loaded.source(&format!("plugins.{name}.source"))
            && let Some(folder) = file.parent()
        {
            return folder.join(path).display().to_string();
        }
        path.display().to_string()
    }

    /// Checks whether an offer can be installed under its name. Call this before asking the person.
    ///
    /// # Errors
    ///
    /// Returns the reason and the remedy if the offer can't be installed.
    pub(crate) fn check_new(&self, offer: &Offer) -> Result<(), HostError> {
        let name = offer.name();
        let locked = self.approvals.all()?;
        if locked.get(name).is_some_and(|locked| locked.approved.source.is_some()) {
            return Err(failed(
                name,
                &format!(
                    "the plugin is already installed; to grant it more, run `toolhold plugin grant \
                     {name}`; to change the version, run `toolhold plugin update {name}`, or \
                     remove the plugin first"
                ),
            ));
        }
        self.check_table(name, offer.digest())?;
        let others: Vec<&str> = locked.keys().map(String::as_str).collect();
        self.check_name(name, &others)
    }

    /// Refuses an offer that the user's own table of a name doesn't allow.
    pub(crate) fn check_table(&self, name: &str, digest: &str) -> Result<(), HostError> {
        let Some(table) = self.loaded.values.plugins.get(name) else { return Ok(()) };
        if !table.path.is_empty() {
            return Err(failed(
                name,
                &format!(
                    "`path` in [plugins.{name}] of your configuration names another file; remove \
                     this line first"
                ),
            ));
        }
        let expected = table.digest.as_str();
        if !expected.is_empty() && expected != digest {
            return Err(failed(
                name,
                &format!(
                    "the component's digest is {digest}, but `digest` in [plugins.{name}] of your \
                     configuration is {expected}"
                ),
            ));
        }
        Ok(())
    }

    /// Refuses a new name that looks like another plugin's name. Other plugins are built-in,
    /// configured, or in `others`.
    pub(crate) fn check_name(&self, name: &str, others: &[&str]) -> Result<(), HostError> {
        let configured = self.loaded.values.plugins.keys().map(String::as_str);
        let others = others.iter().copied().chain(configured);
        check_name(name, self.built_in.iter().copied(), others)
            .map_err(|error| failed(name, &error.to_string()))
    }

    /// Installs an offer that a person approved, with the person's grants. The lock file is written
    /// last, and the plugin is used only after that.
    ///
    /// # Errors
    ///
    /// Returns an error if a file can't be written, or if another process has changed the plugin in
    /// the meantime.
    pub(crate) fn install(&self, offer: &Offer, grants: &WrittenGrants) -> Result<(), HostError> {
        self.check_new(offer)?;
        if *grants != WrittenGrants::default() {
            insert::plugin(self.folders, offer.name(), grants)?;
        }
        let before = self.approvals.all()?.remove(offer.name()).map(|one| one.approved.digest);
        let source = offer.source.clone();
        let signatures = &offer.signatures;
        self.approvals.install(&offer.candidate, source, signatures, before.as_deref())
    }

    /// Compares the offer of an installed plugin's source with the version in force.
    ///
    /// # Errors
    ///
    /// The offer has another name or is older (unless `downgrade`), or the version in force is
    /// damaged.
    pub(crate) async fn compare(
        &self,
        locked: &ApprovedPlugin,
        name: &str,
        offer: &Offer,
        downgrade: bool,
    ) -> Result<Comparison, HostError> {
        if offer.name() != name {
            return Err(failed(name, &format!("the source now has the plugin `{}`", offer.name())));
        }
        if offer.digest() == locked.digest {
            return Ok(Comparison::Same);
        }
        if !downgrade {
            check_not_older(name, offer.version(), &locked.version)?;
        }
        let candidate = self.approvals.component(name, locked)?.ok_or_else(|| {
            failed(name, "the stored component is damaged; remove the plugin and add it again")
        })?;
        let command = self.loaded.command_of_plugin(name)?;
        let old = PluginInspection::new(candidate, self.folders, command).await?;
        let difference = Difference::between(&old, &offer.inspection);
        let signer = SignerChange::between(locked.source.as_ref(), Some(&offer.source));
        let is_more = is_more(&difference) || signer.as_ref().is_some_and(SignerChange::is_loss);
        Ok(Comparison::Other { difference: Box::new(difference), signer, is_more })
    }

    /// Installs an update, or stores it until it is approved.
    ///
    /// # Errors
    ///
    /// Returns an error if a file can't be written, or if another process has changed the plugin in
    /// the meantime.
    pub(crate) fn update(
        &self,
        locked: &ApprovedPlugin,
        offer: &Offer,
        is_approved: bool,
    ) -> Result<Installed, HostError> {
        let source = offer.source.clone();
        let before = &*locked.digest;
        if is_approved {
            self.approvals.install(&offer.candidate, source, &offer.signatures, Some(before))?;
            Ok(Installed::InForce)
        } else {
            self.approvals.offer(&offer.candidate, source, &offer.signatures, before)?;
            Ok(Installed::Held)
        }
    }

    /// Removes a plugin if it is in the lock file. The plugin's table stays in the configuration,
    /// and applies to the next plugin with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock file can't be written.
    pub(crate) fn remove(&self, name: &str) -> Result<(), HostError> {
        self.approvals.remove(name).map(drop)
    }

    /// Restores the previous version. Returns the restored version and the replaced version.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no previous version, if its copy is damaged, or if the lock
    /// file can't be written.
    pub(crate) fn roll_back(
        &self,
        name: &str,
    ) -> Result<(ApprovedPlugin, ApprovedPlugin), HostError> {
        self.approvals.roll_back(name)
    }

    /// Returns the faults of each installed plugin by name. A fault is a missing copy, or a copy
    /// that differs from the lock file. A plugin without a fault has an empty list.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock file can't be read.
    pub(crate) fn verify(&self) -> Result<BTreeMap<String, Vec<String>>, HostError> {
        let mut installed = self.all()?;
        loop {
            let mut faults_by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (name, locked) in &installed {
                let faults = locked.versions().filter_map(|version| self.fault(name, version));
                faults_by_name.insert(name.clone(), faults.collect());
            }
            if faults_by_name.values().all(Vec::is_empty) {
                return Ok(faults_by_name);
            }
            // In the meantime, another process may have removed the plugin of a missing copy.
            let installed_now = self.all()?;
            if installed_now == installed {
                return Ok(faults_by_name);
            }
            installed = installed_now;
        }
    }

    fn fault(&self, name: &str, version: &ApprovedPlugin) -> Option<String> {
        let why = match self.approvals.component(name, version) {
            Ok(Some(candidate)) if candidate.info().manifest.version == version.version => {
                return None;
            }
            Ok(Some(_)) => "the lock file has another version".to_owned(),
            Ok(None) => "the stored component has another digest or name".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("version {}: {why}", version.version))
    }
}

/// Refuses a version that is older than the current one, or that can't be compared with it.
fn check_not_older(plugin: &str, new: &str, current: &str) -> Result<(), HostError> {
    if new == current {
        return Ok(());
    }
    let relation = match compare_versions(new, current) {
        Some(Ordering::Less) => format!("is older than {current}"),
        Some(Ordering::Equal | Ordering::Greater) => return Ok(()),
        None => format!("can't be compared with {current}"),
    };
    Err(failed(
        plugin,
        &format!(
            "the source has version {new}, which {relation}; to install it nevertheless, add \
             `--downgrade`"
        ),
    ))
}

fn failed(plugin: &str, reason: &str) -> HostError {
    HostError::Load { plugin: plugin.to_owned(), reason: reason.to_owned() }
}
