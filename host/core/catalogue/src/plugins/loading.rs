//! Loads several plugins at a time. A catalogue of many plugins takes long to create, so plugins
//! that load at about the same time are published together.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use toolhold_config::Reload;
use toolhold_contract::HostError;
use toolhold_engine::{Candidate, Plugin};
use toolhold_system::watch::FileStamp;

use super::slot::{ComponentSource, Running, Slot};
use super::{ApprovedPlugin, FoundComponent, HeldVersion, Plugins};
use super::{admission, approvals, blocking, folder, reason_of};

/// Minimum number of parallel loads, so that a slow plugin doesn't delay the others.
const MIN_LOADS: usize = 4;

/// A file that fails to load so soon after its last change may be incomplete.
const FRESH: Duration = Duration::from_secs(2);

/// Time that a loaded plugin waits for other plugins to be published together.
const PUBLISHING_DELAY: Duration = Duration::from_millis(5);

/// The decision on a file's version.
enum Verdict {
    /// The version already runs.
    Unchanged,
    /// The version doesn't run.
    Wait(HeldVersion),
    /// The version becomes active.
    Serve {
        plugin: Plugin,
        /// Whether a person has approved the version.
        is_approved: bool,
    },
}

/// The decision on a file, before it is applied to the slot.
struct Decision {
    name: String,
    place: ComponentSource,
    stamp: Option<FileStamp>,
    verdict: Verdict,
    may_be_incomplete: bool,
}

/// The result of one task of [`Plugins::load_all`].
enum LoadOutcome {
    Decided(Decision),
    /// The plugin with this name needs no change.
    Done(String),
}

/// A version in its slot, with the slot's previous version and generation.
struct ServedVersion {
    name: String,
    plugin: Plugin,
    before: (Option<Running>, u64),
}

impl Plugins {
    /// Loads several plugins at a time. Returns whether a file may be incomplete.
    pub(super) async fn load_all(
        self: &Arc<Self>,
        components: Vec<FoundComponent>,
        approved: &Arc<BTreeMap<String, ApprovedPlugin>>,
        retry_failed: bool,
    ) -> bool {
        if components.is_empty() {
            // Return before the cores are counted, which takes many system calls.
            return false;
        }
        let names: HashSet<String> = components.iter().map(|found| found.name.clone()).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let permits = Arc::new(Semaphore::new(cores.max(MIN_LOADS)));
        let mut loads = JoinSet::new();
        for found in components {
            let plugins = Arc::clone(self);
            let approved = Arc::clone(approved);
            let permits = Arc::clone(&permits);
            loads.spawn(async move {
                let _permit = permits.acquire_owned().await;
                let name = found.name.clone();
                match plugins.decide(found, approved.get(&name), retry_failed).await {
                    Some(decision) => LoadOutcome::Decided(decision),
                    None => LoadOutcome::Done(name),
                }
            });
        }

        let mut may_be_incomplete = false;
        while let Some(first) = loads.join_next().await {
            let mut decisions = Vec::new();
            let mut done = HashSet::new();
            for result in collect_outcomes(first, &mut loads).await {
                match result {
                    Ok(LoadOutcome::Decided(decision)) => decisions.push(decision),
                    Ok(LoadOutcome::Done(name)) => {
                        done.insert(name);
                    }
                    Err(error) => tracing::error!("a task that loads a plugin has failed: {error}"),
                }
            }
            if decisions.iter().any(|decision| decision.may_be_incomplete) {
                may_be_incomplete = true;
            }
            let (served, need_approved_version) = self.apply(decisions, approved, done);
            for name in need_approved_version {
                let plugins = Arc::clone(self);
                let approved = approved.get(&name).cloned();
                loads.spawn(async move {
                    if let Some(approved) = approved {
                        plugins.fall_back(&name, approved).await;
                    }
                    LoadOutcome::Done(name)
                });
            }
            for plugin in served {
                loads.spawn(async move {
                    plugin.remember().await;
                    LoadOutcome::Done(plugin.info().manifest.name.clone())
                });
            }
        }
        // A task that has panicked reports no name, so mark all plugins here. Otherwise, calls
        // would wait for its plugin forever.
        self.end_loading(&names);
        may_be_incomplete
    }

    /// Marks these plugins as no longer loading, so that calls don't wait for them.
    fn end_loading(&self, names: &HashSet<String>) {
        let mut slots = self.slots();
        if end_loading(&mut slots, names) {
            self.publish_or_log(&slots);
        }
    }

