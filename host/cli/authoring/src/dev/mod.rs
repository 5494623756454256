//! `toolhold plugin dev`: builds and serves a plugin after each change of a source.
//!
//! The host has the user's configuration, but the new component replaces the plugin with the same
//! name. New builds need no approval. The plugin gets only the requests that the configuration
//! grants.

mod show;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinError, JoinHandle};
use toolhold_agent::review::ModelReviewer;
use toolhold_core::config::{self, Config, ConfigWatch, Folders, Inputs, OAuth, Serve};
use toolhold_core::text::{neutral, neutral_line, shell_word};
use toolhold_core::{
    Approver, Builtin, CallObserver, CancellationToken, CapabilityProviders, HeldVersion, Host,
    HostError, Request, Session,
};
use toolhold_mcp_server::{Http, ListenAddress, LiveHost, Server, serve_http};
use toolhold_models::choice::capability_providers;
use toolhold_system::watch::FileStamp;

use crate::dev::show::Screen;
use crate::sources::{self, Sources};
use crate::{Built, Console, build_on};

/// The settings of `toolhold plugin dev`.
pub struct Dev {
    /// The plugin's folder.
    pub folder: PathBuf,
    /// Toolhold's folders.
    pub folders: Folders,
    /// The inputs of the configuration.
    pub inputs: Inputs,
    /// The built-in plugins.
    pub builtins: &'static [Builtin],
    /// The address for MCP clients, or `None` if no client can connect.
    pub http: Option<ListenAddress>,
    /// The tool and the arguments of the call after each build. If this is empty, no call is made.
    pub call: Vec<String>,
    /// Parses the arguments of `call`.
    pub read: ReadArguments,
    /// Makes the approver of `call`.
    pub approver: MakeApprover,
    /// Whether JSON lines are printed.
    pub json: bool,
}

/// Parses the words of a call into the arguments of a tool.
pub type ReadArguments = fn(&[String], &str, &Host) -> Result<Value, String>;

/// Makes an approver.
pub type MakeApprover = Arc<dyn Fn(&Folders, &Config) -> Arc<dyn Approver> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Sources,
    Configuration,
}

/// The reason why a new component can't be served.
#[derive(Debug, Error)]
enum DevError {
    #[error("the component has no name")]
    NoName,
    #[error(
        "the plugin's name has changed from `{known}` to `{name}`. Grants belong to a name: start \
         `toolhold plugin dev` again"
    )]
    OtherName { name: String, known: String },
    #[error("`{0}` is disabled in the configuration")]
    Off(String),
    #[error("{}", .0.reason)]
    Held(HeldVersion),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Panicked(#[from] JoinError),
}

struct Serving {
    host: Arc<Host>,
    /// The handle and the task of the server for MCP clients.
    server: Option<(Arc<LiveHost>, JoinHandle<()>)>,
    loaded: Config,
}

/// Runs until `end` is cancelled. If a build fails, the previous version stays in use.
///
/// # Errors
///
/// Returns [`HostError`] if the folder can't be watched, or if the address can't be used.
pub async fn run(dev: Dev, end: CancellationToken) -> Result<(), HostError> {
    let shown = dev.folder.display().to_string();
    let folder = dev.folder.canonicalize().map_err(HostError::io(format!("opening {shown}")))?;
    let screen = Screen::open(dev.json)?;
    let mut changes = watch(&folder, &dev)?;
    // An error about the address must appear before the build, which takes long.
    let http = match dev.http.clone() {
        Some(address) => Some(listen(address, &dev).await?),
        None => None,
    };
    let address = http.as_ref().map(|http| http.place().clone());
    let mut session = Running {
        dev,
        folder,
        screen,
        http,
        address,
        serving: None,
        name: None,
        first_native_stamps: None,
    };
    let mut next = Some(Change::Sources);
    let mut built: Option<Built> = None;
    while let Some(change) = next {
        if change == Change::Sources {
            if session.has_changed_native_code()? {
                next = session.wait(&mut changes, &end).await;
                continue;
            }
            match session.build(&mut changes, &end).await {
                Step::Done(new) => built = Some(new),
                Step::Failed => {
                    next = session.wait(&mut changes, &end).await;
                    continue;
                }
                Step::Again => continue,
                Step::End => break,
            }
        }
        if let Some(built) = &built {
            tokio::select! {
                served = session.serve(built, &end) => served?,
                () = end.cancelled() => break,
            }
        }
        next = session.wait(&mut changes, &end).await;
    }
    end.cancel();
    if let Some(Serving { host, server, .. }) = session.serving {
        if let Some((_, task)) = server {
            let _ = task.await;
        }
        let _ = tokio::task::spawn_blocking(move || drop(host)).await;
    }
    Ok(())
}

