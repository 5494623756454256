//! The plugins of a host: active versions, held versions, and reloading while calls run.
//!
//! A new version is loaded completely before a new catalogue replaces the old one. Each call uses
//! one catalogue, so the version that was checked also runs. A version that can't be loaded changes
//! nothing.

mod admission;
mod advice;
mod advisor;
mod approvals;
mod capabilities;
pub mod control;
mod filters;
mod folder;
mod inspection;
mod loading;
mod lock_file;
mod policies;
mod settings;
mod settings_schema;
mod slot;
mod unknown;
mod watching;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use tokio::sync::{OwnedMutexGuard, watch};
use toolhold_config::{BUILT_IN_FILTERS, Reload};
use toolhold_contract::{CancellationToken, HostError, ToolSource};
use toolhold_engine::{Builtin, Candidate, PluginGrants, Runtime};
use toolhold_system::watch::FileStamp;

pub use admission::{AdmissionError, Remedy, check_signed, check_source};
pub use advice::SandboxAdvisor;
pub use advisor::CommandGate;
pub use approvals::{NewPlugin, PluginApprovals, compare_versions};
pub use capabilities::grant_in_words;
pub use filters::FilterRulesState;
pub use inspection::{Change, Difference, PluginInspection, SignerChange, ToolChange};
pub use lock_file::{ApprovedPlugin, FilePlace, LockedPlugin, PluginSource};
pub use policies::{
    GrantResolver, ServerPlaces, compiled_folder, memory, most_memory, runtime_config,
    server_places,
};
pub use settings_schema::config_schema;
pub use slot::{HeldVersion, PluginPlace, PluginState};
pub use watching::Watch;

use crate::catalogue::{Catalogue, Tool};
use crate::filter_chain::Chain;
use folder::{PluginFileError, PluginFolder};
use slot::{ComponentSource, Running, Slot};

/// The plugins of a host, and the catalogue of all tools.
pub struct Plugins {
    runtime: Arc<Runtime>,
    policies: GrantResolver,
    approvals: PluginApprovals,
    /// The tools of sources that aren't plugins.
    other_tools: Vec<Arc<Tool>>,
    slots: Mutex<Vec<Slot>>,
    catalogue: RwLock<Arc<Catalogue>>,
    /// Only one reload runs at a time.
    reload_lock: Arc<tokio::sync::Mutex<()>>,
    changes: watch::Sender<u64>,
    /// Whether plugins are reloaded when their files change.
    watched: bool,
    filters: Mutex<Option<filters::BuiltInFilters>>,
    /// Answers questions of other processes that aren't about plugins.
    other_questions: OnceLock<AnswerQuestion>,
}

/// Answers a one-line question of another process with JSON, or returns `None` for an unknown
/// question.
pub type AnswerQuestion = Box<dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync>;

/// Plugins that were found but not loaded yet. Other reloads wait until this value is dropped.
pub struct FoundPlugins {
    _reload_lock: OwnedMutexGuard<()>,
    components: Vec<FoundComponent>,
    approved: Arc<BTreeMap<String, ApprovedPlugin>>,
}

struct FoundComponent {
    name: String,
    place: ComponentSource,
    /// The source of the installation. `None` means that the plugin is a file of the user.
    source: Option<String>,
    file: Result<(File, FileStamp), PluginFileError>,
}

impl Plugins {
    /// Sets the function that answers questions of other processes that aren't about plugins. Later
    /// calls are ignored.
    pub fn answer_questions(&self, answer: AnswerQuestion) {
        let _ = self.other_questions.set(answer);
    }

    /// Starts without plugins. With `watched`, plugins are reloaded when their files change. A file
    /// that may be incomplete then isn't reported yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the schema of another source's tool is invalid.
    pub fn new(
        runtime: Arc<Runtime>,
        policies: GrantResolver,
        others: &[Arc<dyn ToolSource>],
        watched: bool,
    ) -> Result<Self, HostError> {
        let mut other_tools = Vec::new();
        for provider in others {
            other_tools.extend(Tool::from_provider(provider)?);
        }
        let approvals = PluginApprovals::open(&policies.folders);
        let missing = Vec::new();
        let catalogue = Catalogue::new(other_tools.clone(), Chain::default(), missing)?;
        Ok(Self {
            runtime,
            policies,
            approvals,
            other_tools,
            slots: Mutex::default(),
            catalogue: RwLock::new(Arc::new(catalogue)),
            reload_lock: Arc::default(),
            changes: watch::Sender::new(0),
            watched,
            filters: Mutex::default(),
            other_questions: OnceLock::new(),
        })
    }

