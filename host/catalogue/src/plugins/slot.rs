//! A plugin by its name: the version that runs, and what became of the version that lies there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_runtime::{Plugin, PluginInfo};
use serde::{Deserialize, Serialize};

use super::folder::{Stamp, shown};
use crate::catalogue::Tool;
use crate::tally::Tally;

/// Where the component of a plugin comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The program.
    BuiltIn,
    /// A file that a flag or the embedding program named for this run.
    Given(PathBuf),
    /// `path` in `[plugins.NAME]`.
    Named(PathBuf),
    /// The plugin folder.
    Folder(PathBuf),
}

impl Place {
    /// The component's file, where it comes from one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn => None,
            Self::Given(path) | Self::Named(path) | Self::Folder(path) => Some(path),
        }
    }
}

/// A version that serves calls.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) plugin: Plugin,
    pub(super) tools: Vec<Arc<Tool>>,
}

/// A version that does not serve, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVersion {
    /// Whether it needs to be approved, rather than to be mended.
    pub held: bool,
    /// SHA-256 of the component, where it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The version that its manifest tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it does not serve, and what to do.
    pub reason: String,
}

impl HeldVersion {
    /// A version that does not load.
    pub(super) fn failed(info: Option<&PluginInfo>, reason: String) -> Self {
        let (digest, version) =
            (info.map(|info| info.digest.clone()), info.map(|info| info.manifest.version.clone()));
        Self { held: false, digest, version, reason }
    }
}

/// A plugin by its name. It stays when its versions change.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) running: Option<Running>,
    pub(super) waiting: Option<HeldVersion>,
    /// The state in which the file was looked at last.
    pub(super) stamp: Option<Stamp>,
    /// Versions that have served, the running one included.
    pub(super) generation: u64,
    pub(super) tally: Arc<Tally>,
}

impl Slot {
    pub(super) fn new(name: String, place: Place) -> Self {
        Self {
            name,
            place,
            running: None,
            waiting: None,
            stamp: None,
            generation: 0,
            tally: Arc::default(),
        }
    }

    pub(super) fn digest(&self) -> Option<&str> {
        Some(&self.running.as_ref()?.plugin.info().digest)
    }

    pub(super) fn state(&self) -> PluginState {
        let place = match self.place {
            Place::BuiltIn => PluginPlace::BuiltIn,
            Place::Given(_) => PluginPlace::Given,
            Place::Named(_) => PluginPlace::Named,
            Place::Folder(_) => PluginPlace::Folder,
        };
        let info = self.running.as_ref().map(|running| running.plugin.info());
        let egress = self
            .running
            .as_ref()
            .and_then(|running| running.plugin.policy().egress.as_ref())
            .map(|egress| egress.settings());
        PluginState {
            name: shown(&self.name),
            place,
            file: self.place.file().map(Path::to_owned),
            generation: self.generation,
            version: info.map(|info| info.manifest.version.clone()),
            digest: info.map(|info| info.digest.clone()),
            waiting: self.waiting.clone(),
            hosts: egress.map(|settings| settings.reach.granted()).unwrap_or_default(),
            secrets: egress
                .iter()
                .flat_map(|settings| &settings.secrets)
                .map(|secret| secret.rule.name.clone())
                .collect(),
            ready: self.running.as_ref().map_or(0, |running| running.plugin.ready()),
            calls: self.tally.calls(),
            failures: self.tally.failures(),
            p50: self.tally.percentile(50),
            p99: self.tally.percentile(99),
        }
    }
}

/// What a host has of a plugin, and how it fares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginState {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub place: PluginPlace,
    /// Its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// How many versions have served since the host started, the running one included; 0 where none
    /// has.
    pub generation: u64,
    /// The running version, as its manifest tells it. `None` where none runs.
    pub version: Option<String>,
    /// SHA-256 of the running component.
    pub digest: Option<String>,
    /// The version that lies there and does not serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<HeldVersion>,
    /// The hosts that its requests reach, as they are granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The names of the secrets that are put into its requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Fresh instances that wait for the next calls.
    #[serde(default)]
    pub ready: usize,
    /// Calls since the host started, of all versions.
    pub calls: u64,
    /// Those that ended in a failure.
    pub failures: u64,
    /// What half of the calls took at most, within an eighth, in microseconds when serialised.
    /// `None` without a call.
    #[serde(rename = "p50_micros", with = "micros")]
    pub p50: Option<Duration>,
    /// What 99 of 100 calls took at most.
    #[serde(rename = "p99_micros", with = "micros")]
    pub p99: Option<Duration>,
}

impl PluginState {
    /// `running`, `held` or `failed`: of what serves, else of what lies there.
    pub fn word(&self) -> &'static str {
        match (&self.digest, &self.waiting) {
            (Some(_), _) => "running",
            (None, Some(waiting)) if waiting.held => "held",
            (None, _) => "failed",
        }
    }
}

/// Where a plugin comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginPlace {
    /// It is part of the program.
    BuiltIn,
    /// A flag or the embedding program named its file.
    Given,
    /// `[plugins.NAME]` names its file.
    Named,
    /// It lies in the plugin folder.
    Folder,
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
