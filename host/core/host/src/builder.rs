//! Builds a host for every front end, with `Host::builder`. The builder has the default of each
//! setting, and decides which plugins are loaded before the host is ready and which are loaded
//! afterwards.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use toolhold_answers::FilterPipeline;
use toolhold_answers::Results;
use toolhold_answers::Shaper;
use toolhold_answers::{OverflowReader, OverflowStore};
use toolhold_catalogue::Tasks;
use toolhold_catalogue::plugins::{GrantResolver, Plugins, Watch, runtime_config};
use toolhold_catalogue::subjects::Lookups;
use toolhold_config::{Config, Folders};
use toolhold_contract::{HostError, Offers, ToolSource};
use toolhold_engine::capability::providers::CapabilityProviders;
use toolhold_engine::{Builtin, Runtime};
use toolhold_jobs::services::Services;
use toolhold_jobs::{JobSettings, JobTools, Jobs};
use toolhold_net::{Network, Resolve};
use toolhold_schedule::Schedule;

use crate::approvals::ApprovalDesk;
use crate::audit::Audit;
use crate::caller_names::project_id;
use crate::governor::{Governor, Rules};
use crate::host::{CallObserver, CountPlugins, Host, Settings};
use crate::jobs::{self, HostJobs};
use crate::outer::OuterCalls;
use crate::programs;
use crate::retry::Retry;
use crate::review::{CallReviewer, Reviews};
use crate::session::Session;
use crate::undo::{Undo, UndoTool};

impl Host {
    /// Starts to build a host. This is the only way to create a host. [`HostBuilder`] documents the
    /// default of every setting.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }
}

/// When the plugins of the configuration and of the plugin folder are loaded.
#[derive(Default)]
enum Loading {
    #[default]
    BeforeReturning,
    InBackground,
    /// Only the plugins that a call of this tool needs.
    For(String),
}

/// Builds a [`Host`], from [`Host::builder`] to [`build`](Self::build). If a setting is set twice,
/// the last value applies. Plugins and providers are added to the earlier ones.
#[derive(Default)]
pub struct HostBuilder {
    config: Config,
    folders: Option<Folders>,
    working_directory: Option<PathBuf>,
    builtins: Vec<Builtin>,
    plugin_files: Vec<PathBuf>,
    providers: Vec<Arc<dyn ToolSource>>,
    readable: Vec<PathBuf>,
    helper: Option<PathBuf>,
    resolver: Option<Arc<dyn Resolve>>,
    listening: Vec<SocketAddr>,
    watch: bool,
    loading: Loading,
    front_end: Option<Cow<'static, str>>,
    observer: Option<Arc<dyn CallObserver>>,
    reviewer: Option<Arc<dyn CallReviewer>>,
    capability_providers: CapabilityProviders,
    jobs: Option<Arc<HostJobs>>,
}

impl HostBuilder {
    /// Sets the configuration, as [`config::load`](toolhold_config::load) loads it. By default, no
    /// file is read, and every key has its default.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets Toolhold's own folders. The default is the folders of the user who runs this process
    /// ([`Folders::from_environment`](toolhold_config::Folders::from_environment)), with the user's
    /// plugin folder.
    #[must_use]
    pub fn folders(mut self, folders: Folders) -> Self {
        self.folders = Some(folders);
        self
    }