    /// Returns the runtime of the plugins, which other hosts can share.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Returns the current catalogue.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a receiver that is notified of every new catalogue.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the states of all plugins, in the order of their tools.
    pub fn states(&self) -> Vec<PluginState> {
        self.slots().iter().map(Slot::state).collect()
    }

    /// Loads a built-in plugin, unless the configuration replaces it.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the plugin can't be loaded.
    pub async fn add_built_in(&self, builtin: &Builtin) -> Result<(), HostError> {
        if self.policies.is_replaced(builtin.name) {
            return Ok(());
        }
        let plugin = if builtin.name == BUILT_IN_FILTERS {
            self.load_filters(builtin).await?
        } else {
            self.runtime.load_built_in(builtin, self.policies.built_in(builtin.name)?).await?
        };
        let mut slot = Slot::new(builtin.name.to_owned(), ComponentSource::BuiltIn);
        let is_approved = true;
        slot.serve(&plugin, is_approved)?;
        plugin.remember().await;
        self.slots().push(slot);
        self.publish()
    }

    /// Loads a component that a flag named for this run. The flag approves the component's current
    /// content.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the component can't be loaded.
    pub async fn add_given(self: &Arc<Self>, path: &Path) -> Result<(), HostError> {
        let file = path.to_owned();
        let opened = blocking(move || Candidate::file(&file)).await?;
        let candidate = opened?;
        let name = candidate.info().manifest.name.clone();
        if let Some(other) = self.slots().iter().find(|slot| slot.name == name) {
            let reason = match &other.place {
                ComponentSource::BuiltIn => {
                    "a built-in plugin has this name; rename this plugin".to_owned()
                }
                ComponentSource::Given(file) => format!("{} already has this name", file.display()),
                ComponentSource::Named(file)
                | ComponentSource::Folder(file)
                | ComponentSource::Installed(file) => {
                    format!(
                        "{} already has this name; leave out `--plugin`, or remove the other \
                         plugin",
                        file.display()
                    )
                }
            };
            return Err(HostError::Load { plugin: name, reason });
        }
        self.policies.check_digest(&name, &candidate.info().digest)?;
        let plugins = Arc::clone(self);
        let file = path.to_owned();
        let admitted = blocking(move || plugins.admitted(candidate, None, &file)).await?;
        let candidate = admitted?;
        let policy = self.policy_for(&name, &candidate).await?;
        let policy = PluginGrants { only_this_run: true, ..policy };
        let plugin = self.runtime.load(candidate, policy).await?;
        let mut slot = Slot::new(name, ComponentSource::Given(path.to_owned()));
        let is_approved = true;
        slot.serve(&plugin, is_approved)?;
        plugin.remember().await;
        self.slots().push(slot);
        self.publish()
    }

    /// Loads new and changed plugins, and removes plugins without a file.
    ///
    /// With `retry_failed`, files that failed before are read again. Returns `true` if a file may
    /// be incomplete, because another reload should follow soon.
    pub async fn reload(self: &Arc<Self>, retry_failed: bool) -> bool {
        match self.find().await {
            Some(found) => self.load_found(found, retry_failed).await,
            None => false,
        }
    }

