//! The state of one plugin name: the active version, and the held version.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolhold_engine::{Plugin, PluginInfo};
use toolhold_system::watch::FileStamp;

use super::folder::shown;
use crate::catalogue::Tool;
use crate::tally::Tally;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ComponentSource {
    /// The component is part of the program.
    BuiltIn,
    /// A file that a flag or the embedding program named for this run.
    Given(PathBuf),
    /// `path` in `[plugins.NAME]`.
    Named(PathBuf),
    Folder(PathBuf),
    /// A stored copy of an installed plugin. Each version has its own path.
    Installed(PathBuf),
}

impl ComponentSource {
    /// Checks whether two versions come from the same source. Versions of an installed plugin have
    /// different paths but the same source.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Installed(_), Self::Installed(_)) => true,
            _ => self == other,
        }
    }

    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn => None,
            Self::Given(path) | Self::Named(path) | Self::Folder(path) | Self::Installed(path) => {
                Some(path)
            }
        }
    }
}

#[derive(Clone)]
pub(super) struct Running {
    pub(super) plugin: Plugin,
    pub(super) tools: Vec<Arc<Tool>>,
}

/// A version that doesn't run, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVersion {
    /// Whether the version needs approval. `false` means that it has an error.
    pub held: bool,
    /// The SHA-256 digest of the component, if the component could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The version in the component's manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The reason why the version doesn't run, and the remedy.
    pub reason: String,
}

impl HeldVersion {
    pub(super) fn failed(info: Option<&PluginInfo>, reason: String) -> Self {
        let digest = info.map(|info| info.digest.clone());
        let version = info.map(|info| info.manifest.version.clone());
        Self { held: false, digest, version, reason }
    }

    pub(super) fn held(info: &PluginInfo, reason: String) -> Self {
        Self { held: true, ..Self::failed(Some(info), reason) }
    }
}

pub(super) struct Slot {
    pub(super) name: String,
    pub(super) place: ComponentSource,
    pub(super) running: Option<Running>,
    pub(super) waiting: Option<HeldVersion>,
    /// Whether the first version of the plugin is being loaded.
    pub(super) loading: bool,
    /// The stamp of the file at the last read.
    pub(super) stamp: Option<FileStamp>,
    /// The number of versions that have run, including the running version.
    pub(super) generation: u64,
    pub(super) tally: Arc<Tally>,
}

impl Slot {
    pub(super) fn new(name: String, place: ComponentSource) -> Self {
        Self {
            name,
            place,
            running: None,
            waiting: None,
            loading: false,
            stamp: None,
            generation: 0,
            tally: Arc::default(),
        }
    }

    pub(super) fn tools(&self) -> &[Arc<Tool>] {
        self.running.as_ref().map_or(&[], |running| &running.tools)
    }

    pub(super) fn set_running(&mut self, (running, generation): (Option<Running>, u64)) {
        self.running = running;
        self.generation = generation;
    }

    /// Sets the version that doesn't run, and logs a new reason. Nothing is logged about a file
    /// that may be incomplete, because the file is read again soon.
    pub(super) fn set_waiting(&mut self, waiting: Option<HeldVersion>, may_be_incomplete: bool) {
        let has_changed = self.waiting != waiting;
        self.waiting = waiting;
        let Some(waiting) = &self.waiting else { return };
        if may_be_incomplete || !has_changed {
            return;
        }
        let state = if waiting.held { "held back" } else { "not loaded" };
        let has_running_version = self.running.is_some();
        let consequence =
            if has_running_version { "; the previous version stays in use" } else { "" };
        let name = shown(&self.name);
        tracing::warn!("the plugin `{name}` is {state}: {}{consequence}", waiting.reason);
    }

    pub(super) fn digest(&self) -> Option<&str> {
        Some(&self.running.as_ref()?.plugin.info().digest)
    }

    pub(super) fn state(&self) -> PluginState {
        let place = match self.place {
            ComponentSource::BuiltIn => PluginPlace::BuiltIn,
            ComponentSource::Given(_) => PluginPlace::Given,
            ComponentSource::Named(_) => PluginPlace::Named,
            ComponentSource::Folder(_) => PluginPlace::Folder,
            ComponentSource::Installed(_) => PluginPlace::Installed,
        };
        let info = self.running.as_ref().map(|running| running.plugin.info());
        let mut hosts = Vec::new();
        let mut secrets = Vec::new();
        if let Some(running) = &self.running
            && let Some(http) = &running.plugin.policy().capabilities.http
        {
            let settings = http.settings();
            hosts = settings.reach.granted();
            secrets = settings.secrets.iter().map(|secret| secret.rule.name.clone()).collect();
        }
        PluginState {
            name: shown(&self.name),
            place,
            file: self.place.file().map(Path::to_owned),
            generation: self.generation,
            version: info.map(|info| info.manifest.version.clone()),
            digest: info.map(|info| info.digest.clone()),
            waiting: self.waiting.clone(),
            loading: self.loading,
            hosts,
            secrets,
            ready: self.running.as_ref().map_or(0, |running| running.plugin.ready()),
            calls: self.tally.calls(),
            failures: self.tally.failures(),
            p50: self.tally.percentile(50),
            p99: self.tally.percentile(99),
        }
    }
}

/// The state of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginState {
    /// The plugin's name.
    pub name: String,
    /// Where the component comes from.
    pub place: PluginPlace,
    /// The file of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The number of versions that have run since the host started.
    pub generation: u64,
    /// The running version, from the manifest. `None` if no version is running.
    pub version: Option<String>,
    /// The SHA-256 digest of the running component.
    pub digest: Option<String>,
    /// The version in the plugin's file, if it isn't running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<HeldVersion>,
    /// Whether the first version of the plugin is being loaded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loading: bool,
    /// The granted hosts for the plugin's requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The names of the secrets that the host adds to the plugin's requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The number of warm instances.
    #[serde(default)]
    pub ready: usize,
    /// The number of calls of all versions since the host started.
    pub calls: u64,
    /// The number of failed calls.
    pub failures: u64,
    /// The median duration of the calls, exact to an eighth, and serialised in microseconds. `None`
    /// means that there was no call.
    #[serde(rename = "p50_micros", with = "micros")]
    pub p50: Option<Duration>,
    /// The 99th percentile of the duration.
    #[serde(rename = "p99_micros", with = "micros")]
    pub p99: Option<Duration>,
}

impl PluginState {
    /// Returns the state in one word: `running`, `loading`, `held` or `failed`.
    pub fn word(&self) -> &'static str {
        let is_running = self.digest.is_some();
        let is_held = self.waiting.as_ref().is_some_and(|waiting| waiting.held);
        if is_running {
            "running"
        } else if self.loading {
            "loading"
        } else if is_held {
            "held"
        } else {
            "failed"
        }
    }
}

/// Where a plugin comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginPlace {
    /// The plugin is part of the program.
    BuiltIn,
    /// A file that a flag or the embedding program named.
    Given,
    /// A file that `[plugins.NAME]` names.
    Named,
    /// The plugin folder.
    Folder,
    /// The plugin was installed with `toolhold plugin add`.
    Installed,
}

mod micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_micros))
    }
}