/// Opens the address for MCP clients, which need the server's token.
async fn listen(address: ListenAddress, dev: &Dev) -> Result<Http, HostError> {
    let folders = dev.folders.clone();
    let inputs = dev.inputs.clone();
    let load = tokio::task::spawn_blocking(move || config::load(&folders, &inputs));
    let loaded =
        load.await.map_err(|error| HostError::io("loading the configuration")(error.into()))??;
    let outbound_client =
        toolhold_core::outbound_client(&loaded, &dev.folders, "toolhold plugin dev");
    let authenticated = true;
    // The developer is the only caller: this server has no hosts of principals.
    let serve = Serve { oauth: OAuth::default(), ..loaded.values.serve };
    let http = Http::bind(address, serve, &dev.folders, authenticated, &outbound_client).await;
    http.map_err(|error| HostError::Config(format!("serving: {error}")))
}

fn watch(folder: &Path, dev: &Dev) -> Result<Receiver<Change>, HostError> {
    let (sender, changes) = channel(1);
    let mut sources = Sources::watch(folder)?;
    let mut config = ConfigWatch::new(&dev.folders, &dev.inputs)?;
    // The threads run until the process ends.
    spawn_watcher(sender.clone(), Change::Sources, move || sources.wait())?;
    spawn_watcher(sender, Change::Configuration, move || {
        config.wait_for_change().map_err(HostError::io("watching the configuration"))
    })?;
    Ok(changes)
}

/// Starts a thread that sends `change` each time `wait` returns, until `wait` fails or nobody
/// receives changes.
fn spawn_watcher(
    sender: Sender<Change>,
    change: Change,
    mut wait: impl FnMut() -> Result<(), HostError> + Send + 'static,
) -> Result<(), HostError> {
    std::thread::Builder::new()
        .name("toolhold-dev-watch".to_owned())
        .spawn(move || {
            while wait().is_ok() {
                if sender.blocking_send(change).is_err() {
                    break;
                }
            }
        })
        .map_err(HostError::io("the thread that watches for changes can't be started"))?;
    Ok(())
}

enum Step {
    Done(Built),
    Failed,
    /// A source changed during the build.
    Again,
    End,
}

struct Running {
    dev: Dev,
    folder: PathBuf,
    screen: Screen,
    /// The listener for MCP clients, until the server takes it.
    http: Option<Http>,
    address: Option<ListenAddress>,
    serving: Option<Serving>,
    /// The plugin's name, which must not change, because grants belong to a name.
    name: Option<String>,
    /// The stamps, before the first build, of the files that decide which code a build runs with
    /// the author's rights.
    first_native_stamps: Option<BTreeMap<PathBuf, FileStamp>>,
}

impl Running {
    /// Checks whether a file that decides about native code has changed since the first build.
    /// Shows this file, because an agent may have changed the file without a review.
    fn has_changed_native_code(&mut self) -> Result<bool, HostError> {
        let now = sources::native_stamps(&self.folder)?;
        let first = self.first_native_stamps.get_or_insert_with(|| now.clone());
        let mut paths = now.keys().chain(first.keys());
        let changed = paths.find(|path| now.get(*path) != first.get(*path));
        let Some(changed) = changed else { return Ok(false) };
        let shown = changed.strip_prefix(&self.folder).unwrap_or(changed).display().to_string();
        let reason = format!(
            "{} has changed. This file decides which code a build runs with your rights. Check the \
             file, then start `toolhold plugin dev` again",
            neutral_line(&shown)
        );
        self.screen.show(json!({ "event": "held", "reason": reason }));
        Ok(true)
    }

    /// Tells the author if the plugin gets grants that the configuration has for another component
    /// with the same name.
    async fn note_grants_of_another(&self, built: &Built, name: &str) {
        let folders = self.dev.folders.clone();
        let inputs = self.dev.inputs.clone();
        let loaded = tokio::task::spawn_blocking(move || config::load(&folders, &inputs)).await;
        let Ok(Ok(loaded)) = loaded else { return };
        let Some(configured) = loaded.values.plugins.get(name) else { return };
        let path = Path::new(&configured.path).canonicalize();
        let is_this_plugin = path.is_ok_and(|path| path == built.file);
        if configured.path.is_empty() || is_this_plugin {
            return;
        }
        let text = format!(
            "note: your configuration has [plugins.{name}] for {}. The plugin in this folder has \
             the same name, so this plugin gets the same grants",
            neutral_line(&configured.path)
        );
        self.screen.show(json!({ "event": "note", "text": text }));
    }

    /// Waits for a change, or returns `None` if the command ends first.
    async fn wait(
        &self,
        changes: &mut Receiver<Change>,
        end: &CancellationToken,
    ) -> Option<Change> {
        tokio::select! {
            change = changes.recv() => change,
            () = end.cancelled() => None,
        }
    }

