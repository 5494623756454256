//! Loads found plugins several at a time, and publishes those together that are loaded together,
//! since a catalogue of many plugins takes long to make.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
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

/// Time after a file's last change in which it may still be half written if it doesn't load.
const HALF_WRITTEN: Duration = Duration::from_secs(2);

/// How long a loaded plugin waits for others that are published with it.
const TOGETHER: Duration = Duration::from_millis(5);

/// The decision on the version in a file.
enum Verdict {
    /// The version already serves.
    Unchanged,
    /// The version doesn't serve.
    Wait(HeldVersion),
    /// The version starts to serve. The flag: whether a person has approved it.
    Serve(Plugin, bool),
}

/// A file that was read, and what is to happen. No slot has changed yet.
struct Decided {
    name: String,
    place: ComponentSource,
    stamp: Option<FileStamp>,
    verdict: Verdict,
    half_written: bool,
}

/// The end of one task of [`Plugins::load_all`].
enum Ended {
    Decided(Decided),
    /// The file hasn't changed, or what was left to do after a decision is done.
    Done(String),
}

/// A version that was put into its slot, and what the slot had before.
struct Served {
    name: String,
    plugin: Plugin,
    before: (Option<Running>, u64),
}

impl Plugins {
    /// Loads several plugins at a time: one that takes long delays no other. Returns whether a file
    /// may still be half written.
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
        let places = Arc::new(Semaphore::new(cores.max(MIN_LOADS)));
        let mut loads = JoinSet::new();
        for found in components {
            let this = Arc::clone(self);
            let approved = Arc::clone(approved);
            let places = Arc::clone(&places);
            loads.spawn(async move {
                let _place = places.acquire_owned().await;
                let name = found.name.clone();
                let decided = this.decide(found, approved.get(&name), again).await;
                decided.map_or(Ended::Done(name), Ended::Decided)
            });
        }
        let mut half_written = false;
        while let Some(first) = loads.join_next().await {
            let mut ended = vec![first];
            let end = Instant::now() + TOGETHER;
            while let Ok(Some(next)) = timeout_at(end, loads.join_next()).await {
                ended.push(next);
            }
            let mut decided = Vec::new();
            let mut done = HashSet::new();
            for load in ended {
                match load {
                    Ok(Ended::Decided(one)) => decided.push(one),
                    Ok(Ended::Done(name)) => drop(done.insert(name)),
                    Err(error) => tracing::error!("loading a plugin: {error}"),
                }
            }
            half_written |= decided.iter().any(|one| one.half_written);
            let (served, need_earlier) = self.apply(decided, approved, done);
            for name in need_earlier {
                let this = Arc::clone(self);
                let approved = approved.get(&name).cloned();
                loads.spawn(async move {
                    if let Some(approved) = approved {
                        this.fall_back(&name, approved).await;
                    }
                    Ended::Done(name)
                });
            }
            for plugin in served {
                loads.spawn(async move {
                    plugin.remember().await;
                    Ended::Done(plugin.info().manifest.name.clone())
                });
            }
        }
        // Also after a panic: calls wait for those that are being loaded.
        self.end_loading(&names);
        half_written
    }

    /// Calls wait no longer for these plugins.
    fn end_loading(&self, names: &HashSet<String>) {
        let mut slots = self.slots();
        if end_loading(&mut slots, names) {
            self.publish_or_log(&slots);
        }
    }

    /// Reads one file and decides what happens. `None`: nothing, the file hasn't changed.
    async fn decide(
        self: &Arc<Self>,
        found: FoundComponent,
        approved: Option<&ApprovedPlugin>,
        again: bool,
    ) -> Option<Decided> {
        let FoundComponent { name, place, source, file } = found;
        let stamp = file.as_ref().ok().map(|(_, stamp)| *stamp);
        if let Some(slot) = self.slots().iter().find(|slot| slot.name == name) {
            if matches!(slot.place, ComponentSource::BuiltIn | ComponentSource::Given(_)) {
                tracing::warn!(
                    "the plugin `{}` is ignored: another plugin has its name",
                    folder::shown(&name)
                );
                return None;
            }
            let unchanged = slot.stamp == stamp
                && stamp.is_some()
                && !slot.running.as_ref().is_some_and(|running| running.plugin.differs_from_file())
                && !slot.waiting.as_ref().is_some_and(|waiting| {
                    waiting.held
                        && waiting.digest.as_deref() == approved.map(|approved| &*approved.digest)
                });
            if unchanged && !(again && slot.waiting.is_some()) {
                return None;
            }
        }
        let path = place.file().map(Path::to_owned).unwrap_or_default();
        let candidate = match file {
            Ok((file, stamp)) => {
                let this = Arc::clone(self);
                let name = name.clone();
                let read = blocking(move || {
                    if !admission::is_restricted(&this.policies.config) {
                        return this.runtime.candidate(file, &path, stamp);
                    }
                    // Knowledge of the file proves nothing, so it is read.
                    let candidate = Candidate::opened(file, &path)?.under(&name);
                    this.admitted(candidate, source, &path)
                });
                read.await.and_then(|read| read)
            }
            Err(error) => Err(HostError::Load { plugin: name.clone(), reason: error.to_string() }),
        };
        let verdict = match candidate {
            Ok(candidate) => self.consider(&name, &place, candidate.under(&name), approved).await,
            Err(error) => Verdict::Wait(HeldVersion::failed(None, reason_of(&error))),
        };
        let half_written = self.watched
            && matches!(&verdict, Verdict::Wait(waiting) if !waiting.held)
            && stamp.is_some_and(|stamp| stamp.is_fresh(HALF_WRITTEN));
        Some(Decided { name, place, stamp, verdict, half_written })
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
        // An installed plugin changes by a decision only.
        let trusted = self.policies.config.reload(name) == Reload::Trust
            && !matches!(place, ComponentSource::Installed(_));
        let is_approved = approved.is_some_and(|approved| approved.digest == info.digest);
        if !trusted && !is_approved {
            let reason = approvals::hold_reason(name, &info, approved);
            return Verdict::Wait(HeldVersion {
                held: true,
                ..HeldVersion::failed(Some(&info), reason)
            });
        }
        match self.load(name, candidate).await {
            Ok(plugin) => Verdict::Serve(plugin, is_approved),
            Err(error) => Verdict::Wait(HeldVersion::failed(Some(&info), reason_of(&error))),
        }
    }

    /// The component, if the configuration lets it be loaded. `source`: where it was installed
    /// from; by default, its file. Blocks.
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

    async fn load(
        &self,
        name: &str,
        candidate: Candidate,
    ) -> Result<toolhold_engine::Plugin, HostError> {
        self.policies.check_digest(name, &candidate.info().digest)?;
        let policy = self.policy_for(name, &candidate).await?;
        self.runtime.load(candidate, policy).await
    }

    /// Applies decisions: new versions start to serve, or old ones continue. `done`: plugins for
    /// which nothing is left to do. Returns the versions that now serve, and the names of plugins
    /// that need their previously approved version.
    fn apply(
        &self,
        decided: Vec<Decided>,
        approved: &BTreeMap<String, ApprovedPlugin>,
        mut done: HashSet<String>,
    ) -> (Vec<Plugin>, Vec<String>) {
        let names: HashSet<String> = decided.iter().map(|one| one.name.clone()).collect();
        let mut slots = self.slots();
        let mut served: Vec<Served> =
            decided.into_iter().filter_map(|one| self.put(&mut slots, one)).collect();
        let mut need_earlier = find_needy(&slots, &names, approved);
        done.extend(names.iter().filter(|name| !need_earlier.contains(name)).cloned());
        let ended = end_loading(&mut slots, &done);
        // The reasons for missing plugins may have changed, even if no tool has.
        if (!names.is_empty() || ended) && self.publish_slots(&slots).is_err() {
            // Two tools have the same name. The later one is refused.
            served = self.serve_each(&mut slots, served);
            need_earlier = find_needy(&slots, &names, approved);
            self.publish_or_log(&slots);
        }
        for Served { name, plugin, .. } in &served {
            let generation = slot_of(&mut slots, name).map_or(0, |slot| slot.generation);
            tracing::info!(plugin = name, generation, digest = plugin.info().digest, "serves");
        }
        (served.into_iter().map(|served| served.plugin).collect(), need_earlier)
    }

    /// Puts a decision into the slot of its plugin, without a new catalogue. Returns the version,
    /// if it serves from the next catalogue on.
    fn put(&self, slots: &mut Vec<Slot>, decided: Decided) -> Option<Served> {
        let Decided { name, place, stamp, verdict, half_written } = decided;
        let index = slots.iter().position(|slot| slot.name == name).unwrap_or_else(|| {
            slots.push(Slot::new(name.clone(), place.clone()));
            slots.len() - 1
        });
        let slot = &mut slots[index];
        (slot.place, slot.stamp) = (place, stamp);
        let (waiting, served) = match verdict {
            Verdict::Unchanged => (None, None),
            Verdict::Wait(waiting) => {
                // Calls of this version would fail. The approved copy may serve instead.
                slot.running.take_if(|running| running.plugin.differs_from_file());
                (Some(waiting), None)
            }
            Verdict::Serve(plugin, is_approved) => {
                let before = (slot.running.clone(), slot.generation);
                let serves = slot
                    .serve(&plugin, is_approved)
                    .and_then(|()| self.check_patterns_of(slot.tools()));
                match serves {
                    Ok(()) => (None, Some(Served { name, plugin, before })),
                    Err(error) => {
                        (slot.running, slot.generation) = before;
                        (Some(HeldVersion::failed(Some(plugin.info()), reason_of(&error))), None)
                    }
                }
            }
        };
        slot.wait(waiting, half_written);
        served
    }

    /// Lets each of several versions serve alone, and refuses those whose tools have names that are
    /// taken.
    fn serve_each(&self, slots: &mut [Slot], served: Vec<Served>) -> Vec<Served> {
        let mut all = Vec::new();
        for one in served.into_iter().rev() {
            let Some(slot) = slot_of(slots, &one.name) else { continue };
            let now = (slot.running.take(), slot.generation);
            (slot.running, slot.generation) = one.before.clone();
            all.push((one, now));
        }
        let mut served = Vec::new();
        for (one, now) in all.into_iter().rev() {
            let Some(slot) = slot_of(slots, &one.name) else { continue };
            (slot.running, slot.generation) = now;
            match self.publish_slots(slots) {
                Ok(()) => served.push(one),
                Err(error) => {
                    let Some(slot) = slot_of(slots, &one.name) else { continue };
                    let info = one.plugin.info();
                    (slot.running, slot.generation) = one.before;
                    slot.wait(Some(HeldVersion::failed(Some(info), reason_of(&error))), false);
                }
            }
        }
        served
    }

    /// Serves the previously approved version if no version runs, since the one in the file is held
    /// back or fails.
    async fn fall_back(self: &Arc<Self>, name: &str, approved: ApprovedPlugin) {
        let this = Arc::clone(self);
        let plugin = name.to_owned();
        let place = slot_of(&mut self.slots(), name).map(|slot| slot.place.clone());
        let component = blocking(move || {
            let Some(candidate) = this.approvals.component(&plugin, &approved)? else {
                return Ok(None);
            };
            let file = place
                .as_ref()
                .and_then(ComponentSource::file)
                .map(|file| file.display().to_string());
            let source = approved.source.as_ref().map(|source| source.resolved.clone()).or(file);
            let copy = this.approvals.copy_path(&approved);
            this.admitted(candidate, source, &copy).map(Some)
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
            slot_of(&mut slots, name).into_iter().for_each(|slot| slot.running = None);
        }
    }
}

