//! How a host is made: the one constructor that every front end uses.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use berth_answers::FilterPipeline;
use berth_answers::Results;
use berth_answers::Shaper;
use berth_answers::{OverflowReader, OverflowStore};
use berth_catalogue::plugins::{Plugins, Policies, Watch, runtime_config};
use berth_catalogue::subjects::Lookups;
use berth_config::{Folders, Loaded};
use berth_contract::{HostError, Provider};
use berth_egress::{Network, Resolve};
use berth_runtime::{Builtin, Runtime};

use crate::approvals::ApprovalDesk;
use crate::audit::Audit;
use crate::governor::{Governor, Rules};
use crate::host::{Host, Settings};
use crate::retry::Retry;
use crate::session::Session;

impl Host {
    /// How a host is made, the only way. What is not said has a default that [`HostBuilder`] tells.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }
}

/// Collects what a [`Host`] is made of. It begins with [`Host::builder`] and ends with
/// [`build`](Self::build); what is said twice counts as said last, and what adds (plugins,
/// providers) adds up.
#[derive(Default)]
pub struct HostBuilder {
    config: Loaded,
    folders: Option<Folders>,
    working_directory: Option<PathBuf>,
    builtins: Vec<Builtin>,
    plugin_files: Vec<PathBuf>,
    providers: Vec<Arc<dyn Provider>>,
    helper: Option<PathBuf>,
    resolver: Option<Arc<dyn Resolve>>,
    listening: Vec<SocketAddr>,
    watch: bool,
    front_end: Option<Cow<'static, str>>,
}

impl HostBuilder {
    /// The configuration, as [`config::load`](berth_config::load) reads it. Without it, the
    /// defaults hold: no file is read.
    #[must_use]
    pub fn config(mut self, config: Loaded) -> Self {
        self.config = config;
        self
    }

    /// Berth's own folders. Without them, those of the user who runs this process
    /// ([`Folders::from_environment`](berth_config::Folders::from_environment)), whose plugin
    /// folder counts then.
    #[must_use]
    pub fn folders(mut self, folders: Folders) -> Self {
        self.folders = Some(folders);
        self
    }

    /// Where relative paths start, and what the file tools may use where the configuration does not
    /// say. Without it, the directory of this process.
    #[must_use]
    pub fn working_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.working_directory = Some(directory.into());
        self
    }

    /// Plugins that are part of the program. Their tools have bare names, and what `[tools.file]`
    /// grants.
    #[must_use]
    pub fn builtins(mut self, builtins: &[Builtin]) -> Self {
        self.builtins.extend_from_slice(builtins);
        self
    }

    /// One component more, beside those that the configuration names, by its path. Naming it
    /// approves it. It is granted what the configuration grants the name in its manifest: nothing,
    /// where that is not said.
    #[must_use]
    pub fn plugin_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_files.push(path.into());
        self
    }

    /// Something else that offers tools: code of the program, or the client of a server.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// A program whose `main` begins with [`helper_hook`](crate::helper_hook), to compile
    /// components in. Not needed where this program's does.
    #[must_use]
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.helper = Some(program.into());
        self
    }

    /// Who looks up the names that requests of plugins name. Without it, the system does. Whatever
    /// it says is decided on as what the system says: an address that nothing grants is not
    /// connected to.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// An address that this program listens on: no request of a plugin goes there, whatever is
    /// granted. One that stands for all addresses of the machine stands for each of them.
    #[must_use]
    pub fn listens_on(mut self, address: SocketAddr) -> Self {
        self.listening.push(address);
        self
    }

    /// Keeps the plugins up with their files while the host lives: what is put into the plugin
    /// folder, changed or taken away there. A program that makes a call and ends has no use for it.
    /// It takes a thread, which sleeps until something changes and uses the runtime then: let the
    /// host end before its runtime does.
    #[must_use]
    pub fn watch(mut self) -> Self {
        self.watch = true;
        self
    }

    /// What the audit calls the program that makes the calls: `berth call`, say. Without it,
    /// `library`.
    #[must_use]
    pub fn front_end(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.front_end = Some(name.into());
        self
    }

    /// Starts the engine and loads everything. Plugins that are new to this machine are compiled,
    /// which takes from tenths of a second to many seconds for each, once.
    ///
    /// A plugin of the configuration or of the plugin folder that is held back or does not load
    /// keeps no other from its work: [`Host::plugins`] says why it does not serve.
    ///
    /// # Errors
    ///
    /// * [`HostError::Config`]: a grant names no directory, `replaces` no built-in plugin, or a
    ///   pattern can match no path that its tool acts on.
    /// * [`HostError::Load`]: a built-in plugin or one of [`plugin_file`](Self::plugin_file) does
    ///   not load, two tools have the same name, or a provider's schema is none.
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
            None => berth_config::working_directory()?,
        };
        let directory = directory
            .canonicalize()
            .map_err(HostError::io(format!("opening {}", directory.display())))?;
        let governor = Arc::new(Governor::new(Rules::from_config(&self.config)?));
        let helper = self.helper.or_else(berth_runtime::own_helper);
        let network = Network {
            resolver: self.resolver,
            listening: self.listening.into(),
            ..Network::default()
        };
        let policies = Policies::new(
            self.config,
            folders,
            directory,
            &self.plugin_files,
            Arc::clone(&governor) as _,
            helper.clone(),
            network,
        );
        policies.check_replacements(&self.builtins)?;
        let runtime =
            Runtime::new(runtime_config(&policies.config, Some(&policies.folders), helper))?;
        let limits = policies.limits(policies.config.config.tools.limits);
        let asking = ApprovalDesk::new(policies.folders.clone(), policies.config.clone());
        let home = policies.folders.home.clone();
        let results = Results::new(policies.config.config.tools.result_cache);
        let retry = Retry(policies.config.config.tools.retry.backoff());
        let front_end = self.front_end.unwrap_or(Cow::Borrowed("library"));
        let audit = Audit::new(policies.config.config.audit, &policies.folders.data, front_end);
        let tools = &policies.config.config.tools;
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
        let mut providers = self.providers;
        if threshold > 0 {
            providers.insert(0, Arc::new(OverflowReader::new(Arc::clone(&overflow), threshold)));
        }
        if self.watch {
            // A host that stays has the time, and nobody waits for it.
            tokio::task::spawn_blocking(move || overflow.clean());
        }
        let plugins = Arc::new(Plugins::new(runtime, policies, &providers, self.watch)?);
        for builtin in &self.builtins {
            plugins.add_built_in(builtin).await?;
        }
        // Watched before they are looked at, so that no change is missed between the two.
        let watch = if self.watch { Some(Watch::start(&plugins)?) } else { None };
        plugins.reload(false).await;
        for path in &self.plugin_files {
            plugins.add_given(path).await?;
        }
        plugins.check_patterns()?;
        plugins.warn_about_unknown_names();
        let settings = Settings { max_call: limits.max_call, arguments: limits.arguments };
        Ok(Host {
            plugins,
            settings,
            lookups: Lookups::new(home),
            _watch: watch,
            session: Session::new(format!("process {}", std::process::id())),
            governor,
            asking,
            audit,
            shaping,
            results,
            retry,
        })
    }
}