    /// Reads a file and decides on its version. Returns `None` for an unchanged file. With
    /// `retry_failed`, files that failed before are read again.
    async fn decide(
        self: &Arc<Self>,
        found: FoundComponent,
        approved: Option<&ApprovedPlugin>,
        retry_failed: bool,
    ) -> Option<Decision> {
        let FoundComponent { name, place, source, file } = found;
        let stamp = file.as_ref().ok().map(|(_, stamp)| *stamp);
        if !self.needs_decision(&name, stamp, approved, retry_failed) {
            return None;
        }

        let path = place.file().map(Path::to_owned).unwrap_or_default();
        let candidate = match file {
            Ok((file, stamp)) => self.read_candidate(&name, file, stamp, path, source).await,
            Err(error) => Err(HostError::Load { plugin: name.clone(), reason: error.to_string() }),
        };
        let verdict = match candidate {
            Ok(candidate) => self.consider(&name, &place, candidate.under(&name), approved).await,
            Err(error) => Verdict::Wait(HeldVersion::failed(None, reason_of(&error))),
        };

        let fails_to_load = matches!(&verdict, Verdict::Wait(waiting) if !waiting.held);
        let is_fresh = stamp.is_some_and(|stamp| stamp.is_fresh(FRESH));
        let may_be_incomplete = self.watched && fails_to_load && is_fresh;
        Some(Decision { name, place, stamp, verdict, may_be_incomplete })
    }

    /// Checks whether a file must be read: the file is new or changed or couldn't be opened, its
    /// version was approved meanwhile, or its version failed and `retry_failed` is set.
    fn needs_decision(
        &self,
        name: &str,
        stamp: Option<FileStamp>,
        approved: Option<&ApprovedPlugin>,
        retry_failed: bool,
    ) -> bool {
        let slots = self.slots();
        let Some(slot) = slots.iter().find(|slot| slot.name == name) else { return true };
        let has_other_plugin =
            matches!(slot.place, ComponentSource::BuiltIn | ComponentSource::Given(_));
        if has_other_plugin {
            tracing::warn!(
                "the plugin `{}` is ignored: another plugin has its name",
                folder::shown(name)
            );
            return false;
        }
        if stamp.is_none() || slot.stamp != stamp {
            return true;
        }
        if let Some(running) = &slot.running
            && running.plugin.differs_from_file()
        {
            return true;
        }
        let Some(waiting) = &slot.waiting else { return false };
        let approved_digest = approved.map(|approved| &*approved.digest);
        let was_approved = waiting.held && waiting.digest.as_deref() == approved_digest;
        retry_failed || was_approved
    }

    /// Reads the component in a file. The rules of `[installing]` must allow the component.
    async fn read_candidate(
        self: &Arc<Self>,
        name: &str,
        file: File,
        stamp: FileStamp,
        path: PathBuf,
        source: Option<String>,
    ) -> Result<Candidate, HostError> {
        let plugins = Arc::clone(self);
        let name = name.to_owned();
        blocking(move || {
            if !admission::is_restricted(&plugins.policies.config) {
                return plugins.runtime.candidate(file, &path, stamp);
            }
            // `Runtime::candidate` may use cached data instead of the file. An attacker could
            // replace the file and keep the data of an allowed component, so the file itself is
            // read here.
            let candidate = Candidate::opened(file, &path)?.under(&name);
            plugins.admitted(candidate, source, &path)
        })
        .await?
    }

    /// Decides whether a component runs, or waits for approval or a correction.
    async fn consider(
        &self,
        name: &str,
        place: &ComponentSource,
        candidate: Candidate,
        approved: Option<&ApprovedPlugin>,
    ) -> Verdict {
        let info = Arc::clone(candidate.info());
        let real_name = &info.manifest.name;
        if real_name != name {
            let reason = wrong_name_reason(real_name, place);
            return Verdict::Wait(HeldVersion::failed(Some(&info), reason));
        }
        let already_runs = self
            .slots()
            .iter()
            .any(|slot| slot.name == name && slot.digest() == Some(&info.digest));
        if already_runs {
            return Verdict::Unchanged;
        }
        // A new version of an installed plugin always needs approval.
        let is_trusted = self.policies.config.reload(name) == Reload::Trust
            && !matches!(place, ComponentSource::Installed(_));
        let is_approved = approved.is_some_and(|approved| approved.digest == info.digest)
            || self.policies.config.is_pinned(name, &info.digest);
        if !is_trusted && !is_approved {
            let reason = approvals::hold_reason(name, &info, approved);
            return Verdict::Wait(HeldVersion::held(&info, reason));
        }
        match self.load(name, candidate).await {
            Ok(plugin) => Verdict::Serve { plugin, is_approved },
            Err(error) => Verdict::Wait(HeldVersion::failed(Some(&info), reason_of(&error))),
        }
    }

