//! Loads found plugins, several at a time. Plugins that are loaded at the same time are published
//! together, because creating a catalogue of many plugins takes long.

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

/// Plugins that are loaded at a time, at least. A plugin that only waits delays no other.
const MIN_LOADS: usize = 4;

/// Time after a file's last change for which a file that doesn't load may be incomplete.
const HALF_WRITTEN: Duration = Duration::from_secs(2);

/// Time for which a loaded plugin waits for other plugins, so that they are published together.
const TOGETHER: Duration = Duration::from_millis(5);

/// The decision on the version in a file.
enum Verdict {
    /// The version already serves.
    Unchanged,
    /// The version doesn't serve.
    Wait(HeldVersion),
    /// The version starts to serve.
    Serve {
        plugin: Plugin,
        /// Whether a person has approved the version.
        is_approved: bool,
    },
}

/// The decision on a file that was read. No slot has changed yet.
struct Decision {
    name: String,
    place: ComponentSource,
    stamp: Option<FileStamp>,
    verdict: Verdict,
    half_written: bool,
}

/// The outcome of one task of [`Plugins::load_all`].
enum LoadOutcome {
    Decided(Decision),
    /// The plugin with this name needs nothing more.
    Done(String),
}

/// A version that was put into its slot. The value has the slot's previous version and generation.
struct ServedVersion {
    name: String,
    plugin: Plugin,
    before: (Option<Running>, u64),
}