    /// Finds configured plugins, installed plugins, and plugins in the plugin folder. Marks new
    /// plugins as loading, and removes plugins without a file. Returns `None` if the search fails.
    pub async fn find(self: &Arc<Self>) -> Option<FoundPlugins> {
        let reload_lock = Arc::clone(&self.reload_lock).lock_owned().await;
        self.reload_rules().await;
        let plugins = Arc::clone(self);
        let search = blocking(move || {
            let locked = plugins.approvals.all().unwrap_or_else(|error| {
                tracing::warn!("can't read the approvals, so no plugin is approved: {error}");
                BTreeMap::new()
            });
            (plugins.find_components(&locked), locked)
        });
        let (components, locked) = search.await.ok()?;
        let approved: BTreeMap<String, ApprovedPlugin> =
            locked.into_iter().map(|(name, plugin)| (name, plugin.approved)).collect();
        self.drop_missing(&components);

        // New plugins get their slots now, so that the order of tools doesn't depend on loading
        // times.
        let mut slots = self.slots();
        let known: HashSet<String> = slots.iter().map(|slot| slot.name.clone()).collect();
        for found in &components {
            if !known.contains(&found.name) {
                let slot = Slot::new(found.name.clone(), found.place.clone());
                slots.push(Slot { loading: true, ..slot });
            }
        }
        self.publish_or_log(&slots);
        drop(slots);
        Some(FoundPlugins { _reload_lock: reload_lock, components, approved: Arc::new(approved) })
    }

    /// Loads the found plugins that every call needs: filters, and replacements of built-in
    /// plugins.
    pub async fn load_needed(self: &Arc<Self>, found: &mut FoundPlugins) {
        let chain = &self.policies.config.values.tools.filters.chain;
        self.load_some(found, |name| {
            chain.contains(name) || self.policies.replaced_by(name).is_some()
        })
        .await;
    }

    /// Loads the found plugin of the tool with this name. Returns whether a plugin was found.
    pub async fn load_for(self: &Arc<Self>, found: &mut FoundPlugins, tool: &str) -> bool {
        let plugin = tool.split_once("__").map_or(tool, |(plugin, _)| plugin);
        let count_before = found.components.len();
        // `load_some` removes the loaded plugin from `found`.
        self.load_some(found, |name| name == plugin).await;
        found.components.len() < count_before
    }

    /// Marks the found plugins as not loaded. Calls of their tools fail with the reason instead of
    /// waiting.
    pub fn leave_out(&self, found: FoundPlugins, reason: &str) {
        let mut slots = self.slots();
        for component in &found.components {
            if let Some(slot) = slots.iter_mut().find(|slot| slot.name == component.name) {
                slot.loading = false;
                slot.waiting = Some(HeldVersion::failed(None, reason.to_owned()));
            }
        }
        self.publish_or_log(&slots);
    }

    /// Loads the found plugins that `is_selected` selects, and removes them from `found`.
    async fn load_some(
        self: &Arc<Self>,
        found: &mut FoundPlugins,
        is_selected: impl Fn(&String) -> bool,
    ) {
        let selected = found.components.extract_if(.., |found| is_selected(&found.name)).collect();
        let retry_failed = false;
        self.load_all(selected, &found.approved, retry_failed).await;
    }

    /// Loads the found plugins. `retry_failed` and the result are as in [`reload`](Self::reload).
    pub async fn load_found(self: &Arc<Self>, found: FoundPlugins, retry_failed: bool) -> bool {
        self.load_all(found.components, &found.approved, retry_failed).await
    }

    /// Returns the catalogue for a call of the tool `name`. Waits while a plugin that may have the
    /// tool is loading.
    pub async fn catalogue_for(&self, name: &str, cancel: &CancellationToken) -> Arc<Catalogue> {
        loop {
            // The subscription comes before the check, so that no change is missed.
            let mut changes = self.changes();
            let catalogue = self.catalogue();
            if !catalogue.may_be_loading(name) || cancel.is_cancelled() {
                return catalogue;
            }
            let _ = cancel.run_until_cancelled(changes.changed()).await;
        }
    }

    /// Returns the names of the plugins that are loading for the first time.
    pub fn loading(&self) -> Vec<String> {
        self.catalogue().loading().to_vec()
    }