    /// Builds the plugin, and shows the result. A change of a source stops the build.
    async fn build(&self, changes: &mut Receiver<Change>, end: &CancellationToken) -> Step {
        let console = Arc::new(Console::keeping());
        let folder = self.folder.clone();
        let build_console = Arc::clone(&console);
        self.screen.show(json!({ "event": "building" }));
        let started = Instant::now();
        let mut build = tokio::task::spawn_blocking(move || build_on(&folder, &build_console));
        let result = tokio::select! {
            result = &mut build => result,
            change = self.wait(changes, end) => {
                console.stop();
                let _ = build.await;
                return if change.is_some() { Step::Again } else { Step::End };
            }
        };

        let error = match result {
            Ok(Ok(built)) => {
                self.show_built(&built, started.elapsed());
                return Step::Done(built);
            }
            Ok(Err(error)) => error.to_string(),
            Err(panicked) => panicked.to_string(),
        };
        let has_previous = self.serving.is_some();
        self.screen.show_failed_build(&error, &console.text(), has_previous);
        Step::Failed
    }

    fn show_built(&self, built: &Built, time: Duration) {
        let notices: Vec<String> =
            built.notices.iter().map(|notice| neutral(notice).into_owned()).collect();
        self.screen.show(json!({
            "event": "built",
            "file": neutral_line(&built.file.display().to_string()),
            "ms": time.as_secs_f64() * 1000.0,
            "notices": notices,
        }));
    }

    /// Serves a new component, and makes the author's call. If the component can't be loaded, the
    /// previous component stays in use.
    async fn serve(&mut self, built: &Built, end: &CancellationToken) -> Result<(), HostError> {
        let (host, loaded, name) = match self.build_host(built).await {
            Ok(new) => new,
            Err(error) => {
                let reason = error.to_string();
                self.screen.show(json!({ "event": "refused", "reason": neutral(&reason) }));
                return Ok(());
            }
        };

        let prefix = format!("{name}__");
        let mut tools: Vec<String> = host.tools().iter().map(|tool| tool.name.clone()).collect();
        tools.retain(|tool| tool.starts_with(&prefix));
        self.screen.show(json!({ "event": "serving", "plugin": name, "tools": tools }));
        let is_first = self.serving.is_none();
        self.replace_host(host, loaded, end).await?;
        if is_first {
            self.show_usage(built, &name, tools.first().map_or("TOOL", String::as_str));
        }
        self.call(&prefix).await;
        Ok(())
    }

    /// Builds a host in which the component replaces the plugin with the same name. Also returns
    /// the name.
    async fn build_host(&mut self, built: &Built) -> Result<(Host, Config, String), DevError> {
        let stem = built.file.file_stem().and_then(|stem| stem.to_str());
        let name = stem.ok_or(DevError::NoName)?.to_owned();
        match &self.name {
            Some(known) if *known != name => {
                return Err(DevError::OtherName { name, known: known.clone() });
            }
            Some(_) => {}
            None => self.note_grants_of_another(built, &name).await,
        }

        let mut inputs = self.dev.inputs.clone();
        inputs.settings.extend(settings(&built.file, &name));
        let folders = self.dev.folders.clone();
        let load = tokio::task::spawn_blocking(move || config::load(&folders, &inputs));
        let loaded = load.await?.map_err(HostError::from)?;

        let builder = match self.address {
            // The plugin must not send requests to Toolhold's own address.
            Some(ListenAddress::Tcp(address)) => Host::builder().listens_on(address),
            _ => Host::builder(),
        };
        let directory = config::working_directory()?;
        let front_end = "toolhold plugin dev";
        let folders = &self.dev.folders;
        let builder = match ModelReviewer::from_config(&loaded, folders, &directory, front_end) {
            Some(reviewer) => builder.reviewer(Arc::new(reviewer)),
            None => builder,
        };
        let providers = CapabilityProviders {
            vector_database: None,
            ..capability_providers(&loaded, folders, &directory, front_end)
        };
        let host = builder
            .capability_providers(providers)
            .config(loaded.clone())
            .builtins(self.dev.builtins)
            .folders(self.dev.folders.clone())
            .only_for(format!("{name}__"))
            .front_end(front_end)
            .observer(Arc::new(self.screen.clone()) as Arc<dyn CallObserver>)
            .build()
            .await?;

        let plugin = host.plugins().into_iter().find(|plugin| plugin.name == name);
        let Some(plugin) = plugin else { return Err(DevError::Off(name)) };
        if let Some(waiting) = plugin.waiting {
            return Err(DevError::Held(waiting));
        }
        self.name = Some(name.clone());
        Ok((host, loaded, name))
    }

