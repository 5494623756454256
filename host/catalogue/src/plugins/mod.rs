//! The plugins of a host: which versions serve, which are held back, and how one takes the place of
//! another while calls run.
//!
//! A version is loaded aside, whole; then a new catalogue takes the place of the old one. A call
//! takes the catalogue once and goes on with what it found there, so it runs on the version that it
//! was checked against. A version that fails leaves everything as it was.

mod advice;
mod advisor;
mod approvals;
pub mod control;
mod filters;
mod folder;
mod inspection;
mod policies;
mod slot;
mod unknown;
mod watching;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use berth_config::{BUILT_IN_FILTERS, Reload};
use berth_contract::{HostError, Provider};
use berth_runtime::{Builtin, Candidate, Runtime};
use tokio::sync::watch;

pub use advisor::CommandGate;
pub use approvals::{Approvals, ApprovedPlugin};
pub use filters::FilterRulesState;
pub use inspection::{Change, Difference, PluginInspection, ToolChange};
pub use policies::{Policies, compiled_folder, most_memory, runtime_config};
pub use slot::{HeldVersion, PluginPlace, PluginState};
pub use watching::Watch;

use crate::catalogue::{Catalogue, Tool};
use crate::filter_chain::Chain;
use folder::{PluginFolder, Stamp};
use slot::{Place, Running, Slot};

/// How long after its last change a file that does not load may still be half written.
const HALF_WRITTEN: Duration = Duration::from_secs(2);

/// The plugins of a host, and the catalogue of what they offer.
pub struct Plugins {
    runtime: Arc<Runtime>,
    policies: Policies,
    approvals: Approvals,
    /// The tools of providers that are no plugins.
    others: Vec<Arc<Tool>>,
    slots: Mutex<Vec<Slot>>,
    catalogue: RwLock<Arc<Catalogue>>,
    /// Held while versions are changed: one after the other.
    changing: tokio::sync::Mutex<()>,
    /// How many catalogues there were.
    changes: watch::Sender<u64>,
    /// Whether somebody looks again when files change.
    watched: bool,
    /// The built-in filters and the operator's rules that they were loaded with.
    filters: Mutex<Option<filters::BuiltInFilters>>,
}

/// What there is to load for a name.
struct FoundComponent {
    name: String,
    place: Place,
    file: Result<(File, Stamp), String>,
}

impl Plugins {
    /// No plugin yet. `watched`: somebody will look again when files change, so one that may be
    /// half written is nothing to tell of yet.
    ///
    /// # Errors
    ///
    /// Where the schema of another provider's tool is none.
    pub fn new(
        runtime: Arc<Runtime>,
        policies: Policies,
        others: &[Arc<dyn Provider>],
        watched: bool,
    ) -> Result<Self, HostError> {
        let others =
            others.iter().map(Tool::from_provider).collect::<Result<Vec<_>, _>>()?.concat();
        let approvals = Approvals::open(&policies.folders);
        let catalogue =
            RwLock::new(Arc::new(Catalogue::new(others.clone(), Chain::default(), Vec::new())?));
        let (slots, changing, changes) =
            (Mutex::default(), tokio::sync::Mutex::default(), watch::Sender::new(0));
        let filters = Mutex::default();
        Ok(Self {
            runtime,
            policies,
            approvals,
            others,
            slots,
            catalogue,
            changing,
            changes,
            watched,
            filters,
        })
    }

    /// The tools as they are now.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells of every change of the plugins.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Every plugin, in the order of its tools.
    pub fn states(&self) -> Vec<PluginState> {
        self.slots().iter().map(Slot::state).collect()
    }

    /// Loads a plugin that is part of the program, unless the operator has another one in its
    /// place.
    ///
    /// # Errors
    ///
    /// [`HostError`]: why it does not load.
    pub async fn add_built_in(&self, builtin: &Builtin) -> Result<(), HostError> {
        if self.policies.is_replaced(builtin.name) {
            return Ok(());
        }
        let plugin = if builtin.name == BUILT_IN_FILTERS {
            self.load_filters(builtin).await?
        } else {
            self.runtime
                .load(Candidate::built_in(builtin)?, self.policies.built_in(builtin.name)?)
                .await?
        };
        let mut slot = Slot::new(builtin.name.to_owned(), Place::BuiltIn);
        slot.serve(&plugin, true)?;
        self.slots().push(slot);
        self.publish()
    }

