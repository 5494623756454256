//! A host whose plugins change.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch::Receiver;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Answer, Candidate, Host, HostBuilder, PluginApprovals, PluginState, Request};

use super::{Component, Offer, builtin, log, shared_cache, toolhold};

/// Time limit for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// The folders of a host and their content.
pub(crate) struct Living {
    root: TempDir,
    pub(crate) folders: Folders,
}

impl Living {
    /// Folders with an empty plugin folder.
    pub(crate) fn new() -> Self {
        log::keep();
        let root = TempDir::new().expect("a temporary folder is made");
        let path = root.path().canonicalize().expect("the folder is there");
        let folders = Folders { cache: shared_cache(), ..Folders::inside(&path.join("toolhold")) };
        fs::create_dir(path.join("work")).expect("a folder is made");
        let living = Self { root, folders };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(living.plugins())
            .expect("the plugin folder is made");
        living
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.root.path().canonicalize().expect("the folder is there")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.folders.data.join("plugins")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.plugins().join(format!("{name}.wasm"))
    }

    /// Writes a component into the folder in one step.
    pub(crate) fn put(&self, name: &str, component: &[u8]) {
        let aside = self.root().join("aside");
        fs::write(&aside, component)
            .and_then(|()| fs::rename(&aside, self.file(name)))
            .expect("the plugin is put into its folder");
    }

    /// Approves the component in the folder.
    pub(crate) fn approve(&self, name: &str) {
        let candidate = Candidate::file(&self.file(name)).expect("it is a component");
        PluginApprovals::open(&self.folders).approve(&candidate).expect("it is approved");
    }

    /// A host that reloads its plugins when it is told to.
    pub(crate) async fn host(&self, settings: &[&str]) -> Arc<Host> {
        self.build(settings, |builder| builder).await
    }

    /// A host that watches its plugins.
    pub(crate) async fn watching(&self, settings: &[&str]) -> Arc<Host> {
        self.build(settings, HostBuilder::watch).await
    }

    /// A host that loads its plugins after it has started.
    pub(crate) async fn starting(&self, settings: &[&str]) -> Arc<Host> {
        self.build(settings, HostBuilder::load_in_background).await
    }

    /// A host for a call of one tool.
    pub(crate) async fn only_for(&self, tool: &str, settings: &[&str]) -> Arc<Host> {
        self.build(settings, |builder| builder.only_for(tool)).await
    }

    /// Runs the real `toolhold` with the same folders, and nobody to ask.
    pub(crate) fn toolhold(&self, line: &[&str]) -> Output {
        self.command().args(line).output().expect("toolhold starts")
    }

    /// The real `toolhold` with the same folders, and nobody to ask.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(toolhold());
        command.current_dir(self.work()).env_clear().env("HOME", self.root()).stdin(Stdio::null());
        command
            .env("TOOLHOLD_CONFIG_DIR", &self.folders.config)
            .env("TOOLHOLD_DATA_DIR", &self.folders.data);
        command.env("TOOLHOLD_CACHE_DIR", &self.folders.cache);
        command
    }

    async fn build(
        &self,
        settings: &[&str],
        more: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Arc<Host> {
        // The handmade tools declare nothing, so they count as acting.
        let settings = ["tools.autonomy=full"].iter().chain(settings);
        let settings = settings
            .map(|&setting| setting.replace("{root}", &self.root().display().to_string()))
            .collect();
        let loaded = config::load(&self.folders, &Inputs { settings, ..Inputs::default() })
            .expect("the settings are valid");
        let builder = Host::builder()
            .config(loaded)
            .folders(self.folders.clone())
            .working_directory(self.work());
        let builder = builder.builtins(&[builtin("file")]).helper(toolhold());
        Arc::new(more(builder).build().await.expect("the host starts, whatever its plugins are"))
    }
}

/// What a program printed, if it ended with this code.
#[track_caller]
pub(crate) fn ends(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// A version of a plugin, with one tool `say` that says `answer`.
pub(crate) fn version(name: &str, version: &str, answer: &'static str) -> Component {
    let manifest = format!(
        r#"{{"manifest":1,"name":"{name}","version":"{version}","description":"Says something"}}"#
    )
    .into_bytes();
    Component {
        on_call: "",
        answer,
        manifests: vec![manifest],
        ..Component::offering(vec![Offer::named("say")])
    }
}

/// The answer of a plugin. `Err` has the message of the failure and its suggestion.
pub(crate) async fn said(host: &Host, plugin: &str) -> Result<String, String> {
    let Answer { outcome, .. } = host.call(Request::new(format!("{plugin}__say"), json!({}))).await;
    outcome.map(|output| output.joined_text()).map_err(|failure| {
        let suggestion = failure.suggestion.unwrap_or_default();
        format!("{}: {suggestion}", failure.message)
    })
}

/// The state of a plugin.
#[track_caller]
pub(crate) fn state(host: &Host, plugin: &str) -> PluginState {
    let states = host.plugins();
    states
        .iter()
        .find(|state| state.name == plugin)
        .unwrap_or_else(|| panic!("{plugin} is not among {states:?}"))
        .clone()
}

/// Why a plugin's latest version doesn't serve.
#[track_caller]
pub(crate) fn waiting(host: &Host, plugin: &str) -> String {
    state(host, plugin).waiting.expect("a version waits").reason
}

/// Waits until the plugins of a host reach an expected state.
pub(crate) async fn until(host: &Host, what: &str, holds: impl Fn() -> bool) {
    let mut changes = host.changes();
    while !holds() {
        changed(&mut changes, what).await;
    }
}

/// Waits until a plugin gives the expected answer; `None`: until it is gone.
pub(crate) async fn until_says(host: &Host, plugin: &str, what: Option<&str>) {
    let mut changes = host.changes();
    while said(host, plugin).await.as_deref().ok() != what {
        changed(&mut changes, &format!("{plugin} says {what:?}")).await;
    }
}

/// Waits until a condition is true that nothing announces.
pub(crate) async fn soon(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    let mut looks = tokio::time::interval(Duration::from_millis(2));
    while !holds() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        looks.tick().await;
    }
}

async fn changed(changes: &mut Receiver<u64>, what: &str) {
    let changed = tokio::time::timeout(PATIENCE, changes.changed()).await;
    changed.unwrap_or_else(|_| panic!("it never came to this: {what}")).expect("the host lives");
}

/// Number of mappings of files below `folder` as code into this process: one for each loaded
/// version. Initial memory is mapped too, for each warm instance and each slot that can be used
/// again.
pub(crate) fn mappings_below(folder: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("a process sees its own memory");
    maps.lines()
        .filter(|line| line.contains("r-xp") && line.contains(&folder.display().to_string()))
        .count()
}
