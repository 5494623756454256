//! Builds a host. The builder has the default of each setting, and decides when plugins are loaded.

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
use toolhold_config::{Config, Folders, Who};
use toolhold_contract::{HostError, Offers, ToolSource};
use toolhold_engine::capability::providers::CapabilityProviders;
use toolhold_engine::{Builtin, Runtime};
use toolhold_jobs::services::Services;
use toolhold_jobs::{JobSettings, JobTools, Jobs};
use toolhold_net::requests::Recorder;
use toolhold_net::{Network, Resolve};
use toolhold_schedule::Schedule;

use crate::approvals::ApprovalDesk;
use crate::audit::{Audit, EntryOrigin, User};
use crate::caller_names::project_id;
use crate::governor::{Governor, Rules};
use crate::host::{CallObserver, CountPlugins, Host, Settings};
use crate::jobs::{self, HostJobs};
use crate::outbound::recorder;
use crate::outer::OuterCalls;
use crate::programs;
use crate::retry::Retry;
use crate::review::{CallReviewer, Reviews};
use crate::session::Session;
use crate::undo::{Undo, UndoTool};

impl Host {
    /// Starts to build a host. [`HostBuilder`] documents the default of every setting.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }
}

/// When configured plugins and plugins in the plugin folder are loaded.
#[derive(Default)]
enum Loading {
    #[default]
    BeforeReturning,
    InBackground,
    /// Only the plugins that a call of this tool needs are loaded.
    For(String),
}

/// Builds a [`Host`]. The last value of a setting applies. Plugins and sources are added to earlier
/// ones.
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
    runtime: Option<Arc<Runtime>>,
    principal: Option<Who>,
    many_users: bool,
}

impl HostBuilder {
    /// Sets the configuration. [`config::load`](toolhold_config::load) loads it from files. By
    /// default, no file is read, and every key has its default.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets Toolhold's own folders. The default is
    /// [`Folders::from_environment`](toolhold_config::Folders::from_environment): the folders of
    /// the user who runs this process.
    #[must_use]
    pub fn folders(mut self, folders: Folders) -> Self {
        self.folders = Some(folders);
        self
    }