    /// Loads a component that was named for this run: that is the approval of what it is now.
    ///
    /// # Errors
    ///
    /// [`HostError`]: why it does not load.
    pub async fn add_given(&self, path: &Path) -> Result<(), HostError> {
        let of_thread = path.to_owned();
        let candidate = blocking(move || Candidate::file(&of_thread)).await??;
        let name = candidate.info().manifest.name.clone();
        if let Some(other) = self.slots().iter().find(|slot| slot.name == name) {
            let reason = match &other.place {
                Place::BuiltIn => {
                    "a built-in plugin has that name; give this one another".to_owned()
                }
                Place::Given(file) => format!("{} has that name already", file.display()),
                Place::Named(file) | Place::Folder(file) => {
                    format!(
                        "{} has that name already; leave out `--plugin`, or take the other away",
                        file.display()
                    )
                }
            };
            return Err(HostError::Load { plugin: name, reason });
        }
        let plugin = self.runtime.load(candidate, self.policies.of_plugin(&name)?).await?;
        let mut slot = Slot::new(name, Place::Given(path.to_owned()));
        slot.serve(&plugin, true)?;
        self.slots().push(slot);
        self.publish()
    }

    /// Brings what serves in line with what lies in the plugin folder and at the named paths.
    /// `again`: looks also at files that have not changed since they failed. Says whether a file
    /// may still be half written, so that another look is due soon.
    pub async fn look(self: &Arc<Self>, again: bool) -> bool {
        let _changing = self.changing.lock().await;
        self.look_at_rules().await;
        let this = Arc::clone(self);
        let looked = blocking(move || (this.found(), this.approvals.all())).await;
        let (found, approved) = match looked {
            Ok((found, Ok(approved))) => (found, approved),
            Ok((found, Err(error))) => {
                tracing::warn!("no plugin counts as approved: {error}");
                (found, BTreeMap::new())
            }
            Err(_) => return false,
        };
        self.drop_missing(&found);
        let mut half_written = false;
        for found in found {
            half_written |= self.bring_in(found, &approved, again).await;
        }
        half_written
    }

    /// Every plugin that the configuration or the folder has a file for.
    fn found(&self) -> Vec<FoundComponent> {
        let named = self.policies.named().into_iter().map(|(name, path)| {
            let file =
                folder::open_named(&path, self.policies.config.reload(&name) == Reload::Trust);
            FoundComponent { name, place: Place::Named(path), file }
        });
        let mut all: Vec<FoundComponent> = named.collect();
        let path = self.policies.folder();
        let in_folder = match PluginFolder::open(&path) {
            Ok(Some(folder)) => folder.names().map(|names| (folder, names)),
            Ok(None) => return all,
            Err(reason) => Err(reason),
        };
        match in_folder {
            Ok((folder, names)) => {
                for name in names {
                    if all.iter().any(|found| found.name == name) {
                        tracing::warn!(
                            "{} is passed over: [plugins.{name}] names another file",
                            folder.path_of(&name).display()
                        );
                        continue;
                    }
                    let (file, path) = (folder.open_plugin(&name), folder.path_of(&name));
                    all.push(FoundComponent { name, place: Place::Folder(path), file });
                }
            }
            Err(reason) => tracing::warn!("no plugin is loaded from {}: {reason}", path.display()),
        }
        all
    }

    /// Takes plugins out whose files are gone.
    fn drop_missing(&self, found: &[FoundComponent]) {
        let mut slots = self.slots();
        let before = slots.len();
        slots.retain(|slot| match slot.place {
            Place::BuiltIn | Place::Given(_) => true,
            Place::Named(_) | Place::Folder(_) => {
                found.iter().any(|found| found.name == slot.name && found.place == slot.place)
            }
        });
        let gone = slots.len() < before;
        drop(slots);
        if gone && let Err(error) = self.publish() {
            // Fewer tools can't clash.
            tracing::error!("{error}");
        }
    }

    /// Looks at one file and makes of it what it should be. Says whether it may still be half
    /// written.
    async fn bring_in(
        self: &Arc<Self>,
        found: FoundComponent,
        approved: &BTreeMap<String, ApprovedPlugin>,
        again: bool,
    ) -> bool {
        let FoundComponent { name, place, file } = found;
        let stamp = file.as_ref().ok().map(|(_, stamp)| *stamp);
        let approved = approved.get(&name);
        if let Some(slot) = self.slots().iter().find(|slot| slot.name == name) {
            if matches!(slot.place, Place::BuiltIn | Place::Given(_)) {
                tracing::warn!(
                    "the plugin `{}` is passed over: another one has its name",
                    folder::shown(&name)
                );
                return false;
            }
            let now_approved = |waiting: &HeldVersion| {
                waiting.held
                    && waiting.digest.as_deref() == approved.map(|approved| &*approved.digest)
            };
            let unchanged = slot.stamp == stamp
                && stamp.is_some()
                && !slot.waiting.as_ref().is_some_and(now_approved);
            if unchanged && !(again && slot.waiting.is_some()) {
                return false;
            }
        }
        let path = place.file().map(Path::to_owned).unwrap_or_default();
        let candidate = match file {
            Ok((file, _)) => {
                blocking(move || Candidate::opened(file, &path)).await.and_then(|read| read)
            }
            Err(reason) => Err(HostError::Load { plugin: name.clone(), reason }),
        };
        let change = match candidate {
            Ok(candidate) => self.consider(&name, &place, candidate, approved).await,
            Err(error) => Verdict::Wait(HeldVersion::failed(None, reason_of(error))),
        };
        let half_written = self.watched
            && matches!(&change, Verdict::Wait(waiting) if !waiting.held)
            && stamp.is_some_and(|s| s.is_fresh(HALF_WRITTEN));
        self.apply(&name, place, stamp, change, half_written);
        self.fall_back(&name, approved).await;
        half_written
    }

