//! Plans the changes that a bundle would make to the installed plugins, and makes all changes in
//! one step.

use std::cmp::Ordering;
use std::path::Path;

use toolhold_core::config::{Folders, Inputs};
use toolhold_core::{
    ApprovedPlugin, Candidate, Difference, HostError, LockedPlugin, NewPlugin, PluginApprovals,
    PluginInspection, SignerChange, compare_versions,
};

use super::files::{PlannedFile, make_folders, plan_ceiling, plan_filters};
use super::{BundleContents, BundledPlugin, component_name, refused};
use crate::arguments::bundle::BundlePart;
use crate::plugin::install::installer::{Comparison, Installer};
use crate::plugin::install::offer::Offer;
use crate::plugin_description::SignedBy;

/// The changes that a bundle would make. The files of the bundle are in the data folder until the
/// plan is dropped.
pub(crate) struct BundlePlan {
    contents: BundleContents,
    /// The plugins that the bundle would change, sorted by name.
    pub(crate) plugins: Vec<PlannedPlugin>,
    /// The names and versions of plugins that are already installed.
    pub(crate) same: Vec<(String, String)>,
    /// The rules for filters.
    pub(crate) filters: Option<PlannedFile>,
    /// The ceiling. Its signature, if any, comes first.
    pub(crate) ceiling: Vec<PlannedFile>,
}

/// A plugin that a bundle would change.
pub(crate) struct PlannedPlugin {
    /// The plugin's manifest, requests, imports and tools.
    pub(crate) inspection: PluginInspection,
    /// The plugin's signer.
    pub(crate) signed_by: SignedBy,
    pub(crate) change: PlannedChange,
    new: NewPlugin,
}

/// The change that a bundle would make to a plugin.
pub(crate) enum PlannedChange {
    /// The plugin isn't installed yet.
    New,
    /// Another version is in force.
    Other {
        /// The version in force.
        from: String,
        /// Whether the version in force is newer.
        is_downgrade: bool,
        /// The differences from the version in force.
        difference: Box<Difference>,
        /// The signers, if they differ.
        signer: Option<SignerChange>,
    },
}

impl PlannedPlugin {
    /// The plugin's name.
    pub(crate) fn name(&self) -> &str {
        &self.new.name
    }

    /// The version in the bundle.
    pub(crate) fn version(&self) -> &str {
        &self.new.approved.version
    }
}

impl BundlePlan {
    /// Checks all parts of a bundle with the rules that apply to each installed plugin. Changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if a part of the bundle can't be installed here. Then no part can be
    /// installed.
    pub(crate) async fn new(
        contents: BundleContents,
        without: &[BundlePart],
        downgrade: bool,
        installer: &Installer<'_>,
        inputs: &Inputs,
    ) -> Result<Self, HostError> {
        let folders = installer.folders;
        let loaded = installer.loaded;
        let mut plan = Self {
            contents,
            plugins: Vec::new(),
            same: Vec::new(),
            filters: None,
            ceiling: Vec::new(),
        };
        // Plugins come last, because checking them takes the most time.
        let contents = &plan.contents;
        if !without.contains(&BundlePart::Ceiling) {
            plan.ceiling = plan_ceiling(contents, folders, inputs)?;
        }
        if !without.contains(&BundlePart::Filters) {
            let directory = inputs.working_directory.as_deref().unwrap_or(Path::new("/"));
            plan.filters = plan_filters(contents, folders, loaded, directory)?;
        }
        if !without.contains(&BundlePart::Plugins) {
            let locked = PluginApprovals::open(folders).all()?;
            let bundled = contents.plugins.iter().map(|plugin| plugin.name.as_str());
            let names: Vec<&str> = bundled.chain(locked.keys().map(String::as_str)).collect();
            for plugin in &contents.plugins {
                let current = locked.get(&plugin.name);
                if let Some(LockedPlugin { approved, .. }) = current
                    && approved.digest == plugin.digest
                    && approved.source.is_some()
                {
                    plan.same.push((plugin.name.clone(), plugin.version.clone()));
                    continue;
                }
                let planned =
                    examine(contents, plugin, current, &names, downgrade, installer).await?;
                plan.plugins.push(planned);
            }
        }
        Ok(plan)
    }

    /// Returns the name of the trusted key that signed the bundle.
    pub(crate) fn signer(&self) -> &str {
        &self.contents.signer
    }

    /// Checks whether everything in the bundle is in force already.
    pub(crate) fn is_empty(&self) -> bool {
        self.plugins.is_empty() && self.files().all(PlannedFile::is_same)
    }

    fn files(&self) -> impl Iterator<Item = &PlannedFile> {
        self.filters.iter().chain(&self.ceiling)
    }

    /// Installs the whole bundle in one step. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if a file can't be written, or if it has changed since it was shown.
    /// In this case, nothing is changed.
    pub(crate) fn apply(&self, folders: &Folders) -> Result<(), HostError> {
        for file in self.files() {
            file.check_unchanged()?;
        }
        make_folders(self.filters.as_ref(), &self.ceiling)?;
        let mut files = Vec::new();
        for file in self.files() {
            if !file.is_same() {
                files.push((file.place.clone(), file.content.clone()));
            }
        }
        let plugins: Vec<NewPlugin> =
            self.plugins.iter().map(|plugin| plugin.new.clone()).collect();
        PluginApprovals::open(folders).install_all(&plugins, &files, |plugin| {
            let name = component_name(&plugin.name);
            Candidate::opened(self.contents.open_file(&name)?, Path::new(&name))
        })
    }
}

/// Examines one plugin. `current`: the plugin's entry in the lock file.
async fn examine(
    contents: &BundleContents,
    plugin: &BundledPlugin,
    current: Option<&LockedPlugin>,
    others: &[&str],
    downgrade: bool,
    installer: &Installer<'_>,
) -> Result<PlannedPlugin, HostError> {
    let BundledPlugin { name, version, digest, .. } = plugin;
    installer.check_table(name, digest)?;
    // A plugin without a source was approved, but not installed.
    let installed = match current {
        Some(LockedPlugin { approved, .. }) if approved.source.is_some() => Some(approved),
        _ => None,
    };
    if installed.is_none() {
        installer.check_name(name, others)?;
    }

    let fetched = contents.fetch(plugin)?;
    let offer =
        Offer::examine(&fetched, &plugin.given, installer.folders, installer.loaded).await?;
    if (offer.name(), offer.version(), offer.digest()) != (name, version, digest) {
        let reason = format!(
            "the bundle's `toolhold.lock` names `{name}` {version}, but the component is `{}` {}",
            offer.name(),
            offer.version()
        );
        return Err(refused(&contents.path, toolhold_core::text::neutral_line(&reason)));
    }
    let mut change = PlannedChange::New;
    if let Some(approved) = installed
        && let Comparison::Other { difference, signer, .. } =
            installer.compare(approved, name, &offer, downgrade).await?
    {
        let from = approved.version.clone();
        let order = compare_versions(version, &from);
        let is_downgrade = *version != from && order.is_none_or(Ordering::is_lt);
        change = PlannedChange::Other { from, is_downgrade, difference, signer };
    }

    let Offer { inspection, mut source, signed_by, signatures, .. } = offer;
    source.bundle = Some(contents.signer.clone());
    let approved =
        ApprovedPlugin { digest: digest.clone(), version: version.clone(), source: Some(source) };
    let expected = current.map(|current| current.approved.digest.clone());
    let new = NewPlugin { name: name.clone(), approved, signatures, expected };
    Ok(PlannedPlugin { inspection, signed_by, change, new })
}