impl Plugins {
    /// Loads several plugins at a time, so that a slow plugin doesn't delay others. Returns whether
    /// a file may be incomplete.
    pub(super) async fn load_all(
        self: &Arc<Self>,
        components: Vec<FoundComponent>,
        approved: &Arc<BTreeMap<String, ApprovedPlugin>>,
        again: bool,
    ) -> bool {
        if components.is_empty() {
            // Counting the cores takes many system calls.
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
                match plugins.decide(found, approved.get(&name), again).await {
                    Some(decision) => LoadOutcome::Decided(decision),
                    None => LoadOutcome::Done(name),
                }
            });
        }

        let mut half_written = false;
        while let Some(first) = loads.join_next().await {
            let mut decisions = Vec::new();
            let mut done = HashSet::new();
            for result in collect_outcomes(first, &mut loads).await {
                match result {
                    Ok(LoadOutcome::Decided(decision)) => decisions.push(decision),
                    Ok(LoadOutcome::Done(name)) => drop(done.insert(name)),
                    Err(error) => tracing::error!("loading a plugin: {error}"),
                }
            }
            if decisions.iter().any(|decision| decision.half_written) {
                half_written = true;
            }
            let (served, need_earlier) = self.apply(decisions, approved, done);
            for name in need_earlier {
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
        // If loading panicked, no name was reported, and calls would wait for the plugin.
        self.end_loading(&names);
        half_written
    }

    /// Marks these plugins as no longer being loaded, so that calls don't wait for them.
    fn end_loading(&self, names: &HashSet<String>) {
        let mut slots = self.slots();
        if end_loading(&mut slots, names) {
            self.publish_or_log(&slots);
        }
    }

    /// Reads one file and decides what happens. Returns `None` if the file hasn't changed.
    async fn decide(
        self: &Arc<Self>,
        found: FoundComponent,
        approved: Option<&ApprovedPlugin>,
        again: bool,
    ) -> Option<Decision> {
        let FoundComponent { name, place, source, file } = found;
        let stamp = file.as_ref().ok().map(|(_, stamp)| *stamp);
        if !self.needs_decision(&name, stamp, approved, again) {
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
        let is_fresh = stamp.is_some_and(|stamp| stamp.is_fresh(HALF_WRITTEN));
        let half_written = self.watched && fails_to_load && is_fresh;
        Some(Decision { name, place, stamp, verdict, half_written })
    }

    /// Checks whether a found file must be read. This is true if the file is new or has changed, if
    /// its held version was approved meanwhile, or if `again` requests another attempt.
    fn needs_decision(
        &self,
        name: &str,
        stamp: Option<FileStamp>,
        approved: Option<&ApprovedPlugin>,
        again: bool,
    ) -> bool {
        let slots = self.slots();
        let Some(slot) = slots.iter().find(|slot| slot.name == name) else { return true };
        if matches!(slot.place, ComponentSource::BuiltIn | ComponentSource::Given(_)) {
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
        again || (waiting.held && waiting.digest.as_deref() == approved_digest)
    }

    /// Reads the component in an open file.
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
            // The runtime's cached data about a file isn't proof, so the file is read.
            let candidate = Candidate::opened(file, &path)?.under(&name);
            plugins.admitted(candidate, source, &path)
        })
        .await?
    }

    /// Decides what happens to the version in a file.
    async fn consider(
        &self,
        name: &str,
        place: &ComponentSource,
        candidate: Candidate,
        approved: Option<&ApprovedPlugin>,
    ) -> Verdict {
        let info = Arc::clone(candidate.info());
        if info.manifest.name != name {
            let real = &info.manifest.name;
            let fix = match place {
                ComponentSource::Folder(_) => format!("name the file `{real}.wasm`"),
                _ => format!("the table has to be [plugins.{real}]"),
            };
            let reason = format!("its manifest names it `{real}`; {fix}");
            return Verdict::Wait(HeldVersion::failed(Some(&info), reason));
        }
        if self.slots().iter().any(|slot| slot.name == name && slot.digest() == Some(&info.digest))
        {
            return Verdict::Unchanged;
        }
        // A new version of an installed plugin always needs an approval.
        let is_trusted = self.policies.config.reload(name) == Reload::Trust
            && !matches!(place, ComponentSource::Installed(_));
        let is_approved = approved.is_some_and(|approved| approved.digest == info.digest);
        if !is_trusted && !is_approved {
            let reason = approvals::hold_reason(name, &info, approved);
            return Verdict::Wait(HeldVersion::held(&info, reason));
        }
        match self.load(name, candidate).await {
            Ok(plugin) => Verdict::Serve { plugin, is_approved },
            Err(error) => Verdict::Wait(HeldVersion::failed(Some(&info), reason_of(&error))),
        }
    }

    /// Returns the component if the configuration allows it. `source` is the source from which the
    /// component was installed. The default is its file. Blocks.
    pub(super) fn admitted(
        &self,
        candidate: Candidate,
        source: Option<String>,
        file: &Path,
    ) -> Result<Candidate, HostError> {
        let config = &self.policies.config;
        if admission::is_restricted(config) {
            let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
            let source = source.unwrap_or_else(|| path.display().to_string());
            admission::check(config, &candidate, &source, file)?;
        }
        Ok(candidate)
    }

    /// Loads a component with the policy of its plugin.
    async fn load(
        &self,
        name: &str,
        candidate: Candidate,
    ) -> Result<toolhold_engine::Plugin, HostError> {
        self.policies.check_digest(name, &candidate.info().digest)?;
        let policy = self.policy_for(name, &candidate).await?;
        self.runtime.load(candidate, policy).await
    }

    /// Applies decisions: new versions become active, or old versions stay active. `done` has the
    /// plugins that need nothing more. Returns the new active versions, and the names of plugins
    /// that need their previously approved version.
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
        let mut need_earlier = find_needing_earlier(&slots, &names, approved);
        done.extend(names.iter().filter(|name| !need_earlier.contains(name)).cloned());
        let loading_ended = end_loading(&mut slots, &done);

        // The reasons for missing plugins may have changed even if no tool has changed.
        let is_due = !names.is_empty() || loading_ended;
        if is_due && self.publish_slots(&slots).is_err() {
            // Two tools have the same name. The later tool is refused.
            served = self.serve_each(&mut slots, served);
            need_earlier = find_needing_earlier(&slots, &names, approved);
            self.publish_or_log(&slots);
        }
        for ServedVersion { name, plugin, .. } in &served {
            let generation = slot_of(&mut slots, name).map_or(0, |slot| slot.generation);
            tracing::info!(plugin = name, generation, digest = plugin.info().digest, "serves");
        }
        (served.into_iter().map(|version| version.plugin).collect(), need_earlier)
    }

    /// Puts a decision into the slot of its plugin without creating a catalogue. Returns the
    /// version if it becomes active with the next catalogue.
    fn put(&self, slots: &mut Vec<Slot>, decision: Decision) -> Option<ServedVersion> {
        let Decision { name, place, stamp, verdict, half_written } = decision;
        let index = slots.iter().position(|slot| slot.name == name).unwrap_or_else(|| {
            slots.push(Slot::new(name.clone(), place.clone()));
            slots.len() - 1
        });
        let slot = &mut slots[index];
        slot.place = place;
        slot.stamp = stamp;

        match verdict {
            Verdict::Unchanged => {
                slot.wait(None, half_written);
                None
            }
            Verdict::Wait(waiting) => {
                // Calls of this version would fail. The approved copy may run instead.
                slot.running.take_if(|running| running.plugin.differs_from_file());
                slot.wait(Some(waiting), half_written);
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
                    slot.wait(Some(failed), half_written);
                    return None;
                }
                slot.wait(None, half_written);
                Some(ServedVersion { name, plugin, before })
            }
        }
    }

    /// Publishes several versions one after the other. Refuses versions whose tools have a name
    /// that another tool has. Returns the active versions.
    fn serve_each(&self, slots: &mut [Slot], versions: Vec<ServedVersion>) -> Vec<ServedVersion> {
        // First, all slots return to their earlier versions.
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
            slot.wait(Some(failed), false);
        }
        served
    }

    /// Activates the previously approved version of a plugin if no version of the plugin is
    /// running.
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
        let Ok(Ok(Some(candidate))) = component.await else { return };

        let loaded = match self.load(name, candidate).await {
            Ok(plugin) => plugin,
            Err(error) => {
                tracing::warn!(
                    "the previously approved version of `{name}` doesn't load either: {error}"
                );
                return;
            }
        };
        let mut slots = self.slots();
        let Some(slot) = slot_of(&mut slots, name) else { return };
        if slot.serve(&loaded, true).is_err() || self.publish_slots(&slots).is_err() {
            // Publishing needs all slots, so the slot is looked up again.
            if let Some(slot) = slot_of(&mut slots, name) {
                slot.running = None;
            }
        }
    }
}