    /// Puts a new host into use. With the first host, the server for MCP clients starts.
    async fn replace_host(
        &mut self,
        host: Host,
        loaded: Config,
        end: &CancellationToken,
    ) -> Result<(), HostError> {
        let host = Arc::new(host);
        let mut server = None;
        if let Some(previous) = self.serving.take() {
            server = previous.server;
            if let Some((live_host, _)) = &server {
                live_host.replace(Arc::clone(&host));
            }
            // Dropping a host blocks until its last call has ended.
            let _ = tokio::task::spawn_blocking(move || drop(previous.host)).await;
        } else if let Some(http) = self.http.take() {
            server = Some(self.start_server(http, &host, &loaded, end)?);
        }
        self.serving = Some(Serving { host, server, loaded });
        Ok(())
    }

    /// Starts the server for MCP clients. Returns the server's task, and the handle for replacing
    /// the host.
    fn start_server(
        &self,
        http: Http,
        host: &Arc<Host>,
        loaded: &Config,
        end: &CancellationToken,
    ) -> Result<(Arc<LiveHost>, JoinHandle<()>), HostError> {
        let approvals = &loaded.values.approvals;
        let server = Server::new(Arc::clone(host), self.dev.folders.clone(), approvals)
            .map_err(|error| HostError::Config(format!("serving: {error}")))?;
        let token = match http.token_file() {
            Some(file) => format!("; the token is in {}", file.display()),
            None => String::new(),
        };
        let text = format!("MCP clients connect to {}{token}", http.url());
        self.screen.show(json!({ "event": "how", "text": neutral(&text), "url": http.url() }));
        let live = server.live();
        let end = end.clone();
        let serve = async move {
            let _ = serve_http(server, http, end).await;
        };
        Ok((live, tokio::spawn(serve)))
    }

    /// Shows commands that call the plugin from another terminal.
    fn show_usage(&self, built: &Built, name: &str, tool: &str) {
        let mut flags = Vec::new();
        if let Some(file) = &self.dev.inputs.file {
            let absolute = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            flags.push(format!("--config {}", shell_word(&absolute.display().to_string())));
        }
        for setting in &self.dev.inputs.settings {
            flags.push(format!("--set {}", shell_word(setting)));
        }
        for setting in settings(&built.file, name) {
            flags.push(format!("--set {}", shell_word(&setting)));
        }
        let flags = flags.join(" ");
        let text = format!(
            "to call the tool from another terminal:\n  toolhold {flags} call {tool} KEY=VALUE\nto \
             serve each new build to an MCP client:\n  toolhold {flags} serve\nCtrl-C ends this \
             command."
        );
        self.screen.show(json!({ "event": "how", "text": neutral(&text) }));
    }

    /// Makes the call of the command line, if any. The names of the plugin's tools start with
    /// `prefix`.
    async fn call(&self, prefix: &str) {
        let (Some((tool, words)), Some(serving)) = (self.dev.call.split_first(), &self.serving)
        else {
            return;
        };
        // The author may leave out the plugin's name.
        let full_name = format!("{prefix}{tool}");
        let host = &serving.host;
        let tool = if host.tool(&full_name).is_some() { &full_name } else { tool };
        if host.tool(tool).is_none() {
            let reason = describe_unknown_tool(tool, &host.similar_tools(&full_name));
            return self.show_not_made(&reason);
        }
        let arguments = match (self.dev.read)(words, tool, host) {
            Ok(arguments) => arguments,
            Err(error) => return self.show_not_made(&error),
        };
        let request = Request {
            session: Some(Session::new(format!("plugin dev {}", std::process::id()))),
            approver: Some((self.dev.approver)(&self.dev.folders, &serving.loaded)),
            audience: toolhold_core::Audience::Person,
            ..Request::new(tool, arguments)
        };
        // The host's observer shows the answer.
        drop(host.call(request).await);
    }

    fn show_not_made(&self, reason: &str) {
        self.screen.show(json!({ "event": "call_not_made", "reason": neutral(reason) }));
    }
}

fn describe_unknown_tool(tool: &str, similar: &[String]) -> String {
    let mut reason = format!("no tool is named `{tool}`");
    if !similar.is_empty() {
        reason += &format!(". Did you mean {}?", similar.join(" or "));
    }
    reason
}

/// Returns the settings that make a host load the component `file` as the plugin `name`. They add
/// no grants.
fn settings(file: &Path, name: &str) -> [String; 2] {
    let path = Value::String(file.display().to_string());
    let path = config::inline(&path);
    [format!("plugins.{name}.path={path}"), format!("plugins.{name}.reload=\"trust\"")]
}
