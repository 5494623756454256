//! How a host is made: the one constructor that every front end uses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::{HostError, Provider};
use berth_policy::files::OwnFolder;
use berth_runtime::{Builtin, Limits, PluginInfo, PluginPolicy, Plugins, RuntimeConfig};
use berth_system::files::Grants;

use crate::catalogue::Catalogue;
use crate::config::{self, FilePolicy, Folders, Loaded};
use crate::host::{Host, Settings};

/// Collects what a [`Host`] is made of.
#[derive(Default)]
pub struct HostBuilder {
    config: Loaded,
    folders: Option<Folders>,
    working_directory: Option<PathBuf>,
    builtins: Vec<Builtin>,
    plugin_files: Vec<PathBuf>,
    providers: Vec<Arc<dyn Provider>>,
    helper: Option<PathBuf>,
}

impl HostBuilder {
    /// The configuration. Without it, the defaults hold.
    #[must_use]
    pub fn config(mut self, config: Loaded) -> Self {
        self.config = config;
        self
    }

    /// Berth's own folders. Without them, those of the user who runs this process.
    #[must_use]
    pub fn folders(mut self, folders: Folders) -> Self {
        self.folders = Some(folders);
        self
    }

    /// Where relative paths start, and what the file tools may use where the configuration does not say. Without it, the directory of
    /// this process.
    #[must_use]
    pub fn working_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.working_directory = Some(directory.into());
        self
    }

    /// Plugins that are part of the program.
    #[must_use]
    pub fn builtins(mut self, builtins: &[Builtin]) -> Self {
        self.builtins.extend_from_slice(builtins);
        self
    }

    /// One component more, beside those that the configuration names. It is granted what the configuration grants its name.
    #[must_use]
    pub fn plugin_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.plugin_files.push(path.into());
        self
    }

    /// Something else that offers tools.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// A program whose `main` begins with [`helper_hook`](crate::helper_hook), to compile components in. Not needed where this program's
    /// does.
    #[must_use]
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.helper = Some(program.into());
        self
    }

    /// Starts the engine and loads everything.
    ///
    /// # Errors
    ///
    /// [`HostError`]: what does not load, and why.
    pub async fn build(self) -> Result<Host, HostError> {
        let folders = self.folders.map_or_else(Folders::from_environment, Ok)?;
        let directory = match self.working_directory {
            Some(directory) => directory,
            None => std::env::current_dir().map_err(HostError::io("asking for the working directory"))?,
        };
        let directory = directory.canonicalize().map_err(HostError::io(format!("opening {}", directory.display())))?;
        let mut own = self.config.own(&folders, &directory);
        // A plugin that a flag named is code that runs next time: no tool may write it either.
        own.extend(self.plugin_files.iter().map(|path| OwnFolder { path: directory.join(path), secret: false }));
        let policies = Policies { config: &self.config, folders: &folders, directory: &directory, own };
        let mut plugins = Plugins::new(RuntimeConfig {
            concurrency: usize::try_from(self.config.config.tools.max_concurrent.get()).unwrap_or(0),
            memory: policies.most_memory(),
            cache: Some(folders.cache.join("compiled")),
            helper: self.helper,
        })?;
        for builtin in &self.builtins {
            plugins.load_builtin(builtin, |_| policies.built_in()).await?;
        }
        for name in self.config.config.plugins.keys() {
            let Some(path) = self.config.plugin_path(name, &folders, &directory) else { continue };
            plugins.load_file(&path, |info| policies.named(name, info)).await?;
        }
        for path in &self.plugin_files {
            plugins.load_file(path, |info| policies.of_plugin(&info.manifest.name)).await?;
        }

        let plugins = Arc::new(plugins);
        let mut catalogue = Catalogue::default();
        let of_plugins: Arc<dyn Provider> = Arc::clone(&plugins) as _;
        for provider in std::iter::once(&of_plugins).chain(&self.providers) {
            catalogue.add(provider)?;
        }
        let limits = policies.limits(self.config.config.tools.limits);
        let settings =
            Settings { home: folders.home.clone(), max_call: limits.max_call, arguments: limits.arguments, result: limits.result };
        Ok(Host { catalogue, plugins, settings })
    }
}

/// What each plugin is allowed.
struct Policies<'c> {
    config: &'c Loaded,
    folders: &'c Folders,
    directory: &'c Path,
    /// What no grant reaches.
    own: Vec<OwnFolder>,
}

impl Policies<'_> {
    fn built_in(&self) -> Result<PluginPolicy, HostError> {
        let files = self.config.built_in_files(self.folders, self.directory)?;
        self.policy(files, self.config.config.tools.limits)
    }

    fn of_plugin(&self, name: &str) -> Result<PluginPolicy, HostError> {
        let files = self.config.plugin_files(name, self.folders, self.directory)?;
        self.policy(files, self.config.plugin_limits(name))
    }

    /// The policy of `[plugins.NAME]`, for the plugin of that name only: a grant belongs to a name.
    fn named(&self, name: &str, info: &PluginInfo) -> Result<PluginPolicy, HostError> {
        if info.manifest.name != name {
            let reason = format!("its manifest names it `{}`; the table has to be [plugins.{}]", info.manifest.name, info.manifest.name);
            return Err(HostError::Load { plugin: format!("[plugins.{name}]"), reason });
        }
        self.of_plugin(name)
    }

    fn policy(&self, files: FilePolicy, limits: config::Limits) -> Result<PluginPolicy, HostError> {
        let FilePolicy { grants, deny_read, allow_read, deny_write } = files;
        let within = grants.iter().any(|grant| self.directory.starts_with(&grant.path));
        let grants = if grants.is_empty() {
            None
        } else {
            let globs = |rules: berth_policy::files::FileRules| rules.with_globs(deny_read, allow_read, deny_write);
            let opened = Grants::open(grants, self.own.clone(), globs).map_err(|error| HostError::Config(error.to_string()))?;
            Some(Arc::new(opened))
        };
        let working_directory = within.then(|| self.directory.to_owned());
        Ok(PluginPolicy { files: grants, working_directory, read_only: false, limits: self.limits(limits) })
    }

    fn limits(&self, limits: config::Limits) -> Limits {
        const MIB: u64 = 1 << 20;
        let size = |mib: u64| usize::try_from(mib.saturating_mul(MIB)).unwrap_or(usize::MAX);
        let tools = &self.config.config.tools;
        let defaults = Limits::default();
        Limits {
            call: tools.call_time(),
            max_call: tools.max_call_time(),
            cpu: std::time::Duration::from_secs(limits.cpu_secs.get()),
            memory: size(limits.memory_mib.get()),
            result: size(limits.result_mib.get()),
            // What an answer may hold, the host has to be able to copy, with room for what is around it.
            host_allocation: defaults.host_allocation.max(size(limits.result_mib.get()).saturating_mul(2)),
            written: limits.written_mib.get().saturating_mul(MIB),
            handles: usize::try_from(limits.handles.get()).unwrap_or(defaults.handles),
            ..defaults
        }
    }

    /// The most memory that any plugin may have: what the pool's slots have to hold.
    fn most_memory(&self) -> usize {
        let named = self.config.config.plugins.keys().map(|name| self.config.plugin_limits(name));
        let all = std::iter::once(self.config.config.tools.limits).chain(named);
        all.map(|limits| self.limits(limits).memory).max().unwrap_or_default()
    }
}