    /// Sets the folder in which relative paths start. The file tools may use it if the
    /// configuration grants nothing. The path is a real path, or relative to the directory of this
    /// process, which is the default.
    #[must_use]
    pub fn working_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.working_directory = Some(directory.into());
        self
    }

    /// Adds plugins that are part of the program. The names of their tools have no prefix, and the
    /// plugins get the grants of `[tools.file]`.
    #[must_use]
    pub fn builtins(mut self, builtins: &[Builtin]) -> Self {
        self.builtins.extend_from_slice(builtins);
        self
    }

    /// Adds a component by its path, which approves the component. It gets the grants that the
    /// configuration gives to the name in its manifest. By default there are no grants.
    #[must_use]
    pub fn plugin_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_files.push(path.into());
        self
    }

    /// Adds a source of tools: code of the program, or the client of a server.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn ToolSource>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Adds folders of skills by their real paths. The folders must exist. The built-in tools for
    /// files and commands may read these folders, unless the tools are disabled.
    #[must_use]
    pub fn readable(mut self, folders: &[PathBuf]) -> Self {
        self.readable.extend_from_slice(folders);
        self
    }

    /// Sets the program that compiles components. Its `main` must begin with
    /// [`helper_hook`](crate::helper_hook). The default is this program, if its `main` begins with
    /// that call.
    #[must_use]
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.helper = Some(program.into());
        self
    }

    /// Sets the resolver for host names in requests of plugins. The default is the system's
    /// resolver. The host checks the resolved addresses, so a request never connects to an address
    /// that isn't granted.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// Adds an address on which this program listens. Requests of plugins never reach this address,
    /// even with a grant. A wildcard address means every address of the machine.
    #[must_use]
    pub fn listens_on(mut self, address: SocketAddr) -> Self {
        self.listening.push(address);
        self
    }

    /// Reloads plugins while the host exists, when files in the plugin folder are added, changed or
    /// removed.
    ///
    /// A program that makes one call and ends doesn't need this setting. The watch needs a thread,
    /// which sleeps until something changes and then uses the runtime. Drop the host before its
    /// runtime.
    #[must_use]
    pub fn watch(mut self) -> Self {
        self.watch = true;
        self
    }

    /// Loads the plugins of the configuration and of the plugin folder after [`build`](Self::build)
    /// has returned.
    ///
    /// A slow plugin then delays no other plugin: a call waits only for the plugin of its own tool.
    /// [`Host::ready`] waits for all plugins. `build` still waits for filters of `[tools.filters]
    /// chain` and for plugins that replace a built-in plugin, because every call needs these.
    #[must_use]
    pub fn load_in_background(mut self) -> Self {
        self.loading = Loading::InBackground;
        self
    }

    /// Loads only the plugins of the configuration and of the plugin folder that calls of this tool
    /// need. This setting is for a program that makes one call and ends.
    ///
    /// If no tool has the name, all plugins are loaded, so that the failure lists similar names.
    #[must_use]
    pub fn only_for(mut self, tool: impl Into<String>) -> Self {
        self.loading = Loading::For(tool.into());
        self
    }

    /// Sets the name of the program in the audit log, such as `toolhold call`. The default is
    /// `library`.
    #[must_use]
    pub fn front_end(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.front_end = Some(name.into());
        self
    }

    /// Sets the observer of all calls and answers. By default there is no observer.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn CallObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets the reviewer of calls, which `[tools.adversarial_policy]` requires. The reviewer of
    /// `toolhold-agent` asks a model of the configuration. By default there is no reviewer. If the
    /// table is enabled without one, each call is denied unless the table exempts its tool.
    #[must_use]
    pub fn reviewer(mut self, reviewer: Arc<dyn CallReviewer>) -> Self {
        self.reviewer = Some(reviewer);
        self
    }

    /// Sets the models and databases that this program provides for plugins. By default there are
    /// none, and searches by meaning become searches by words.
    #[must_use]
    pub fn capability_providers(mut self, providers: CapabilityProviders) -> Self {
        self.capability_providers = providers;
        self
    }

    /// Sets the host that this host replaces after a change of the configuration, so that
    /// background commands continue. By default, background commands end with their host.
    #[must_use]
    pub fn replaces(mut self, host: &Host) -> Self {
        self.jobs = Some(Arc::clone(&host.jobs));
        self
    }

    /// Starts the engine and loads all plugins, unless
    /// [`load_in_background`](Self::load_in_background) or [`only_for`](Self::only_for) was called.
    /// Plugins that are new to this machine are compiled once. Each compilation takes from tenths
    /// of a second to many seconds.
    ///
    /// If a plugin of the configuration or of the plugin folder is held or can't be loaded, the
    /// others are still loaded. [`Host::plugins`] has the reason.
    ///
    /// # Errors
    ///
    /// * [`HostError::Config`] if a granted directory doesn't exist, the working directory is a
    ///   link, `replaces` names no built-in plugin, or a pattern can't match a path of its tool.
    /// * [`HostError::Load`] if a built-in plugin or a [`plugin_file`](Self::plugin_file) can't be
    ///   loaded, two tools have the same name, or a provider's schema isn't valid.
    /// * [`HostError::Engine`] if this machine can't run WebAssembly in a sandbox.
    /// * [`HostError::Io`] if the working directory can't be opened, or the files of plugins can't
    ///   be watched.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime, or on a runtime without its time driver.
    pub async fn build(self) -> Result<Host, HostError> {
        let folders = self.folders.map_or_else(Folders::from_environment, Ok)?;
        let directory = real_directory(self.working_directory)?;
        let governor = Arc::new(Governor::new(Rules::from_config(&self.config)?));
        let helper = self.helper.or_else(toolhold_engine::own_helper);
        let mut grants = GrantResolver::new(
            self.config,
            folders,
            directory,
            &self.plugin_files,
            Arc::clone(&governor) as _,
            helper.clone(),
            network(self.resolver, self.listening),
        );
        grants.readable = self.readable;
        grants.providers = self.capability_providers;
        check_grants(&grants, &self.builtins)?;

        let GrantResolver { config, folders, directory, .. } = &grants;
        let runtime = Runtime::new(runtime_config(config, Some(folders), helper))?;
        let limits = grants.limits(config.values.tools.limits);
        let settings = Settings {
            max_call: limits.max_call,
            max_arguments: limits.arguments,
            project: project_id(directory).into(),
        };
        let asking = ApprovalDesk::new(folders.clone(), config.clone());
        let lookups = Lookups::new(folders.home.clone());
        let results = Results::new(config.values.tools.result_cache);
        let retry = Retry(config.values.tools.retry.backoff());
        let front_end = self.front_end.unwrap_or(Cow::Borrowed("library"));
        let audit = Arc::new(Audit::new(config, &folders.data, front_end.clone()));
        let tasks = Tasks {
            schedule: Arc::new(Schedule::in_data(&folders.data)),
            directory: directory.clone(),
        };
        let job_settings = jobs::settings(config, &audit);
        let has_jobs = job_settings.bounds.running > 0 && !self.builtins.is_empty();
        let jobs = self.jobs.unwrap_or_else(|| host_jobs(&job_settings, folders));
        let undo = Undo::new(config, folders)?.map(Arc::new);
        let shaping = shaper(config, folders, limits.result)?;

        let mut own_tools = OwnTools { reader: overflow_reader(&shaping), jobs: None, undo: None };
        if has_jobs {
            let tools = JobTools::new(Arc::clone(&jobs.0), shaping.threshold, limits.max_call);
            own_tools.jobs = Some(tools);
        }
        if undo.is_some() {
            let tool = UndoTool::new(config, folders, &front_end, Arc::clone(&jobs.0));
            own_tools.undo = Some(tool);
        }
        let providers = list_providers(own_tools, &self.providers);
        if self.watch {
            let overflow = Arc::clone(&shaping.overflow);
            // This runs in the background, and no call waits for it.
            tokio::task::spawn_blocking(move || overflow.remove_expired());
        }
        let offers = list_offers(&providers);
        let plugins = Arc::new(Plugins::new(runtime, grants, &providers, self.watch)?);
        answer_questions(&plugins, Arc::clone(&jobs.0), self.providers);
        for builtin in &self.builtins {
            plugins.add_built_in(builtin).await?;
        }
        // Watching starts before the first search for plugins, so that no change in between is
        // missed.
        let watch = if self.watch { Some(Watch::start(&plugins)?) } else { None };
        let ready = load_plugins(&plugins, &self.plugin_files, &self.loading).await?;
        plugins.check_patterns()?;
        if let Some(observer) = &self.observer {
            observer.built(count_plugins(&plugins));
        }
        jobs.0.change_settings(job_settings);
        Ok(Host {
            plugins,
            ready,
            settings,
            lookups,
            _watch: watch,
            session: Session::new(format!("process {}", std::process::id())),
            governor,
            asking,
            reviews: Reviews::new(self.reviewer),
            audit,
            shaping,
            results,
            retry,
            undo,
            jobs,
            offers,
            observer: self.observer,
            outer: OuterCalls::default(),
            tasks,
            refusal: std::sync::OnceLock::new(),
        })
    }
}

