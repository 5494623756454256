//! Builds a host for every front end: `Host::builder`, the default of each setting, and which plugins
//! are loaded before it serves and which meanwhile.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use toolhold_answers::FilterPipeline;
use toolhold_answers::Results;
use toolhold_answers::Shaper;
use toolhold_answers::{OverflowReader, OverflowStore};
use toolhold_catalogue::Tasks;
use toolhold_catalogue::plugins::{GrantResolver, Plugins, Watch, runtime_config};
use toolhold_catalogue::subjects::Lookups;
use toolhold_config::{Config, Folders};
use toolhold_contract::{EmbeddingModel, HostError, Offers, ToolSource, VectorDatabase};
use toolhold_engine::{Builtin, Runtime};
use toolhold_jobs::services::Services;
use toolhold_jobs::{JobTools, Jobs};
use toolhold_net::{Network, Resolve};
use toolhold_schedule::Schedule;

use crate::approvals::ApprovalDesk;
use crate::audit::Audit;
use crate::caller_names::project_id;
use crate::governor::{Governor, Rules};
use crate::host::{CallObserver, Host, Settings};
use crate::jobs::{self, HostJobs};
use crate::outer::OuterCalls;
use crate::programs;
use crate::retry::Retry;
use crate::review::{CallReviewer, Reviews};
use crate::session::Session;
use crate::undo::{Undo, UndoTool};

impl Host {
    /// The only way to make a host. [`HostBuilder`] names the default of every setting.
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
    /// Only those that a call of this tool needs.
    For(String),
}

/// Collects the parts of a [`Host`]. It begins with [`Host::builder`] and ends with
/// [`build`](Self::build). Of a setting that is made twice the last one counts; plugins and
/// providers add up.
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
    embedding_models: BTreeMap<String, Arc<dyn EmbeddingModel>>,
    vector_database: Option<Arc<dyn VectorDatabase>>,
    jobs: Option<Arc<HostJobs>>,
}

impl HostBuilder {
    /// The configuration, as [`config::load`](toolhold_config::load) reads it. By default no file
    /// is read and the defaults apply.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Toolhold's own folders. By default those of the user who runs this process
    /// ([`Folders::from_environment`](toolhold_config::Folders::from_environment)), with the user's
    /// plugin folder.
    #[must_use]
    pub fn folders(mut self, folders: Folders) -> Self {
        self.folders = Some(folders);
        self
    }