    /// Returns the component if `[installing]` allows it. `source` is the source of the
    /// installation, by default the path of the file. Blocks.
    pub(super) fn admitted(
        &self,
        candidate: Candidate,
        source: Option<String>,
        file: &Path,
    ) -> Result<Candidate, HostError> {
        let config = &self.policies.config;
        if !admission::is_restricted(config) {
            return Ok(candidate);
        }
        let source = match source {
            Some(source) => source,
            None => {
                // The path stays relative if the working directory is unknown.
                let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
                path.display().to_string()
            }
        };
        admission::check(config, &candidate, &source, file)?;
        Ok(candidate)
    }

    /// Loads a component with the configured digest and grants of its plugin.
    async fn load(
        &self,
        name: &str,
        candidate: Candidate,
    ) -> Result<toolhold_engine::Plugin, HostError> {
        self.policies.check_digest(name, &candidate.info().digest)?;
        let policy = self.policy_for(name, &candidate).await?;
        self.runtime.load(candidate, policy).await
    }

    /// Applies decisions to the slots, and publishes a new catalogue. `done` are plugins that need
    /// no change. Returns the new active versions, and the names of plugins that need their
    /// previously approved version.
    fn apply(
        &self,
        decisions: Vec<Decision>,
        approved: &BTreeMap<String, ApprovedPlugin>,
        mut done: HashSet<String>,
    ) -> (Vec<Plugin>, Vec<String>) {
        let names: HashSet<String> =
            decisions.iter().map(|decision| decision.name.clone()).collect();
        let mut slots = self.slots();
        let mut served = Vec::new();
        for decision in decisions {
            served.extend(self.put(&mut slots, decision));
        }
        let mut need_approved_version = find_needing_approved_version(&slots, &names, approved);
        done.extend(names.iter().filter(|name| !need_approved_version.contains(name)).cloned());
        let loading_ended = end_loading(&mut slots, &done);

        let needs_publishing = !names.is_empty() || loading_ended;
        if needs_publishing && self.publish_slots(&slots).is_err() {
            // Two tools have the same name. Serve the versions one after the other, so that only
            // the later tool is refused.
            served = self.serve_each(&mut slots, served);
            need_approved_version = find_needing_approved_version(&slots, &names, approved);
            self.publish_or_log(&slots);
        }
        for ServedVersion { name, plugin, .. } in &served {
            let generation = slot_of(&mut slots, name).map_or(0, |slot| slot.generation);
            tracing::info!(plugin = name, generation, digest = plugin.info().digest, "serves");
        }
        (served.into_iter().map(|version| version.plugin).collect(), need_approved_version)
    }

    /// Puts a decision into its slot. Returns the version if the next catalogue activates it.
    fn put(&self, slots: &mut Vec<Slot>, decision: Decision) -> Option<ServedVersion> {
        let Decision { name, place, stamp, verdict, may_be_incomplete } = decision;
        if !slots.iter().any(|slot| slot.name == name) {
            slots.push(Slot::new(name.clone(), place.clone()));
        }
        let slot = slot_of(slots, &name)?;
        slot.place = place;
        slot.stamp = stamp;

        match verdict {
            Verdict::Unchanged => {
                slot.set_waiting(None, may_be_incomplete);
                None
            }
            Verdict::Wait(waiting) => {
                // If the file of the running version has changed, its calls fail. Drop this
                // version, so that the approved copy can run instead.
                slot.running.take_if(|running| running.plugin.differs_from_file());
                slot.set_waiting(Some(waiting), may_be_incomplete);
                None
            }
            Verdict::Serve { plugin, is_approved } => {
                let before = (slot.running.clone(), slot.generation);
                let result = slot
                    .serve(&plugin, is_approved)
                    .and_then(|()| self.check_patterns_of(slot.tools()));
                if let Err(error) = result {
                    slot.set_running(before);
                    let failed = HeldVersion::failed(Some(plugin.info()), reason_of(&error));
                    slot.set_waiting(Some(failed), may_be_incomplete);
                    return None;
                }
                slot.set_waiting(None, may_be_incomplete);
                Some(ServedVersion { name, plugin, before })
            }
        }
    }

