//! Plans what a bundle would change in the installed plugins, and puts all of it into force in one
//! step.

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

/// The changes that a bundle would make. Its files lie in the data folder until this is dropped.
pub(crate) struct BundlePlan {
    contents: BundleContents,
    /// The plugins that it would change, by name.
    pub(crate) plugins: Vec<PlannedPlugin>,
    /// The plugins that are in force already: names and versions.
    pub(crate) same: Vec<(String, String)>,
    /// The rules for filters.
    pub(crate) filters: Option<PlannedFile>,
    /// The ceiling, with its signature first if it has one.
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
    /// Examines everything in a bundle, by the rules that apply to each installed plugin. Changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`HostError`]: a part of the bundle can't be installed here, so no part of it can.
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
        // The cheapest first: a plugin is compiled to examine it.
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
            let bundled = contents.plugins.iter().map(|one| &*one.name);
            let names: Vec<&str> = bundled.chain(locked.keys().map(String::as_str)).collect();
            for plugin in &contents.plugins {
                let now = locked.get(&plugin.name);
                if now.is_some_and(|now| {
                    now.approved.digest == plugin.digest && now.approved.source.is_some()
                }) {
                    plan.same.push((plugin.name.clone(), plugin.version.clone()));
                    continue;
                }
                let planned = examine(contents, plugin, now, &names, downgrade, installer).await?;
                plan.plugins.push(planned);
            }
        }
        Ok(plan)
    }

    /// The name of the trusted key that signed the bundle.
    pub(crate) fn signer(&self) -> &str {
        &self.contents.signer
    }

    /// Whether everything in it is in force already.
    pub(crate) fn is_empty(&self) -> bool {
        self.plugins.is_empty() && self.files().all(PlannedFile::is_same)
    }

    fn files(&self) -> impl Iterator<Item = &PlannedFile> {
        self.filters.iter().chain(&self.ceiling)
    }

    /// Puts all of it into force, in one step. Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError`]: something can't be written, or was changed since it was shown. Nothing is
    /// changed then.
    pub(crate) fn apply(&self, folders: &Folders) -> Result<(), HostError> {
        self.files().try_for_each(PlannedFile::check_unchanged)?;
        make_folders(self.filters.as_ref(), &self.ceiling)?;
        let files: Vec<_> = self
            .files()
            .filter(|file| !file.is_same())
            .map(|file| (file.place.clone(), file.content.clone()))
            .collect();
        let plugins: Vec<NewPlugin> = self.plugins.iter().map(|one| one.new.clone()).collect();
        PluginApprovals::open(folders).install_all(&plugins, &files, |plugin| {
            let name = component_name(&plugin.name);
            let file = self
                .contents
                .bundle
                .file(&name)
                .unwrap_or_else(|| Err(std::io::ErrorKind::NotFound.into()))
                .map_err(HostError::io(format!("reading {name} of the bundle")))?;
            Candidate::opened(file, Path::new(&name))
        })
    }
}

/// Examines one plugin.
async fn examine(
    contents: &BundleContents,
    plugin: &BundledPlugin,
    now: Option<&LockedPlugin>,
    others: &[&str],
    downgrade: bool,
    installer: &Installer<'_>,
) -> Result<PlannedPlugin, HostError> {
    let BundledPlugin { name, version, digest, .. } = plugin;
    installer.check_table(name, digest)?;
    let installed = now.map(|now| &now.approved).filter(|approved| approved.source.is_some());
    if installed.is_none() {
        installer.check_name(name, others)?;
    }
    let fetched = contents.fetch(plugin)?;
    let offer =
        Offer::examine(&fetched, &plugin.given, installer.folders, installer.loaded).await?;
    if (offer.name(), offer.version(), offer.digest()) != (name, version, digest) {
        let why = format!(
            "the bundle's `toolhold.lock` names `{name}` {version}, but the component is `{}` {}",
            offer.name(),
            offer.version()
        );
        return Err(refused(&contents.path, toolhold_core::text::neutral_line(&why)));
    }
    let change = match installed {
        None => PlannedChange::New,
        Some(approved) => match installer.compare(approved, name, &offer, downgrade).await? {
            Comparison::Same => PlannedChange::New,
            Comparison::Other { difference, signer, .. } => {
                let order = compare_versions(version, &approved.version);
                PlannedChange::Other {
                    from: approved.version.clone(),
                    is_downgrade: version != &approved.version
                        && order.is_none_or(std::cmp::Ordering::is_lt),
                    difference,
                    signer,
                }
            }
        },
    };
    let Offer { inspection, mut source, signed_by, signatures, .. } = offer;
    source.bundle = Some(contents.signer.clone());
    let approved =
        ApprovedPlugin { digest: digest.clone(), version: version.clone(), source: Some(source) };
    let expected = now.map(|now| now.approved.digest.clone());
    let new = NewPlugin { name: name.clone(), approved, signatures, expected };
    Ok(PlannedPlugin { inspection, signed_by, change, new })
}