    /// The folder that relative paths start from, and that the file tools may use if the
    /// configuration grants nothing: its real path, or a path that begins at the directory of this
    /// process, which is the default.
    #[must_use]
    pub fn working_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.working_directory = Some(directory.into());
        self
    }

    /// Plugins that are part of the program. Their tools have bare names, and they get the grants
    /// of `[tools.file]`.
    #[must_use]
    pub fn builtins(mut self, builtins: &[Builtin]) -> Self {
        self.builtins.extend_from_slice(builtins);
        self
    }

    /// One more component, by its path. Naming it approves it. It gets the grants that the
    /// configuration gives to the name in its manifest; nothing by default.
    #[must_use]
    pub fn plugin_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_files.push(path.into());
        self
    }

    /// Another source of tools: code of the program, or the client of a server.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn ToolSource>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Folders of skills by their real paths. The built-in tools for files and commands may read
    /// them, unless these tools are disabled. They have to exist.
    #[must_use]
    pub fn readable(mut self, folders: &[PathBuf]) -> Self {
        self.readable.extend_from_slice(folders);
        self
    }

    /// A program whose `main` begins with [`helper_hook`](crate::helper_hook), to compile
    /// components in. Not needed if this program's `main` does.
    #[must_use]
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.helper = Some(program.into());
        self
    }

    /// The resolver for the host names in the requests of plugins; by default the system's. Its
    /// answers are checked like the system's: a request never connects to an address that isn't
    /// granted.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// An address that this program listens on. Requests of plugins never go there, whatever is
    /// granted. A wildcard address stands for every address of the machine.
    #[must_use]
    pub fn listens_on(mut self, address: SocketAddr) -> Self {
        self.listening.push(address);
        self
    }

    /// Reloads plugins when their files change, while the host lives: files that are added to the
    /// plugin folder, changed or removed. A program that makes one call and ends has no use for it.
    /// It needs a thread, which sleeps until something changes and then uses the runtime: drop the
    /// host before its runtime.
    #[must_use]
    pub fn watch(mut self) -> Self {
        self.watch = true;
        self
    }

    /// Loads the plugins of the configuration and of the plugin folder after
    /// [`build`](Self::build) has returned, so that one that takes long delays nobody: a call of a
    /// tool that exists waits for none of them, a call of one of their tools for its plugin alone.
    /// [`Host::ready`] waits for all. `build` still waits for filters of `[tools.filters] chain`
    /// and for plugins that replace a built-in one, since every call needs those.
    #[must_use]
    pub fn load_in_background(mut self) -> Self {
        self.loading = Loading::InBackground;
        self
    }

    /// Loads no plugins of the configuration and of the plugin folder but those that calls of this
    /// tool need. Loads all of them if no tool has that name, so that the failure says which do.
    /// For a program that makes one call and ends.
    #[must_use]
    pub fn only_for(mut self, tool: impl Into<String>) -> Self {
        self.loading = Loading::For(tool.into());
        self
    }

    /// The name of the program in the audit, such as `toolhold call`. By default `library`.
    #[must_use]
    pub fn front_end(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.front_end = Some(name.into());
        self
    }

    /// Who sees each call with its answer. By default nobody does.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn CallObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Who judges calls, if `[tools.adversarial_policy]` is enabled: `toolhold-agent` asks a model
    /// of the configuration. By default nobody does, and with that table each call that it doesn't
    /// exempt is refused.
    #[must_use]
    pub fn reviewer(mut self, reviewer: Arc<dyn CallReviewer>) -> Self {
        self.reviewer = Some(reviewer);
        self
    }

    /// The models that make vectors of texts, by their tables of `[providers]`: where `embeddings`
    /// of a tool or a plugin names one. `toolhold-models` makes those of the configuration. By
    /// default there is none, and what is searched by meaning is searched by words alone.
    #[must_use]
    pub fn embedding_models(mut self, models: BTreeMap<String, Arc<dyn EmbeddingModel>>) -> Self {
        self.embedding_models = models;
        self
    }

    /// The database that says which vectors are near, for `search_code`, where `vector_backend` of
    /// `[index]` names one. `toolhold-models` makes that of the configuration. By default there is
    /// none, and the index compares all vectors itself.
    #[must_use]
    pub fn vector_database(mut self, database: Option<Arc<dyn VectorDatabase>>) -> Self {
        self.vector_database = database;
        self
    }

    /// The host that this one replaces, after a change of the configuration: commands in the
    /// background go on. By default they end with their host.
    #[must_use]
    pub fn replaces(mut self, host: &Host) -> Self {
        self.jobs = Some(Arc::clone(&host.jobs));
        self
    }

    /// Starts the engine and loads everything, unless
    /// [`load_in_background`](Self::load_in_background) or [`only_for`](Self::only_for) was called.
    /// Plugins that are new to this machine are compiled
    /// once, which takes from tenths of a second to many seconds for each.
    ///
    /// A plugin of the configuration or of the plugin folder that is held back or doesn't load
    /// doesn't stop the others: [`Host::plugins`] says why it doesn't serve.
    ///
    /// # Errors
    ///
    /// * [`HostError::Config`]: a grant names a directory that doesn't exist, the working directory
    ///   is given as a link, `replaces` names no built-in plugin, or a pattern can match no path of
    ///   its tool.
    /// * [`HostError::Load`]: a built-in plugin or one of [`plugin_file`](Self::plugin_file)
    ///   doesn't load, two tools have the same name, or a provider's schema isn't valid.
    /// * [`HostError::Engine`]: this machine can't run WebAssembly in a sandbox.
    /// * [`HostError::Io`]: the working directory can't be opened, or the files of plugins can't be
    ///   watched.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or on one without its time driver.
    pub async fn build(self) -> Result<Host, HostError> {
        let folders = self.folders.map_or_else(Folders::from_environment, Ok)?;
        let directory = match self.working_directory {
            Some(directory) => directory,
            None => toolhold_config::working_directory()?,
        };
        let real = directory
            .canonicalize()
            .map_err(HostError::io(format!("opening {}", directory.display())))?;
        // Whoever puts a link into an absolute path means another directory.
        if directory.is_absolute() && directory != real {
            return Err(HostError::Config(format!(
                "the working directory {} isn't a real path; give {}",
                directory.display(),
                real.display()
            )));
        }
        let directory = real;
        let governor = Arc::new(Governor::new(Rules::from_config(&self.config)?));
        let helper = self.helper.or_else(toolhold_engine::own_helper);
        let network = Network {
            resolver: self.resolver,
            listening: self.listening.into(),
            ..Network::default()
        };
        let mut policies = GrantResolver::new(
            self.config,
            folders,
            directory,
            &self.plugin_files,
            Arc::clone(&governor) as _,
            helper.clone(),
            network,
        );
        policies.readable = self.readable;
        policies.embedding_models = self.embedding_models;
        policies.vector_database = self.vector_database;
        let project = project_id(&policies.directory).into();
        for missing in policies.config.missing_directories(&policies.folders, &policies.directory) {
            tracing::warn!("{missing}");
        }
        policies.check_replacements(&self.builtins)?;
        let runtime =
            Runtime::new(runtime_config(&policies.config, Some(&policies.folders), helper))?;
        let limits = policies.limits(policies.config.values.tools.limits);
        let asking = ApprovalDesk::new(policies.folders.clone(), policies.config.clone());
        let home = policies.folders.home.clone();
        let results = Results::new(policies.config.values.tools.result_cache);
        let retry = Retry(policies.config.values.tools.retry.backoff());
        let front_end = self.front_end.unwrap_or(Cow::Borrowed("library"));
        let name = front_end.to_string();
        let audit = Arc::new(Audit::new(&policies.config, &policies.folders.data, front_end));
        let job_settings = jobs::settings(&policies.config, &audit);
        let has_jobs = job_settings.bounds.running > 0 && !self.builtins.is_empty();
        let schedule = Arc::new(Schedule::in_data(&policies.folders.data));
        let tasks = Tasks { schedule, directory: policies.directory.clone() };
        let jobs = match self.jobs {
            Some(jobs) => jobs,
            None => {
                let data = policies.folders.data.clone();
                Arc::new(HostJobs(
                    Arc::new(Jobs::new(job_settings.clone(), data)),
                    Services::default(),
                ))
            }
        };
        let undo = Undo::new(&policies.config, &policies.folders)?.map(Arc::new);
        let tools = &policies.config.values.tools;
        let threshold = usize::try_from(tools.overflow.threshold.get()).unwrap_or(usize::MAX);
        let overflow = Arc::new(OverflowStore::new(&policies.folders, tools.overflow));
        let filtering = FilterPipeline::new(&tools.filters)?;
        let redaction = tools.redaction.clone();
        let shaping = Shaper {
            result: limits.result,
            redaction,
            threshold,
            overflow: Arc::clone(&overflow),
            filtering,
        };
        let answering = (Arc::clone(&jobs.0), self.providers.clone());
        let mut providers = self.providers;
        if undo.is_some() {
            let tool =
                UndoTool::new(&policies.config, &policies.folders, &name, Arc::clone(&jobs.0));
            providers.insert(0, Arc::new(tool));
        }
        if has_jobs {
            let tools = JobTools::new(Arc::clone(&jobs.0), threshold, limits.max_call);
            providers.insert(0, Arc::new(tools));
        }
        if threshold > 0 {
            providers.insert(0, Arc::new(OverflowReader::new(Arc::clone(&overflow), threshold)));
        }
        if self.watch {
            // A long-lived host has the time: no call waits for it.
            tokio::task::spawn_blocking(move || overflow.remove_expired());
        }
        let offers = providers.iter().map(|provider| provider.offers());
        let offers = offers.filter(|offers| *offers != Offers::default()).collect();
        let plugins = Arc::new(Plugins::new(runtime, policies, &providers, self.watch)?);
        plugins.answer_questions(Box::new(move |question| {
            let (jobs, providers) = &answering;
            jobs::answer(jobs, question).or_else(|| programs::answer(providers, question))
        }));
        for builtin in &self.builtins {
            plugins.add_built_in(builtin).await?;
        }
        // Watching starts before the first look, so that no change is missed between the two.
        let watch = if self.watch { Some(Watch::start(&plugins)?) } else { None };
        let found = plugins.find().await;
        for path in &self.plugin_files {
            plugins.add_given(path).await?;
        }
        let (loaded, ready) = tokio::sync::watch::channel(());
        if let Some(mut found) = found {
            plugins.load_needed(&mut found).await;
            let is_enough = match &self.loading {
                Loading::For(tool) => {
                    plugins.load_for(&mut found, tool).await || plugins.catalogue().knows(tool)
                }
                _ => false,
            };
            if is_enough {
                // Names of plugins that aren't loaded are known as long as these may come.
                plugins.warn_about_unknown_names();
                plugins.leave_out(found, "this program loaded only what its one call needs");
            } else {
                let others = Arc::clone(&plugins);
                let load = async move {
                    others.load_found(found, false).await;
                    // Now every name that exists is known.
                    others.warn_about_unknown_names();
                    drop(loaded);
                };
                match self.loading {
                    Loading::InBackground => drop(tokio::spawn(load)),
                    _ => load.await,
                }
            }
        }
        plugins.check_patterns()?;
        if let Some(observer) = &self.observer {
            let plugins = Arc::downgrade(&plugins);
            observer.built(Box::new(move || {
                let mut counts = BTreeMap::new();
                for plugin in plugins.upgrade().iter().flat_map(|plugins| plugins.states()) {
                    *counts.entry(plugin.word()).or_default() += 1;
                }
                counts
            }));
        }
        jobs.0.change_settings(job_settings);
        let settings = Settings { max_call: limits.max_call, arguments: limits.arguments, project };
        Ok(Host {
            plugins,
            ready,
            settings,
            lookups: Lookups::new(home),
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