    /// Finds plugins with a configured path, installed plugins, and plugins in the plugin folder.
    fn find_components(&self, locked: &BTreeMap<String, LockedPlugin>) -> Vec<FoundComponent> {
        let mut components = Vec::new();
        for (name, path) in self.policies.named() {
            let is_trusted = self.policies.config.reload(&name) == Reload::Trust;
            let file = folder::open_named(&path, is_trusted);
            let place = ComponentSource::Named(path);
            components.push(FoundComponent { name, place, source: None, file });
        }
        for (name, locked) in locked {
            let is_installed = locked.approved.source.is_some();
            let has_configured_path = components.iter().any(|found| found.name == *name);
            if is_installed && !has_configured_path {
                components.push(self.find_installed(name, locked));
            }
        }
        let path = self.policies.folder();
        if let Err(error) = find_in_folder(&path, &mut components) {
            tracing::warn!("no plugins are loaded from {}: {error}", path.display());
        }
        // A principal gets only the plugins that its table names.
        let config = &self.policies.config;
        if config.is_of_principal() {
            components.retain(|found| config.values.plugins.contains_key(&found.name));
        }
        components
    }

    /// Returns the component of an installed plugin, or of its update that waits for approval. The
    /// update is held like a changed file, and the active version runs.
    fn find_installed(&self, name: &str, locked: &LockedPlugin) -> FoundComponent {
        let version = locked.offered.as_ref().unwrap_or(&locked.approved);
        let path = self.approvals.copy_path(version);
        let file_and_stamp = match self.approvals.open_copy(version) {
            Ok(file) => folder::stamp_of(&file).map(|stamp| (file, stamp)),
            Err(error) => Err(PluginFileError::Copy { path: path.clone(), error }),
        };
        let source = version.source.as_ref().map(|source| source.resolved.clone());
        FoundComponent {
            name: name.to_owned(),
            place: ComponentSource::Installed(path),
            source,
            file: file_and_stamp,
        }
    }

    /// Removes the slots of plugins that weren't found again. A plugin that was found in another
    /// place also loses its slot, because `find` gives it a new one.
    fn drop_missing(&self, found: &[FoundComponent]) {
        let mut slots = self.slots();
        let count_before = slots.len();
        let found_places: HashMap<&str, &ComponentSource> =
            found.iter().map(|found| (&*found.name, &found.place)).collect();
        slots.retain(|slot| match slot.place {
            ComponentSource::BuiltIn | ComponentSource::Given(_) => true,
            _ => match found_places.get(&*slot.name) {
                Some(place) => place.is_same(&slot.place),
                None => false,
            },
        });
        if slots.len() < count_before {
            self.publish_or_log(&slots);
        }
    }

    fn publish(&self) -> Result<(), HostError> {
        self.publish_slots(&self.slots())
    }

    /// Publishes slots whose tool names were already checked, so an error is only logged.
    fn publish_or_log(&self, slots: &[Slot]) {
        if let Err(error) = self.publish_slots(slots) {
            tracing::error!("{error}");
        }
    }