    /// Publishes versions one after the other, after publishing all together has failed. Refuses a
    /// version whose tool has the name of another tool. Returns the active versions.
    fn serve_each(&self, slots: &mut [Slot], versions: Vec<ServedVersion>) -> Vec<ServedVersion> {
        let mut taken_back = Vec::new();
        for version in versions.into_iter().rev() {
            let Some(slot) = slot_of(slots, &version.name) else { continue };
            let after = (slot.running.take(), slot.generation);
            slot.set_running(version.before.clone());
            taken_back.push((version, after));
        }

        let mut served = Vec::new();
        for (version, after) in taken_back.into_iter().rev() {
            let Some(slot) = slot_of(slots, &version.name) else { continue };
            slot.set_running(after);
            let Err(error) = self.publish_slots(slots) else {
                served.push(version);
                continue;
            };
            let Some(slot) = slot_of(slots, &version.name) else { continue };
            slot.set_running(version.before);
            let failed = HeldVersion::failed(Some(version.plugin.info()), reason_of(&error));
            let may_be_incomplete = false;
            slot.set_waiting(Some(failed), may_be_incomplete);
        }
        served
    }

    /// Loads the previously approved version of a plugin from its stored copy.
    async fn fall_back(self: &Arc<Self>, name: &str, approved: ApprovedPlugin) {
        let plugins = Arc::clone(self);
        let plugin = name.to_owned();
        let place = slot_of(&mut self.slots(), name).map(|slot| slot.place.clone());
        let component = blocking(move || {
            let Some(candidate) = plugins.approvals.component(&plugin, &approved)? else {
                return Ok(None);
            };
            let file = place.as_ref().and_then(ComponentSource::file);
            let source = match &approved.source {
                Some(source) => Some(source.resolved.clone()),
                None => file.map(|file| file.display().to_string()),
            };
            let copy = plugins.approvals.copy_path(&approved);
            plugins.admitted(candidate, source, &copy).map(Some)
        });
        // A plugin without a valid copy keeps no running version.
        let Ok(Ok(Some(candidate))) = component.await else { return };

        let loaded = match self.load(name, candidate).await {
            Ok(plugin) => plugin,
            Err(error) => {
                tracing::warn!(
                    "the previously approved version of `{name}` also fails to load: {error}"
                );
                return;
            }
        };
        let mut slots = self.slots();
        let Some(slot) = slot_of(&mut slots, name) else { return };
        let is_approved = true;
        let result = slot.serve(&loaded, is_approved).and_then(|()| self.publish_slots(&slots));
        if result.is_err()
            && let Some(slot) = slot_of(&mut slots, name)
        {
            slot.running = None;
        }
    }
}

/// Returns the reason why a component with another name in its manifest isn't loaded.
fn wrong_name_reason(real_name: &str, place: &ComponentSource) -> String {
    let fix = match place {
        ComponentSource::Folder(_) => format!("name the file `{real_name}.wasm`"),
        _ => format!("the table has to be [plugins.{real_name}]"),
    };
    format!("the plugin's name in the manifest is `{real_name}`; {fix}")
}

/// Returns the first outcome and the outcomes within the next [`PUBLISHING_DELAY`].
async fn collect_outcomes(
    first: Result<LoadOutcome, JoinError>,
    loads: &mut JoinSet<LoadOutcome>,
) -> Vec<Result<LoadOutcome, JoinError>> {
    let mut outcomes = vec![first];
    let end = Instant::now() + PUBLISHING_DELAY;
    while let Ok(Some(next)) = timeout_at(end, loads.join_next()).await {
        outcomes.push(next);
    }
    outcomes
}

/// Checks whether the approved version should run in place of a held or failed version in the file.
fn needs_approved_version(slot: &Slot, approved: Option<&ApprovedPlugin>) -> bool {
    let (Some(approved), Some(waiting)) = (approved, &slot.waiting) else { return false };
    slot.running.is_none() && waiting.digest.as_ref() != Some(&approved.digest)
}

/// Returns the plugins among `names` that need their previously approved version.
fn find_needing_approved_version(
    slots: &[Slot],
    names: &HashSet<String>,
    approved: &BTreeMap<String, ApprovedPlugin>,
) -> Vec<String> {
    let mut need_approved_version = Vec::new();
    for slot in slots {
        if names.contains(&slot.name) && needs_approved_version(slot, approved.get(&slot.name)) {
            need_approved_version.push(slot.name.clone());
        }
    }
    need_approved_version
}

/// Marks the named plugins as no longer loading. Returns whether any of them was loading.
fn end_loading(slots: &mut [Slot], names: &HashSet<String>) -> bool {
    let mut has_ended = false;
    for slot in slots {
        if slot.loading && names.contains(&slot.name) {
            slot.loading = false;
            has_ended = true;
        }
    }
    has_ended
}

fn slot_of<'s>(slots: &'s mut [Slot], name: &str) -> Option<&'s mut Slot> {
    slots.iter_mut().find(|slot| slot.name == name)
}