/// Returns the first outcome and the outcomes that follow within a short time, so that they are
/// published together.
async fn collect_outcomes(
    first: Result<LoadOutcome, JoinError>,
    loads: &mut JoinSet<LoadOutcome>,
) -> Vec<Result<LoadOutcome, JoinError>> {
    let mut outcomes = vec![first];
    let end = Instant::now() + TOGETHER;
    while let Ok(Some(next)) = timeout_at(end, loads.join_next()).await {
        outcomes.push(next);
    }
    outcomes
}

/// Checks whether an approved version should run because no version of the plugin is running. The
/// version in the file is held or fails, and isn't the approved version.
fn needs_earlier(slot: &Slot, approved: Option<&ApprovedPlugin>) -> bool {
    let (Some(approved), Some(waiting)) = (approved, &slot.waiting) else { return false };
    slot.running.is_none() && waiting.digest.as_ref() != Some(&approved.digest)
}

/// Returns the named plugins that need their previously approved version.
fn find_needing_earlier(
    slots: &[Slot],
    names: &HashSet<String>,
    approved: &BTreeMap<String, ApprovedPlugin>,
) -> Vec<String> {
    let mut need_earlier = Vec::new();
    for slot in slots {
        if names.contains(&slot.name) && needs_earlier(slot, approved.get(&slot.name)) {
            need_earlier.push(slot.name.clone());
        }
    }
    need_earlier
}

/// Marks these plugins as no longer being loaded. Returns whether any of them was being loaded.
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
