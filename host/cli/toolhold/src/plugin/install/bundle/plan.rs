//! Plans the installation of a bundle, and installs the bundle in one step.

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

/// The changes of an installation. The bundle's files are in the data folder until this value is
/// dropped.
pub(crate) struct BundlePlan {
    contents: BundleContents,
    /// The changed plugins, sorted by name.
    pub(crate) plugins: Vec<PlannedPlugin>,
    /// The names and versions of unchanged plugins.
    pub(crate) same: Vec<(String, String)>,
    pub(crate) filters: Option<PlannedFile>,
    pub(crate) ceiling: Option<PlannedFile>,
}

pub(crate) struct PlannedPlugin {
    pub(crate) inspection: PluginInspection,
    pub(crate) signed_by: SignedBy,
    pub(crate) change: PlannedChange,
    new: NewPlugin,
}

pub(crate) enum PlannedChange {
    /// The plugin isn't installed yet.
    New,
    /// Another version is installed.
    Other {
        /// The installed version.
        from: String,
        /// Whether the installed version is newer.
        is_downgrade: bool,
        /// The differences from the installed version.
        difference: Box<Difference>,
        /// The old and the new signer, if they differ.
        signer: Option<SignerChange>,
    },
}

impl PlannedPlugin {
    pub(crate) fn name(&self) -> &str {
        &self.new.name
    }

    pub(crate) fn version(&self) -> &str {
        &self.new.approved.version
    }
}

impl BundlePlan {
    /// Checks all parts of a bundle. If one part can't be installed, the whole bundle is refused.
    pub(crate) async fn new(
        contents: BundleContents,
        without: &[BundlePart],
        downgrade: bool,
        installer: &Installer<'_>,
        inputs: &Inputs,
    ) -> Result<Self, HostError> {
        let folders = installer.folders;
        let loaded = installer.loaded;
        let mut plan =
            Self { contents, plugins: Vec::new(), same: Vec::new(), filters: None, ceiling: None };
        // Plugins are checked last, because this takes the most time.
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

    pub(crate) fn signer(&self) -> &str {
        &self.contents.signer
    }

    /// Checks whether the plan changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.plugins.is_empty() && self.files().all(PlannedFile::is_same)
    }

    fn files(&self) -> impl Iterator<Item = &PlannedFile> {
        self.filters.iter().chain(&self.ceiling)
    }

    /// Installs the plugins and files of the plan, or nothing after an error. Fails if a file has
    /// changed since the user saw the plan. Blocks.
    pub(crate) fn apply(&self, folders: &Folders) -> Result<(), HostError> {
        for file in self.files() {
            file.check_unchanged()?;
        }
        make_folders(self.filters.as_ref(), self.ceiling.as_ref())?;
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

/// Examines a plugin of the bundle, and plans its change. `current` is the plugin's lock entry, if
/// there is one.
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
    // A plugin without a source wasn't installed, but only approved.
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