    /// Sets the working directory. The default is the directory of this process. An absolute path
    /// must be a real path. The file tools may use the working directory if the configuration
    /// grants nothing.
    #[must_use]
    pub fn working_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.working_directory = Some(directory.into());
        self
    }

    /// Adds plugins that are part of the program. The names of their tools have no prefix.
    #[must_use]
    pub fn builtins(mut self, builtins: &[Builtin]) -> Self {
        self.builtins.extend_from_slice(builtins);
        self
    }

    /// Adds a plugin by the path of its component, and approves it. The plugin gets the configured
    /// grants of the name in its manifest, by default none.
    #[must_use]
    pub fn plugin_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_files.push(path.into());
        self
    }

    /// Adds a source of tools: code of the program, or an MCP client.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn ToolSource>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Adds folders of skills by their real paths. The folders must exist. The built-in file tools
    /// and commands may read the folders, unless these tools are disabled.
    #[must_use]
    pub fn readable(mut self, folders: &[PathBuf]) -> Self {
        self.readable.extend_from_slice(folders);
        self
    }

    /// Sets the program that the host starts to compile components. The `main` of that program
    /// must begin with a call of [`helper_hook`](crate::helper_hook).
    ///
    /// By default, the host starts the current program again, if the current program has called
    /// [`helper_hook`](crate::helper_hook). Otherwise, the host can't compile components, and loads
    /// only components that are already compiled.
    #[must_use]
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.helper = Some(program.into());
        self
    }

    /// Sets the resolver for host names in requests of plugins. The default is the system's
    /// resolver. The host checks each resolved address against the grants.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// Adds an address on which this program listens. Plugins can't connect to the address, even
    /// with a grant. A wildcard address means every address of the machine.
    #[must_use]
    pub fn listens_on(mut self, address: SocketAddr) -> Self {
        self.listening.push(address);
        self
    }

    /// Reloads plugins when files in the plugin folder are added, changed or removed.
    ///
    /// The watch needs a thread that sleeps until a file changes and then uses the runtime, so the
    /// host must be dropped before its runtime. A program that makes one call doesn't need this
    /// setting.
    #[must_use]
    pub fn watch(mut self) -> Self {
        self.watch = true;
        self
    }

    /// Loads configured plugins and plugins in the plugin folder after [`build`](Self::build) has
    /// returned.
    ///
    /// A call then waits only for the plugin of its own tool. [`Host::ready`] waits for all
    /// plugins. `build` still waits for filters of `[tools.filters] chain` and for plugins that
    /// replace a built-in plugin, because every call needs them.
    #[must_use]
    pub fn load_in_background(mut self) -> Self {
        self.loading = Loading::InBackground;
        self
    }

    /// Loads only the plugins that calls of this tool need, for a program that makes one call.
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

    /// Sets the reviewer of calls, which `[tools.adversarial_policy]` requires. `toolhold-agent`
    /// has a reviewer that asks a configured model. By default, there is no reviewer. If the table
    /// is enabled without a reviewer, calls are denied unless the table exempts their tool.
    #[must_use]
    pub fn reviewer(mut self, reviewer: Arc<dyn CallReviewer>) -> Self {
        self.reviewer = Some(reviewer);
        self
    }

    /// Sets the models and databases that this program provides for plugins. By default, there are
    /// none, and searches by meaning become searches by words.
    #[must_use]
    pub fn capability_providers(mut self, providers: CapabilityProviders) -> Self {
        self.capability_providers = providers;
        self
    }

    /// Sets the host that this host replaces after a change of the configuration. Background jobs
    /// then continue. By default, jobs end with their host.
    #[must_use]
    pub fn replaces(mut self, host: &Host) -> Self {
        self.jobs = Some(Arc::clone(&host.jobs));
        self
    }

    /// Runs plugins in the engine of another host, so that both hosts share its limit of calls, its
    /// compiler and its memory. The settings of that engine apply. By default, the host starts an
    /// engine.
    #[must_use]
    pub fn shares_engine(mut self, host: &Host) -> Self {
        self.runtime = Some(Arc::clone(host.plugins.runtime()));
        self
    }

    /// Sets the caller of a server for whom the host works. Requests without a session then belong
    /// to this caller. By default, the host works for the user of this machine.
    #[must_use]
    pub fn principal(mut self, who: Who) -> Self {
        self.principal = Some(who);
        self
    }

    /// Leaves the user out of the audit log, because callers of an authorization server share the
    /// host. Their sessions have their names.
    #[must_use]
    pub fn many_users(mut self) -> Self {
        self.many_users = true;
        self
    }

    /// Starts the engine and loads all plugins, unless
    /// [`load_in_background`](Self::load_in_background) or [`only_for`](Self::only_for) was called.
    /// Plugins that are new to this machine are compiled once, which can take many seconds.
    ///
    /// If a configured plugin or a plugin in the plugin folder is held or can't be loaded, the
    /// others are still loaded. [`Host::plugins`] has the reason.
    ///
    /// # Errors
    ///
    /// * [`HostError::Config`] if a granted directory doesn't exist, the working directory is a
    ///   link, `replaces` names no built-in plugin, or a pattern can't match a path of its tool.
    /// * [`HostError::Load`] if a built-in plugin or a [`plugin_file`](Self::plugin_file) can't be
    ///   loaded, two tools have the same name, or a source's schema is invalid.
    /// * [`HostError::Engine`] if this machine can't run WebAssembly in a sandbox.
    /// * [`HostError::Io`] if the working directory can't be opened, or plugin files can't be
    ///   watched.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime, or on a runtime without its time driver.
    pub async fn build(self) -> Result<Host, HostError> {
        let folders = self.folders.map_or_else(Folders::from_environment, Ok)?;
        let directory = real_directory(self.working_directory)?;
        let governor = Arc::new(Governor::new(Rules::from_config(&self.config)?));
        let helper = self.helper.or_else(toolhold_engine::own_helper);
        let front_end = self.front_end.unwrap_or(Cow::Borrowed("library"));
        let user = match &self.principal {
            Some(who) => Some(User::from(who)),
            None if self.many_users => None,
            None => Some(User::local()),
        };
        let origin = EntryOrigin { front_end, user };
        let log = recorder(&self.config, &folders, origin.clone());
        let mut grants = GrantResolver::new(
            self.config,
            folders,
            directory,
            &self.plugin_files,
            Arc::clone(&governor) as _,
            helper.clone(),
            network(self.resolver, self.listening, log),
        );
        grants.readable = self.readable;
        grants.providers = self.capability_providers;
        check_grants(&grants, &self.builtins)?;

        let GrantResolver { config, folders, directory, .. } = &grants;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Runtime::new(runtime_config(config, Some(folders), helper))?,
        };
        let limits = grants.limits(config.values.tools.limits);
        let settings = Settings {
            max_call: limits.max_call,
            max_arguments: limits.arguments,
            project: project_id(directory).into(),
        };
        let asking = ApprovalDesk::new(folders.clone(), config.clone());
        let lookups = Lookups::new(folders.home.clone());
        let results = Results::new(config.values.tools.result_cache);
        let retry = Retry { backoff: config.values.tools.retry.backoff() };
        let audit = Arc::new(Audit::new(config, folders.operator_data(), origin.clone()));
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
            let tools = JobTools::new(Arc::clone(&jobs.jobs), shaping.threshold, limits.max_call);
            own_tools.jobs = Some(tools);
        }
        if undo.is_some() {
            let tool = UndoTool::new(config, folders, origin, Arc::clone(&jobs.jobs));
            own_tools.undo = Some(tool);
        }
        let providers = list_providers(own_tools, &self.providers);
        if self.watch {
            let overflow = Arc::clone(&shaping.overflow);
            // This runs in the background, so that no call waits for it.
            tokio::task::spawn_blocking(move || overflow.remove_expired());
        }
        let offers = list_offers(&providers);
        let plugins = Arc::new(Plugins::new(runtime, grants, &providers, self.watch)?);
        answer_questions(&plugins, Arc::clone(&jobs.jobs), self.providers);
        for builtin in &self.builtins {
            plugins.add_built_in(builtin).await?;
        }
        // Watching starts before the first search for plugins, so that no change is missed.
        let watch = if self.watch { Some(Watch::start(&plugins)?) } else { None };
        let ready = load_plugins(&plugins, &self.plugin_files, &self.loading).await?;
        plugins.check_patterns()?;
        if let Some(observer) = &self.observer {
            observer.built(count_plugins(&plugins));
        }
        jobs.jobs.change_settings(job_settings);
        Ok(Host {
            plugins,
            ready,
            settings,
            lookups,
            _watch: watch,
            session: default_session(self.principal.as_ref()),
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

/// Creates the session of requests without a session.
fn default_session(principal: Option<&Who>) -> Session {
    let name = format!("process {}", std::process::id());
    match principal {
        Some(who) => Session::of_principal(format!("{name} {}", who.id()), who.name()),
        None => Session::new(name),
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
        .map_err(HostError::io(format!("can't open {}", directory.display())))?;
    // A link in the path could silently change which directory the file tools may use.
    if directory.is_absolute() && directory != real {
        return Err(HostError::Config(format!(
            "the working directory {} isn't a real path; give {}",
            directory.display(),
            real.display()
        )));
    }
    Ok(real)
}

fn network(
    resolver: Option<Arc<dyn Resolve>>,
    listening: Vec<SocketAddr>,
    log: Arc<dyn Recorder>,
) -> Network {
    Network { resolver, listening: listening.into(), log: Some(log), ..Network::default() }
}

/// Warns about granted directories that don't exist, and checks the key `replaces` of plugins.
fn check_grants(grants: &GrantResolver, builtins: &[Builtin]) -> Result<(), HostError> {
    for missing in grants.config.missing_directories(&grants.folders, &grants.directory) {
        tracing::warn!("{missing}");
    }
    grants.check_replacements(builtins)
}

fn host_jobs(settings: &JobSettings, folders: &Folders) -> Arc<HostJobs> {
    let jobs = Jobs::new(settings.clone(), folders.data.clone());
    Arc::new(HostJobs { jobs: Arc::new(jobs), services: Services::default() })
}

/// Creates the shaper of answers. `max_result` is the maximum length of the content in bytes.
fn shaper(config: &Config, folders: &Folders, max_result: usize) -> Result<Shaper, HostError> {
    let tools = &config.values.tools;
    let threshold = usize::try_from(tools.overflow.threshold.get()).unwrap_or(usize::MAX);
    Ok(Shaper {
        result: max_result,
        redaction: tools.redaction.clone(),
        threshold,
        overflow: Arc::new(OverflowStore::new(folders, tools.overflow)),
        filtering: FilterPipeline::new(&tools.filters)?,
    })
}

struct OwnTools {
    reader: Option<OverflowReader>,
    jobs: Option<JobTools>,
    undo: Option<UndoTool>,
}

/// Creates the tool that reads the omitted parts of answers, or returns `None` if answers are never
/// cut.
fn overflow_reader(shaping: &Shaper) -> Option<OverflowReader> {
    if shaping.threshold == 0 {
        return None;
    }
    Some(OverflowReader::new(Arc::clone(&shaping.overflow), shaping.threshold))
}

/// Lists all sources except plugins. The tools are listed in the same order.
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

fn list_offers(providers: &[Arc<dyn ToolSource>]) -> Vec<Offers> {
    let offers = providers.iter().map(|provider| provider.offers());
    offers.filter(|offers| *offers != Offers::default()).collect()
}

fn answer_questions(plugins: &Plugins, jobs: Arc<Jobs>, given: Vec<Arc<dyn ToolSource>>) {
    plugins.answer_questions(Box::new(move |question| {
        jobs::answer(&jobs, question).or_else(|| programs::answer(&given, question))
    }));
}

/// Loads plugins. The returned receiver is closed when all plugins have been loaded or refused.
async fn load_plugins(
    plugins: &Arc<Plugins>,
    files: &[PathBuf],
    loading: &Loading,
) -> Result<watch::Receiver<()>, HostError> {
    let found = plugins.find().await;
    for path in files {
        plugins.add_given(path).await?;
    }
    let (loading_sender, ready) = watch::channel(());
    let Some(mut found) = found else { return Ok(ready) };
    plugins.load_needed(&mut found).await;
    if let Loading::For(tool) = loading {
        let is_loaded = plugins.load_for(&mut found, tool).await;
        if is_loaded || plugins.catalogue().knows(tool) {
            // Warn while the other plugins still count as loading, so that their names aren't
            // reported as unknown.
            plugins.warn_about_unknown_names();
            plugins.leave_out(found, "this program loaded only the parts that its call needs");
            return Ok(ready);
        }
    }

    let plugins = Arc::clone(plugins);
    let load_others = async move {
        let retry_failed = false;
        plugins.load_found(found, retry_failed).await;
        plugins.warn_about_unknown_names();
        drop(loading_sender);
    };
    match loading {
        Loading::InBackground => drop(tokio::spawn(load_others)),
        Loading::BeforeReturning | Loading::For(_) => load_others.await,
    }
    Ok(ready)
}

/// Returns a function that counts the plugins by their state, such as `running`. After the host is
/// dropped, the function returns no counts.
fn count_plugins(plugins: &Arc<Plugins>) -> CountPlugins {
    let weak_plugins = Arc::downgrade(plugins);
    Box::new(move || {
        let mut counts = BTreeMap::new();
        let Some(plugins) = weak_plugins.upgrade() else { return counts };
        for plugin in plugins.states() {
            *counts.entry(plugin.word()).or_default() += 1;
        }
        counts
    })
}