    /// What is to become of a version that lies there.
    async fn consider(
        &self,
        name: &str,
        place: &Place,
        candidate: Candidate,
        approved: Option<&ApprovedPlugin>,
    ) -> Verdict {
        let info = Arc::clone(candidate.info());
        let failed = |reason: String| Verdict::Wait(HeldVersion::failed(Some(&info), reason));
        if info.manifest.name != name {
            let real = &info.manifest.name;
            let mend = match place {
                Place::Folder(_) => format!("name the file `{real}.wasm`"),
                _ => format!("the table has to be [plugins.{real}]"),
            };
            return failed(format!("its manifest names it `{real}`; {mend}"));
        }
        if self.slots().iter().any(|slot| slot.name == name && slot.digest() == Some(&info.digest))
        {
            return Verdict::None;
        }
        let trusted = self.policies.config.reload(name) == Reload::Trust;
        let seen = approved.is_some_and(|approved| approved.digest == info.digest);
        if !trusted && !seen {
            let reason = approvals::held(name, &info, approved);
            return Verdict::Wait(HeldVersion {
                held: true,
                ..HeldVersion::failed(Some(&info), reason)
            });
        }
        match self.load(name, candidate).await {
            Ok(plugin) => Verdict::Serve(plugin, seen),
            Err(error) => failed(reason_of(error)),
        }
    }

    async fn load(
        &self,
        name: &str,
        candidate: Candidate,
    ) -> Result<berth_runtime::Plugin, HostError> {
        self.runtime.load(candidate, self.policies.of_plugin(name)?).await
    }

    /// Puts a change into effect: the new version serves from here on, or the old one goes on.
    fn apply(
        &self,
        name: &str,
        place: Place,
        stamp: Option<Stamp>,
        change: Verdict,
        half_written: bool,
    ) {
        let mut slots = self.slots();
        let index = slots.iter().position(|slot| slot.name == name).unwrap_or_else(|| {
            slots.push(Slot::new(name.to_owned(), place.clone()));
            slots.len() - 1
        });
        let slot = &mut slots[index];
        (slot.place, slot.stamp) = (place, stamp);
        let waiting = match change {
            Verdict::None => None,
            Verdict::Wait(waiting) => Some(waiting),
            Verdict::Serve(plugin, seen) => {
                let before = (slot.running.clone(), slot.generation);
                let published = slot.serve(&plugin, seen).and_then(|()| self.publish_of(&slots));
                let slot = &mut slots[index];
                match published {
                    Ok(()) => {
                        tracing::info!(
                            plugin = name,
                            generation = slot.generation,
                            digest = plugin.info().digest,
                            "serves"
                        );
                        None
                    }
                    Err(error) => {
                        (slot.running, slot.generation) = before;
                        Some(HeldVersion::failed(Some(plugin.info()), reason_of(error)))
                    }
                }
            }
        };
        let slot = &mut slots[index];
        if let Some(waiting) = waiting
            .as_ref()
            .filter(|waiting| slot.waiting.as_ref() != Some(waiting) && !half_written)
        {
            let (what, serves) =
                (if waiting.held { "held back" } else { "not loaded" }, slot.running.is_some());
            let old = if serves { "; the version before it goes on serving" } else { "" };
            tracing::warn!(
                "the plugin `{}` is {what}: {}{old}",
                folder::shown(name),
                waiting.reason
            );
        }
        slot.waiting = waiting;
        // The reasons of what is missing have changed, even where no tool has.
        if let Err(error) = self.publish_of(&slots) {
            tracing::error!("{error}");
        }
    }

