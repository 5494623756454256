//! The state of one plugin name: the active version, and the held version with the reason.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolhold_engine::{Plugin, PluginInfo};
use toolhold_system::watch::FileStamp;

use super::folder::shown;
use crate::catalogue::Tool;
use crate::tally::Tally;

/// The source of a plugin's component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ComponentSource {
    /// The program.
    BuiltIn,
    /// A file that a flag or the embedding program named for this run.
    Given(PathBuf),
    /// `path` in `[plugins.NAME]`.
    Named(PathBuf),
    /// The plugin folder.
    Folder(PathBuf),
    /// The plugin is installed in the lock file. The path is that of the copy, which is different
    /// for each version.
    Installed(PathBuf),
}

impl ComponentSource {
    /// Checks whether two versions of a plugin have the same place. Versions of an installed plugin
    /// have different paths but the same place.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Installed(_), Self::Installed(_)) => true,
            _ => self == other,
        }
    }

    /// Returns the component's file, or `None` if the component is built in.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn => None,
            Self::Given(path) | Self::Named(path) | Self::Folder(path) | Self::Installed(path) => {
                Some(path)
            }
        }
    }
}

/// A version that serves calls.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) plugin: Plugin,
    pub(super) tools: Vec<Arc<Tool>>,
}

/// A version that doesn't serve, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVersion {
    /// Whether the version needs approval. `false` means that it has an error.
    pub held: bool,
    /// The SHA-256 of the component, if the component could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The version in the component's manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The reason why the version doesn't run, and the remedy.
    pub reason: String,
}

impl HeldVersion {
    /// Returns a version that doesn't load.
    pub(super) fn failed(info: Option<&PluginInfo>, reason: String) -> Self {
        let digest = info.map(|info| info.digest.clone());
        let version = info.map(|info| info.manifest.version.clone());
        Self { held: false, digest, version, reason }
    }

    /// Returns a version that needs an approval.
    pub(super) fn held(info: &PluginInfo, reason: String) -> Self {
        Self { held: true, ..Self::failed(Some(info), reason) }
    }
}

/// The state of one plugin name, for all its versions.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) place: ComponentSource,
    pub(super) running: Option<Running>,
    pub(super) waiting: Option<HeldVersion>,
    /// Whether the first version of the plugin is being loaded.
    pub(super) loading: bool,
    /// The stamp of the file when it was last read.
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

    /// Returns the tools of the running version.
    pub(super) fn tools(&self) -> &[Arc<Tool>] {
        self.running.as_ref().map_or(&[], |running| &running.tools)
    }

    /// Sets the running version, if any, and the generation.
    pub(super) fn set_running(&mut self, (running, generation): (Option<Running>, u64)) {
        self.running = running;
        self.generation = generation;
    }

    /// Sets the version that doesn't run, and logs it if it differs from the previous one. With
    /// `half_written`, the file is read again soon, so the version isn't logged yet.
    pub(super) fn wait(&mut self, waiting: Option<HeldVersion>, half_written: bool) {
        let has_changed = self.waiting != waiting;
        self.waiting = waiting;
        let Some(waiting) = &self.waiting else { return };
        if half_written || !has_changed {
            return;
        }
        let what = if waiting.held { "held back" } else { "not loaded" };
        let serves = self.running.is_some();
        let old = if serves { "; the previous version continues to serve" } else { "" };
        tracing::warn!("the plugin `{}` is {what}: {}{old}", shown(&self.name), waiting.reason);
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
        let egress = self.running.as_ref().and_then(|running| {
            let http = running.plugin.policy().capabilities.http.as_ref()?;
            Some(http.settings())
        });
        PluginState {
            name: shown(&self.name),
            place,
            file: self.place.file().map(Path::to_owned),
            generation: self.generation,
            version: info.map(|info| info.manifest.version.clone()),
            digest: info.map(|info| info.digest.clone()),
            waiting: self.waiting.clone(),
            loading: self.loading,
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

/// The state of a plugin in a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginState {
    /// The plugin's name.
    pub name: String,
    /// The source of the component.
    pub place: PluginPlace,
    /// The file of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The number of versions that have run since the host started, including the running version.
    /// 0 if no version has run.
    pub generation: u64,
    /// The running version, from the manifest. `None` if no version is running.
    pub version: Option<String>,
    /// SHA-256 of the running component.
    pub digest: Option<String>,
    /// The version in the plugin's file, if it isn't running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<HeldVersion>,
    /// Whether the first version of the plugin is being loaded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loading: bool,
    /// The hosts that the plugin's requests may reach, as they are granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The names of the secrets that the host adds to the plugin's requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The number of warm instances.
    #[serde(default)]
    pub ready: usize,
    /// Calls of all versions since the host started.
    pub calls: u64,
    /// Calls that failed.
    pub failures: u64,
    /// The median duration of the calls, rounded to an eighth. It is serialised in microseconds.
    /// `None` if there was no call.
    #[serde(rename = "p50_micros", with = "micros")]
    pub p50: Option<Duration>,
    /// The longest duration of the fastest 99 percent.
    #[serde(rename = "p99_micros", with = "micros")]
    pub p99: Option<Duration>,
}

impl PluginState {
    /// Returns the state in one word: `running`, `loading`, `held` or `failed`. If no version is
    /// running, the word is about the version in the file.
    pub fn word(&self) -> &'static str {
        match (&self.digest, &self.waiting) {
            (Some(_), _) => "running",
            _ if self.loading => "loading",
            (None, Some(waiting)) if waiting.held => "held",
            (None, _) => "failed",
        }
    }
}

/// The source of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginPlace {
    /// The program itself.
    BuiltIn,
    /// A file that a flag or the embedding program named.
    Given,
    /// A file that `[plugins.NAME]` names.
    Named,
    /// The plugin folder.
    Folder,
    /// The plugin is in the lock file, because it was installed with `toolhold plugin add`.
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