/// Returns the real path of the working directory.
fn real_directory(given: Option<PathBuf>) -> Result<PathBuf, HostError> {
    let directory = match given {
        Some(directory) => directory,
        None => toolhold_config::working_directory()?,
    };
    let real = directory
        .canonicalize()
        .map_err(HostError::io(format!("opening {}", directory.display())))?;
    // An absolute path that contains a link means another directory.
    if directory.is_absolute() && directory != real {
        return Err(HostError::Config(format!(
            "the working directory {} isn't a real path; give {}",
            directory.display(),
            real.display()
        )));
    }
    Ok(real)
}

fn network(resolver: Option<Arc<dyn Resolve>>, listening: Vec<SocketAddr>) -> Network {
    Network { resolver, listening: listening.into(), ..Network::default() }
}

/// Warns about granted directories that don't exist, and checks which plugins replace built-in
/// plugins.
fn check_grants(grants: &GrantResolver, builtins: &[Builtin]) -> Result<(), HostError> {
    for missing in grants.config.missing_directories(&grants.folders, &grants.directory) {
        tracing::warn!("{missing}");
    }
    grants.check_replacements(builtins)
}

/// Creates the jobs and services of a host that doesn't replace another host.
fn host_jobs(settings: &JobSettings, folders: &Folders) -> Arc<HostJobs> {
    let jobs = Jobs::new(settings.clone(), folders.data.clone());
    Arc::new(HostJobs(Arc::new(jobs), Services::default()))
}