/// Whether no version of a plugin runs, since the one in the file is held back or fails, but an
/// approved one could. If the approved version itself is the one that waits, it fails.
fn needs_earlier(slot: &Slot, approved: Option<&ApprovedPlugin>) -> bool {
    let Some((approved, waiting)) = approved.zip(slot.waiting.as_ref()) else { return false };
    slot.running.is_none() && waiting.digest.as_ref() != Some(&approved.digest)
}

/// The decided plugins that need their previously approved version.
fn find_needy(
    slots: &[Slot],
    decided: &HashSet<String>,
    approved: &BTreeMap<String, ApprovedPlugin>,
) -> Vec<String> {
    slots
        .iter()
        .filter(|slot| decided.contains(&slot.name))
        .filter(|slot| needs_earlier(slot, approved.get(&slot.name)))
        .map(|slot| slot.name.clone())
        .collect()
}

/// Calls wait no longer for these plugins. Returns whether they did for one.
fn end_loading(slots: &mut [Slot], names: &HashSet<String>) -> bool {
    let ended = slots.iter_mut().filter(|slot| slot.loading && names.contains(&slot.name));
    ended.fold(false, |_, slot| {
        slot.loading = false;
        true
    })
}

fn slot_of<'s>(slots: &'s mut [Slot], name: &str) -> Option<&'s mut Slot> {
    slots.iter_mut().find(|slot| slot.name == name)
}
