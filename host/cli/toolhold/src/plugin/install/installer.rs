//! Installs, updates, removes, rolls back and verifies plugins.

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
use crate::plugin::install::offer::{Offer, needs_approval};

/// The user's installed plugins. All functions except `compare` block.
pub(crate) struct Installer<'a> {
    pub(crate) folders: &'a Folders,
    pub(crate) loaded: &'a Config,
    built_in: &'a [&'a str],
    approvals: PluginApprovals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    /// The offered version is installed.
    InForce,
    /// The offered version waits for approval, and the previous version stays in use.
    Held,
}

#[derive(Debug)]
pub(crate) enum Comparison {
    Same,
    Other {
        /// The differences from the installed version.
        difference: Box<Difference>,
        /// The old and the new signer, if they differ.
        signer: Option<SignerChange>,
        /// Whether the update needs a new approval.
        needs_approval: bool,
    },
}

impl<'a> Installer<'a> {
    pub(crate) fn new(folders: &'a Folders, loaded: &'a Config, built_in: &'a [&'a str]) -> Self {
        Self { folders, loaded, built_in, approvals: PluginApprovals::open(folders) }
    }

    /// Returns the installed plugins by name.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, LockedPlugin>, HostError> {
        let mut all = self.approvals.all()?;
        all.retain(|_, locked| locked.approved.source.is_some());
        Ok(all)
    }

    /// Returns the name and source of each plugin that the configuration names but that isn't
    /// installed.
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

    /// Makes the path of a source absolute. A relative path starts at the folder of the file with
    /// the plugin's table. Other sources stay unchanged.
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

    /// Checks whether an offer can be installed, before the person is asked. The error says what to
    /// do.
    pub(crate) fn check_new(&self, offer: &Offer) -> Result<(), HostError> {
        let name = offer.name();
        let locked = self.approvals.all()?;
        if locked.get(name).is_some_and(|locked| locked.approved.source.is_some()) {
            return Err(failed(
                name,
                &format!(
                    "the plugin is already installed; to add grants, run `toolhold plugin grant \
                     {name}`; to change the version, run `toolhold plugin update {name}`, or \
                     remove the plugin first"
                ),
            ));
        }
        self.check_table(name, offer.digest())?;
        let installed_names: Vec<&str> = locked.keys().map(String::as_str).collect();
        self.check_name(name, &installed_names)
    }

    /// Checks that a component doesn't contradict the user's table `[plugins.NAME]`.
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

    /// Checks that a name doesn't look like the name of a built-in plugin, a configured plugin, or
    /// a plugin in `others`.
    pub(crate) fn check_name(&self, name: &str, others: &[&str]) -> Result<(), HostError> {
        let configured = self.loaded.values.plugins.keys().map(String::as_str);
        let others = others.iter().copied().chain(configured);
        check_name(name, self.built_in.iter().copied(), others)
            .map_err(|error| failed(name, &error.to_string()))
    }

    /// Installs an approved offer with the person's grants. Fails if another process has changed
    /// the plugin. The lock file is written last, so that no host uses the plugin after an error.
    pub(crate) fn install(&self, offer: &Offer, grants: &WrittenGrants) -> Result<(), HostError> {
        self.check_new(offer)?;
        if *grants != WrittenGrants::default() {
            insert::plugin(self.folders, offer.name(), grants)?;
        }
        let current = self.approvals.all()?.remove(offer.name());
        let current_digest = current.map(|locked| locked.approved.digest);
        let source = offer.source.clone();
        let signatures = &offer.signatures;
        self.approvals.install(&offer.candidate, source, signatures, current_digest.as_deref())
    }

    /// Compares an offer with the installed version. Fails if the offer has another name or, unless
    /// `downgrade` is set, is older.
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
            failed(
                name,
                "the stored component is damaged; remove the plugin and add the plugin again",
            )
        })?;
        let command = self.loaded.command_of_plugin(name)?;
        let old = PluginInspection::new(candidate, self.folders, command).await?;
        let difference = Difference::between(&old, &offer.inspection);
        let signer = SignerChange::between(locked.source.as_ref(), Some(&offer.source));
        let loses_signer = signer.as_ref().is_some_and(SignerChange::is_loss);
        let asks_more = needs_approval(&difference) || loses_signer;
        let needs_approval = asks_more && !self.loaded.is_pinned(name, offer.digest());
        Ok(Comparison::Other { difference: Box::new(difference), signer, needs_approval })
    }

    /// Installs an approved update, or stores an update for a later approval. Fails if another
    /// process has changed the plugin.
    pub(crate) fn update(
        &self,
        locked: &ApprovedPlugin,
        offer: &Offer,
        is_approved: bool,
    ) -> Result<Installed, HostError> {
        let source = offer.source.clone();
        let current_digest = &*locked.digest;
        let signatures = &offer.signatures;
        if is_approved {
            self.approvals.install(&offer.candidate, source, signatures, Some(current_digest))?;
            Ok(Installed::InForce)
        } else {
            self.approvals.offer(&offer.candidate, source, signatures, current_digest)?;
            Ok(Installed::Held)
        }
    }

    /// Removes a plugin from the lock file. The plugin's table in the configuration stays, and
    /// applies to the next plugin of this name.
    pub(crate) fn remove(&self, name: &str) -> Result<(), HostError> {
        self.approvals.remove(name)?;
        Ok(())
    }

    /// Returns the restored version and the replaced version.
    pub(crate) fn roll_back(
        &self,
        name: &str,
    ) -> Result<(ApprovedPlugin, ApprovedPlugin), HostError> {
        self.approvals.roll_back(name)
    }

    /// Returns the faults of each plugin by name: stored components that are missing or differ from
    /// the lock file. A plugin without faults has an empty list.
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
            // Another process may have changed the lock file, so the comparison starts again.
            let installed_now = self.all()?;
            if installed_now == installed {
                return Ok(faults_by_name);
            }
            installed = installed_now;
        }
    }

    /// Returns the difference of a stored component from its lock entry, if there is a difference.
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

/// Checks that `new` isn't older than `current`, and that both can be compared.
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
            "the source has version {new}, which {relation}; to install this version nevertheless, \
             add `--downgrade`"
        ),
    ))
}

fn failed(plugin: &str, reason: &str) -> HostError {
    HostError::Load { plugin: plugin.to_owned(), reason: reason.to_owned() }
}