/// Creates the shaper of answers. `result` is the maximum length of the content in bytes.
fn shaper(config: &Config, folders: &Folders, result: usize) -> Result<Shaper, HostError> {
    let tools = &config.values.tools;
    Ok(Shaper {
        result,
        redaction: tools.redaction.clone(),
        threshold: usize::try_from(tools.overflow.threshold.get()).unwrap_or(usize::MAX),
        overflow: Arc::new(OverflowStore::new(folders, tools.overflow)),
        filtering: FilterPipeline::new(&tools.filters)?,
    })
}

/// Tools that are parts of the host.
struct OwnTools {
    reader: Option<OverflowReader>,
    jobs: Option<JobTools>,
    undo: Option<UndoTool>,
}

/// Creates the tool that reads the omitted parts of answers. Returns `None` if answers are never
/// cut.
fn overflow_reader(shaping: &Shaper) -> Option<OverflowReader> {
    if shaping.threshold == 0 {
        return None;
    }
    Some(OverflowReader::new(Arc::clone(&shaping.overflow), shaping.threshold))
}

/// Lists all sources except the plugins, in the order in which their tools are listed.
fn list_providers(own: OwnTools, given: &[Arc<dyn ToolSource>]) -> Vec<Arc<dyn ToolSource>> {
    let OwnTools { reader, jobs, undo } = own;
    let mut providers: Vec<Arc<dyn ToolSource>> = Vec::new();
    if let Some(reader) = reader {
        providers.push(Arc::new(reader));
    }
    if let Some(jobs) = jobs {
        providers.push(Arc::new(jobs));
    }
    if let Some(undo) = undo {
        providers.push(Arc::new(undo));
    }
    providers.extend(given.iter().cloned());
    providers
}

/// Lists the prompts and resources of these sources.
fn list_offers(providers: &[Arc<dyn ToolSource>]) -> Vec<Offers> {
    let offers = providers.iter().map(|provider| provider.offers());
    offers.filter(|offers| *offers != Offers::default()).collect()
}

/// Answers the questions of other processes about jobs, and about the programs of the given
/// sources.
fn answer_questions(plugins: &Plugins, jobs: Arc<Jobs>, given: Vec<Arc<dyn ToolSource>>) {
    plugins.answer_questions(Box::new(move |question| {
        jobs::answer(&jobs, question).or_else(|| programs::answer(&given, question))
    }));
}

/// Loads the plugins in `files`, and the plugins of the configuration and of the plugin folder
/// according to `loading`. The returned receiver ends when all these plugins have been loaded or
/// refused.
async fn load_plugins(
    plugins: &Arc<Plugins>,
    files: &[PathBuf],
    loading: &Loading,
) -> Result<watch::Receiver<()>, HostError> {
    let found = plugins.find().await;
    for path in files {
        plugins.add_given(path).await?;
    }
    let (loaded, ready) = watch::channel(());
    let Some(mut found) = found else { return Ok(ready) };
    plugins.load_needed(&mut found).await;
    if let Loading::For(tool) = loading {
        let is_loaded = plugins.load_for(&mut found, tool).await;
        if is_loaded || plugins.catalogue().knows(tool) {
            // Names of tools are not reported as unknown while their plugins may still be loaded.
            plugins.warn_about_unknown_names();
            plugins.leave_out(found, "this program loaded only what its one call needs");
            return Ok(ready);
        }
    }

    let others = Arc::clone(plugins);
    let load = async move {
        others.load_found(found, false).await;
        // Now every name that exists is known.
        others.warn_about_unknown_names();
        drop(loaded);
    };
    match loading {
        Loading::InBackground => drop(tokio::spawn(load)),
        Loading::BeforeReturning | Loading::For(_) => load.await,
    }
    Ok(ready)
}

/// Returns a function that counts the plugins by their state. After the end of the host, the counts
/// are empty.
fn count_plugins(plugins: &Arc<Plugins>) -> CountPlugins {
    let plugins = Arc::downgrade(plugins);
    Box::new(move || {
        let mut counts = BTreeMap::new();
        if let Some(plugins) = plugins.upgrade() {
            for plugin in plugins.states() {
                *counts.entry(plugin.word()).or_default() += 1;
            }
        }
        counts
    })
}