    fn publish_slots(&self, slots: &[Slot]) -> Result<(), HostError> {
        let mut tools = Vec::new();
        let mut loading = Vec::new();
        for slot in slots {
            tools.extend_from_slice(slot.tools());
            if slot.loading {
                loading.push(slot.name.clone());
            }
        }
        tools.extend_from_slice(&self.other_tools);
        let missing = self.list_missing(slots);
        let catalogue = Catalogue::new(tools, self.chain(slots), missing)?.with_loading(loading);
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalogue);
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Returns the plugins whose expected component isn't loaded, and a sentence with the reason.
    /// An older version may run.
    fn list_missing(&self, slots: &[Slot]) -> Vec<(String, String)> {
        let mut missing = Vec::new();
        for slot in slots {
            let Some(waiting) = &slot.waiting else { continue };
            let name = &slot.name;
            let reason = &waiting.reason;
            let sentence = match &slot.running {
                None => format!("The plugin `{name}` is not loaded: {reason}"),
                Some(_) => format!(
                    "The new component of the plugin `{name}` is not loaded, so the previous \
                     version stays in use: {reason}"
                ),
            };
            missing.push((name.clone(), sentence));
        }
        let names: HashSet<&str> = slots.iter().map(|slot| &*slot.name).collect();
        let folder = self.policies.folder();
        for (name, plugin) in &self.policies.config.values.plugins {
            if names.contains(name.as_str()) {
                continue;
            }
            let reason = if plugin.source.is_empty() {
                format!("there is no {name}.wasm in {}", folder.display())
            } else {
                "the plugin isn't installed: run `toolhold plugin install`".to_owned()
            };
            missing.push((name.clone(), format!("The plugin `{name}` is not loaded: {reason}")));
        }
        missing
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the plugins in the plugin folder to `components`. Skips plugins whose names `components`
/// already contains, because a configured path or an installed plugin has precedence.
fn find_in_folder(
    path: &Path,
    components: &mut Vec<FoundComponent>,
) -> Result<(), PluginFileError> {
    let Some(folder) = PluginFolder::open(path)? else { return Ok(()) };
    let mut found_in_folder = Vec::new();
    for name in folder.names()? {
        let path = folder.path_of(&name);
        let elsewhere = components.iter().find(|found| found.name == name);
        if let Some(elsewhere) = elsewhere {
            let why = match elsewhere.place {
                ComponentSource::Installed(_) => format!("`{name}` is installed"),
                _ => format!("[plugins.{name}] names another file"),
            };
            tracing::warn!("{} is ignored: {why}", path.display());
            continue;
        }
        let file = folder.open_plugin(&name);
        let place = ComponentSource::Folder(path);
        found_in_folder.push(FoundComponent { name, place, source: None, file });
    }
    components.append(&mut found_in_folder);
    Ok(())
}

impl Slot {
    /// Activates a version. `is_approved` means that a person has approved the version, so its
    /// promises are trusted.
    fn serve(
        &mut self,
        plugin: &toolhold_engine::Plugin,
        is_approved: bool,
    ) -> Result<(), HostError> {
        let tools = Tool::from_plugin(plugin, &self.tally, is_approved)?;
        self.running = Some(Running { plugin: plugin.clone(), tools });
        self.generation += 1;
        Ok(())
    }
}

/// Returns the component for a name, even if the host doesn't load it. An update of an installed
/// plugin that waits for approval comes before the active version. Blocks.
///
/// # Errors
///
/// [`HostError::Load`] if the component is missing or can't be read.
pub fn candidate(
    config: &toolhold_config::Config,
    folders: &toolhold_config::Folders,
    directory: &Path,
    name: &str,
) -> Result<Candidate, HostError> {
    if let Some(path) = config.plugin_path(name, folders, directory) {
        return Candidate::file(&path).map(|candidate| candidate.under(name));
    }

    let approvals = PluginApprovals::open(folders);
    if let Some(locked) = approvals.all()?.get(name)
        && locked.approved.source.is_some()
    {
        let version = locked.offered.as_ref().unwrap_or(&locked.approved);
        return approvals.component(name, version)?.ok_or_else(|| {
            let reason = "the stored copy is damaged; install the plugin again with `toolhold \
                          plugin add`";
            unusable(name, reason)
        });
    }

    let path = config.plugin_folder(folders, directory);
    let opened = PluginFolder::open(&path)
        .map_err(|error| unusable(name, format!("{}: {error}", path.display())))?;
    let folder = opened.ok_or_else(|| absent(name, &path))?;
    let names = folder.names().map_err(|error| unusable(name, error.to_string()))?;
    if !names.iter().any(|known| known == name) {
        return Err(absent(name, &path));
    }
    let (file, _stamp) =
        folder.open_plugin(name).map_err(|error| unusable(name, error.to_string()))?;
    Candidate::opened(file, &folder.path_of(name)).map(|candidate| candidate.under(name))
}

fn absent(name: &str, folder: &Path) -> HostError {
    let reason = format!(
        "there is no {name}.wasm in {}, and the configuration doesn't set `path` in [plugins.{name}]",
        folder.display()
    );
    unusable(name, reason)
}

fn unusable(name: &str, reason: impl Into<String>) -> HostError {
    HostError::Load { plugin: folder::shown(name), reason: reason.into() }
}

fn reason_of(error: &HostError) -> String {
    match error {
        HostError::Load { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HostError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| HostError::Engine(error.to_string()))
}