    /// Where nothing serves, because what lies there is held back or fails, the version that was
    /// approved before does.
    async fn fall_back(self: &Arc<Self>, name: &str, approved: Option<&ApprovedPlugin>) {
        let needed = self
            .slots()
            .iter()
            .any(|slot| slot.name == name && slot.running.is_none() && slot.waiting.is_some());
        let Some(approved) = approved.filter(|_| needed).cloned() else { return };
        if self.slots().iter().any(|slot| {
            slot.waiting
                .as_ref()
                .is_some_and(|waiting| waiting.digest.as_ref() == Some(&approved.digest))
        }) {
            // It is that very version that fails.
            return;
        }
        let (approvals, of_thread) = (self.approvals.clone(), name.to_owned());
        let kept = blocking(move || approvals.component(&of_thread, &approved)).await;
        let Ok(Ok(Some(candidate))) = kept else { return };
        let loaded = match self.load(name, candidate).await {
            Ok(plugin) => plugin,
            Err(error) => {
                tracing::warn!(
                    "the version of `{name}` that was approved before does not load either: {error}"
                );
                return;
            }
        };
        let mut slots = self.slots();
        let Some(slot) = slots.iter_mut().find(|slot| slot.name == name) else { return };
        if slot.serve(&loaded, true).is_err() || self.publish_of(&slots).is_err() {
            let slot = slots.iter_mut().find(|slot| slot.name == name);
            slot.into_iter().for_each(|slot| slot.running = None);
        }
    }

    fn publish(&self) -> Result<(), HostError> {
        self.publish_of(&self.slots())
    }

    /// Makes the catalogue of what serves now the one that calls begin with.
    fn publish_of(&self, slots: &[Slot]) -> Result<(), HostError> {
        let of_plugins = slots
            .iter()
            .filter_map(|slot| slot.running.as_ref())
            .flat_map(|running| &running.tools);
        let tools = of_plugins.chain(&self.others).map(Arc::clone).collect();
        let missing = slots.iter().filter(|slot| slot.running.is_none());
        let waiting = missing
            .filter_map(|slot| Some((slot.name.clone(), slot.waiting.as_ref()?.reason.clone())));
        let configured = self
            .policies
            .config
            .config
            .plugins
            .keys()
            .filter(|name| !slots.iter().any(|slot| slot.name == **name));
        let folder = self.policies.folder();
        let absent = configured
            .map(|name| (name.clone(), format!("there is no {name}.wasm in {}", folder.display())));
        let missing = waiting.chain(absent).collect();
        let catalogue = Arc::new(Catalogue::new(tools, self.chain(slots), missing)?);
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = catalogue;
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a version that lies there.
enum Verdict {
    /// It serves already.
    None,
    /// It does not serve.
    Wait(HeldVersion),
    /// It takes over. Whether a person has seen and approved what it says of itself.
    Serve(berth_runtime::Plugin, bool),
}

impl Slot {
    /// Takes a version as the one that serves. `seen`: a person has approved what it says of
    /// itself.
    fn serve(&mut self, plugin: &berth_runtime::Plugin, seen: bool) -> Result<(), HostError> {
        let tools = Tool::from_plugin(plugin, &self.tally, seen)?;
        self.running = Some(Running { plugin: plugin.clone(), tools });
        self.generation += 1;
        Ok(())
    }
}

/// The component that lies there for a name, in the plugin folder or where the configuration says,
/// whether or not it would be loaded. Blocks.
///
/// # Errors
///
/// [`HostError::Load`] where there is none, or it can't be read.
pub fn candidate(
    config: &berth_config::Loaded,
    folders: &berth_config::Folders,
    directory: &Path,
    name: &str,
) -> Result<Candidate, HostError> {
    let fail = |reason: String| HostError::Load { plugin: folder::shown(name), reason };
    if let Some(path) = config.plugin_path(name, folders, directory) {
        return Candidate::file(&path);
    }
    let path = config.plugin_folder(folders, directory);
    let absent = || {
        fail(format!(
            "there is no {name}.wasm in {}, and no table of the configuration names a file for it",
            path.display()
        ))
    };
    let folder = PluginFolder::open(&path)
        .map_err(|reason| fail(format!("{}: {reason}", path.display())))?
        .ok_or_else(absent)?;
    if !folder.names().map_err(fail)?.iter().any(|known| known == name) {
        return Err(absent());
    }
    let (file, _) = folder.open_plugin(name).map_err(fail)?;
    Candidate::opened(file, &folder.path_of(name))
}

/// The reason alone: whoever shows it knows the plugin.
fn reason_of(error: HostError) -> String {
    match error {
        HostError::Load { reason, .. } => reason,
        other => other.to_string(),
    }
}

/// Runs what reads files on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HostError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| HostError::Engine(error.to_string()))
}
