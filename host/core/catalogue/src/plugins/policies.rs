//! Converts the configuration to the grants and limits of each plugin.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use toolhold_config::{
    self as config, Config, FileGrants, Folders, NetworkGrant, Problem, ProcessGrants,
};
use toolhold_contract::{Access, BuiltInGrant, BuiltInPlugin, HostError};
use toolhold_engine::capability::CapabilityGrants;
use toolhold_engine::capability::index::IndexGrant;
use toolhold_engine::capability::process::PluginProcesses;
use toolhold_engine::capability::providers::CapabilityProviders;
use toolhold_engine::capability::schedule::ScheduleGrant;
use toolhold_engine::capability::service::PluginServices;
use toolhold_engine::{Builtin, Limits, PluginConfig, PluginGrants, RuntimeConfig};
use toolhold_net::{Egress, HostAccess, Network, Settings};
use toolhold_policy::files::{Grant, OwnFolder};
use toolhold_store::index::{DocumentIndex, IndexQuota};
use toolhold_store::{Quota, Store};
use toolhold_system::confine::TreeAccess;
use toolhold_system::files::{Grants, with_its_links};
use toolhold_system::process::{Places, RememberedPlaces};

use super::advice::SandboxAdvisor;
use super::advisor::{CommandGate, PluginAdvisor};

pub(super) const MIB: u64 = 1 << 20;

/// The folders for the stores and for the search indexes of plugins, in the data folder.
pub(super) const STORES: &str = "stores";
pub(super) const INDEXES: &str = "indexes";

/// Returns the index of the built-in memory.
pub fn memory(config: &Config, folders: &Folders) -> DocumentIndex {
    let memory = &config.values.tools.memory;
    let quota = IndexQuota {
        bytes: memory.index_mib.get().saturating_mul(MIB),
        documents: memory.index_documents(),
    };
    let is_derived = false;
    DocumentIndex::named(folders.data.join(INDEXES), MEMORY, quota, is_derived)
}

/// The folders of the memory and of the code index, in [`INDEXES`].
const MEMORY: &str = "memory";
const CODE: &str = "code";

/// Minimum size of a document in the code index, in bytes, for calculating the number of documents.
/// Most documents have about one KiB.
const MIN_CODE_DOCUMENT: u64 = 512;

/// Maximum number of running language servers of a session.
const MAX_LANGUAGE_SERVERS: u64 = 4;

/// The store for the last answers of compilers and linters.
const DIAGNOSTICS: &str = "diagnostics";
const DIAGNOSTICS_QUOTA: Quota = Quota { bytes: 64 * MIB, keys: 10_000 };

/// Creates the grants of each plugin when it is loaded.
pub struct GrantResolver {
    /// The configuration.
    pub config: Config,
    /// Toolhold's own folders.
    pub folders: Folders,
    /// The real path of the working directory.
    pub directory: PathBuf,
    /// Folders that the built-in file tools and commands may read without a configured grant.
    pub readable: Vec<PathBuf>,
    /// The models and databases of the embedding program.
    pub providers: CapabilityProviders,
    /// Toolhold's own files and folders. No grant includes them.
    protected: Vec<OwnFolder>,
    /// The grants for the built-in shell. Their creation reads many links, so they are created
    /// once.
    shell_grants: OnceLock<ProcessGrants>,
    /// The grants for the built-in file tools, created once.
    file_grants: OnceLock<Option<Arc<Grants>>>,
    /// Decides on the commands of processes.
    gate: Arc<dyn CommandGate>,
    /// The program of the helper process that starts sandboxes.
    helper: Option<PathBuf>,
    /// Network settings that aren't in the configuration.
    network: Network,
}

/// Returns the sandbox of the server `name` in `[mcp.servers]`, or `None` for an unknown server.
/// `network` has the network settings that aren't in the configuration.
///
/// # Errors
///
/// [`HostError::Config`] if a granted directory doesn't exist.
pub fn server_places(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    helper: Option<PathBuf>,
    network: &Network,
    name: &str,
) -> Result<Option<ServerPlaces>, HostError> {
    let Some(grants) = config.processes_of_server(name, folders, directory)? else {
        return Ok(None);
    };
    let ProcessGrants {
        files,
        extra_trees,
        hidden,
        sandbox,
        limits,
        environment,
        home,
        context,
        ..
    } = grants;
    let protected = config.protected(folders, directory);
    let places = Places {
        grants: Arc::new(open(files, protected)?),
        also: extra_trees,
        also_hidden: hidden,
        sockets: Vec::new(),
        sandbox,
        limits,
        home,
        helper,
        known: RememberedPlaces::default(),
    };
    let hosts = config.egress_of_server(name, folders, directory)?;
    let hosts = hosts.map(|settings| with_process_network(settings, network));
    let network = grants.network == NetworkGrant::Allow;
    let advisor = SandboxAdvisor { context };
    Ok(Some(ServerPlaces { places, network, hosts, environment, advisor }))
}

/// The sandbox of an upstream server.
#[derive(Debug)]
pub struct ServerPlaces {
    /// The paths that the server may read or change.
    pub places: Places,
    /// Whether the server may use the whole network.
    pub network: bool,
    /// The rules for the server's connections to hosts. `None` if no host is granted.
    pub hosts: Option<Settings>,
    /// The whole environment of the server.
    pub environment: Vec<(String, String)>,
    /// Gives advice about failures that the sandbox may have caused.
    pub advisor: SandboxAdvisor,
}

/// Adds the network settings that aren't in the configuration. All requests and connections get
/// them, so that no grant leads to an address where this process listens.
fn with_process_network(mut settings: Settings, network: &Network) -> Settings {
    let Network { resolver, listening, trust, log, .. } = network.clone();
    settings.network = Network { resolver, listening, trust, log, ..settings.network };
    settings
}

fn open(files: FileGrants, protected: Vec<OwnFolder>) -> Result<Grants, HostError> {
    let FileGrants { grants, deny_read, allow_read, deny_write } = files;
    Grants::open(grants, protected, |rules| rules.with_globs(deny_read, allow_read, deny_write))
        .map_err(|error| HostError::Config(error.to_string()))
}

impl GrantResolver {
    /// Creates a resolver. `files` are components without a configured path. Tools may not write to
    /// these files, because the host loads them at its next start.
    pub fn new(
        config: Config,
        folders: Folders,
        directory: PathBuf,
        files: &[PathBuf],
        gate: Arc<dyn CommandGate>,
        helper: Option<PathBuf>,
        network: Network,
    ) -> Self {
        let mut protected = config.protected(&folders, &directory);
        for path in files {
            // Looking up links takes long, so they are looked up once.
            let file = OwnFolder { path: directory.join(path), secret: false };
            protected.extend(with_its_links(file));
        }
        Self {
            config,
            folders,
            directory,
            readable: Vec::new(),
            providers: CapabilityProviders::default(),
            protected,
            shell_grants: OnceLock::new(),
            file_grants: OnceLock::new(),
            gate,
            helper,
            network,
        }
    }

    /// Returns the grants of a built-in plugin. Plugins that [`BuiltInPlugin`] doesn't list get no
    /// grants.
    pub fn built_in(&self, name: &str) -> Result<PluginGrants, HostError> {
        let plugin = BuiltInPlugin::named(name);
        let table = match plugin {
            Some(plugin) => plugin.table,
            None => "tools",
        };
        let no_files = FileGrants::default();
        let mut policy = self.policy(table, no_files, self.config.values.tools.limits)?;
        if let Some(plugin) = plugin {
            for grant in plugin.grants {
                policy = self.with_grant(policy, table, *grant)?;
            }
        }
        Ok(policy)
    }

    /// Adds a grant of a built-in plugin. `table` is the plugin's table in the configuration.
    fn with_grant(
        &self,
        mut policy: PluginGrants,
        table: &str,
        grant: BuiltInGrant,
    ) -> Result<PluginGrants, HostError> {
        match grant {
            BuiltInGrant::Files => Ok(PluginGrants { files: self.file_grants()?, ..policy }),
            BuiltInGrant::Commands => self.with_commands(policy, table),
            BuiltInGrant::Compilers => self.with_compilers(policy, table),
            BuiltInGrant::LanguageServers => self.with_language_servers(policy),
            BuiltInGrant::Requests => {
                let egress = self.config.egress_of_web(&self.folders, &self.directory)?;
                policy.capabilities.http = Some(self.egress(egress));
                Ok(policy)
            }
            BuiltInGrant::Memory => Ok(self.with_memory(policy)),
            BuiltInGrant::CodeIndex => Ok(self.with_code_index(policy)),
            BuiltInGrant::Tasks => {
                policy.capabilities.schedule = Some(ScheduleGrant);
                Ok(policy)
            }
        }
    }

    /// Returns the grants of the file tools and of code search, or `None` if no directory is
    /// granted.
    fn file_grants(&self) -> Result<Option<Arc<Grants>>, HostError> {
        if let Some(grants) = self.file_grants.get() {
            return Ok(grants.clone());
        }
        let mut files = self.config.built_in_files(&self.folders, &self.directory)?;
        self.add_readable(&mut files);
        let grants = self.open_any(files)?;
        Ok(self.file_grants.get_or_init(|| grants).clone())
    }

    /// Adds the grants of the shell. With disabled commands or without an allowed program, each
    /// call fails with the reason.
    fn with_commands(
        &self,
        mut policy: PluginGrants,
        table: &str,
    ) -> Result<PluginGrants, HostError> {
        let mut grants = self.shell_grants()?;
        self.add_readable(&mut grants.files);
        policy.files = self.open_any(grants.files.clone())?;
        let hosts = self.config.egress_of_shell(&self.folders, &self.directory)?;
        let hosts = hosts.map(|settings| self.egress(settings));
        self.add_processes(&mut policy.capabilities, table, grants, hosts)?;
        Ok(policy)
    }

    /// Adds the index of the memory, and the model for its embeddings.
    fn with_memory(&self, mut policy: PluginGrants) -> PluginGrants {
        let documents = Arc::new(memory(&self.config, &self.folders));
        let index = IndexGrant { documents, is_derived: false, vectors: None };
        policy.capabilities.index = Some(index);
        let model = self.embeddings(&self.config.values.tools.memory.embeddings);
        policy.capabilities.embeddings = Some(model);
        policy
    }

    /// Adds what code search needs to store its index and to update it: the index, the model for
    /// its embeddings, and time for the plugin and for the parsers, which are parts of the plugin.
    fn with_code_index(&self, mut policy: PluginGrants) -> PluginGrants {
        let settings = &self.config.values.index;
        let bytes = settings.max_mib.get().saturating_mul(MIB);
        let quota = IndexQuota { bytes, documents: bytes / MIN_CODE_DOCUMENT };
        // The plugin can create the index again from the code.
        let is_derived = true;
        let folder = self.folders.data.join(INDEXES);
        let documents = Arc::new(DocumentIndex::named(folder, CODE, quota, is_derived));
        let vectors = self.providers.vector_database.clone();
        policy.capabilities.index = Some(IndexGrant { documents, is_derived, vectors });
        policy.capabilities.embeddings = Some(self.embeddings(&settings.embeddings));

        let update_time = Duration::from_secs(settings.update_secs.get());
        policy.limits.cpu += update_time;
        // The parsers run on all processors at the same time. Their limit counts the time of all
        // processors together, so it is the update time multiplied by the number of processors.
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let parallel_parsers = u32::try_from(processors).unwrap_or(1);
        let parser_time = update_time.saturating_mul(parallel_parsers);
        policy.capabilities.parts = Some(parser_time);
        let plugin_settings = json!({
            "max_files": settings.max_files.get(),
            "update_secs": settings.update_secs.get(),
            "lsp": self.config.values.tools.code.lsp,
        });
        if let Value::Object(plugin_settings) = plugin_settings {
            policy.config = PluginConfig::new(plugin_settings).into();
        }
        policy
    }

    /// Adds the language servers of code search. With disabled language servers, code search starts
    /// no program, and all its calls only read.
    fn with_language_servers(&self, mut policy: PluginGrants) -> Result<PluginGrants, HostError> {
        let settings = &self.config.values.tools.code.lsp;
        let mut grants = self.shell_grants()?;
        grants.judged = settings.enabled;
        grants.services = MAX_LANGUAGE_SERVERS;
        // Only the user chooses the commands of language servers, in the configuration.
        grants.judged_services = settings.enabled;
        grants.shell = false;
        grants.network = NetworkGrant::Deny;
        self.add_processes(&mut policy.capabilities, "tools.shell", grants, None)?;
        if !settings.enabled {
            return Ok(PluginGrants { read_only: true, only_reads: true, ..policy });
        }
        let mut files = self.config.built_in_files(&self.folders, &self.directory)?;
        self.add_readable(&mut files);
        policy.files = self.open_any(read_only(files))?;
        // A call may wait for a language server in addition to its own work.
        let call_time = policy.limits.call + Duration::from_secs(settings.timeout.get());
        policy.limits.call = call_time.min(policy.limits.max_call);
        Ok(policy)
    }

    fn shell_grants(&self) -> Result<ProcessGrants, HostError> {
        if let Some(grants) = self.shell_grants.get() {
            return Ok(grants.clone());
        }
        let grants = self.config.processes_of_shell(&self.folders, &self.directory)?;
        Ok(self.shell_grants.get_or_init(|| grants).clone())
    }

    /// Adds the grants for running compilers and linters. These programs may read the same files as
    /// commands, and the rules for `bash` decide on each program.
    fn with_compilers(
        &self,
        mut policy: PluginGrants,
        table: &str,
    ) -> Result<PluginGrants, HostError> {
        let settings = &self.config.values.tools.diagnostics;
        let mut grants = self.shell_grants()?;
        policy.files = self.open_any(read_only(grants.files.clone()))?;
        // The rules for `bash` decide only if commands are enabled. The programs need no shell.
        grants.judged = grants.shell;
        grants.shell = false;
        grants.network = NetworkGrant::Deny;
        self.add_processes(&mut policy.capabilities, table, grants, None)?;

        let stores = self.folders.data.join(STORES);
        let store = Store::named(stores, DIAGNOSTICS, DIAGNOSTICS_QUOTA);
        policy.capabilities.store = Some(Arc::new(store));
        if let Ok(Value::Object(plugin_settings)) = serde_json::to_value(settings) {
            policy.config = PluginConfig::new(plugin_settings).into();
        }
        let timeout = Duration::from_secs(settings.timeout.get());
        policy.limits.call = timeout.min(policy.limits.max_call);
        Ok(policy)
    }

    /// Adds the [`readable`](Self::readable) folders that aren't granted yet. Tools without any
    /// grant are disabled and get no folders.
    fn add_readable(&self, files: &mut FileGrants) {
        let Some(first) = files.grants.first() else { return };
        // A denial in an added folder must name the place of the configured list.
        let place = first.place.clone();
        let mut added = Vec::new();
        for path in &self.readable {
            let is_granted = files.grants.iter().any(|grant| path.starts_with(&grant.path));
            if is_granted {
                continue;
            }
            added.push(Grant { place: place.clone(), ..self.config.grant_of_skills(path) });
        }
        files.grants.extend(added);
    }

    /// Returns the file of the user's filter rules.
    pub fn filter_rules_path(&self) -> PathBuf {
        self.config.filter_rules_path(&self.folders, &self.directory)
    }

    /// Returns grants with files and limits, and without capabilities. `table` is the configuration
    /// table of the plugin or tools.
    pub(super) fn policy(
        &self,
        table: &str,
        files: FileGrants,
        limits: config::Limits,
    ) -> Result<PluginGrants, HostError> {
        let mut call_limits = self.limits(limits);
        // Failures by a limit name the plugin's own table of limits.
        if table.starts_with("plugins.") {
            call_limits.table = self.config.own_table(&format!("{table}.limits")).into();
        }
        Ok(PluginGrants {
            files: self.open_any(files)?,
            working_directory: Some(self.directory.clone()),
            limits: call_limits,
            table: self.config.own_table(table).into(),
            ..PluginGrants::default()
        })
    }

    pub(super) fn egress(&self, settings: Settings) -> Arc<Egress> {
        Arc::new(Egress::new(with_process_network(settings, &self.network)))
    }

    fn open(&self, files: FileGrants) -> Result<Grants, HostError> {
        open(files, self.protected.clone())
    }

    /// Opens the granted directories. Returns `None` if no directory is granted.
    fn open_any(&self, files: FileGrants) -> Result<Option<Arc<Grants>>, HostError> {
        if files.grants.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.open(files)?)))
    }

    /// Adds the processes of a plugin, including programs that keep running after a call. `hosts`
    /// are hosts that processes without the network may reach.
    pub(super) fn add_processes(
        &self,
        capabilities: &mut CapabilityGrants,
        table: &str,
        grants: ProcessGrants,
        hosts: Option<Arc<Egress>>,
    ) -> Result<(), HostError> {
        let ProcessGrants {
            files,
            extra_trees: also,
            hidden: also_hidden,
            sockets,
            programs,
            judged,
            services,
            judged_services,
            shell,
            network,
            sandbox,
            limits,
            environment,
            home,
            context,
        } = grants;
        let advisor =
            PluginAdvisor { gate: Arc::clone(&self.gate), sandbox: SandboxAdvisor { context } };
        let max_services = usize::try_from(services).unwrap_or_default();
        if max_services > 0 {
            // The changes of a program after its call can't be undone, so the program may only
            // read.
            let files = read_only(files.clone());
            let mut also = also.clone();
            also.iter_mut().for_each(|tree| tree.access = TreeAccess::Read);
            let places = Places {
                grants: Arc::new(self.open(files)?),
                also,
                also_hidden: also_hidden.clone(),
                sockets: Vec::new(),
                sandbox,
                limits,
                home: home.clone(),
                helper: self.helper.clone(),
                known: RememberedPlaces::default(),
            };
            capabilities.service =
                Some(Arc::new(PluginServices::new(max_services, judged_services, places)));
        }
        let places = Places {
            grants: Arc::new(self.open(files)?),
            also,
            also_hidden,
            sockets,
            sandbox,
            limits,
            home,
            helper: self.helper.clone(),
            known: RememberedPlaces::default(),
        };
        capabilities.process = Some(Arc::new(PluginProcesses {
            programs,
            judged,
            shell,
            network: network == NetworkGrant::Allow,
            hosts: hosts.map(|egress| Arc::new(HostAccess::new(egress))),
            places,
            environment,
            table: self.config.own_table(table).into(),
            advisor: Box::new(advisor),
        }));
        Ok(())
    }

    /// Returns the limits of calls for the runtime.
    pub fn limits(&self, limits: config::Limits) -> Limits {
        let tools = &self.config.values.tools;
        let defaults = Limits::default();
        let result = mebibytes(limits.result_mib.get());
        // The host must be able to copy a whole answer and the data around it.
        let answer_with_data = result.saturating_mul(2);
        let host_allocation = defaults.host_allocation.max(answer_with_data);
        Limits {
            call: tools.call_time(),
            max_call: tools.max_call_time(),
            cpu: Duration::from_secs(limits.cpu_secs.get()),
            memory: mebibytes(limits.memory_mib.get()),
            result,
            host_allocation,
            written: limits.written_mib.get().saturating_mul(MIB),
            handles: usize::try_from(limits.handles.get()).unwrap_or(defaults.handles),
            table: self.config.own_table("tools.limits").into(),
            ..defaults
        }
    }

    /// Returns the plugins with a configured path.
    pub fn named(&self) -> Vec<(String, PathBuf)> {
        let mut named = Vec::new();
        for name in self.config.values.plugins.keys() {
            if let Some(path) = self.config.plugin_path(name, &self.folders, &self.directory) {
                named.push((name.clone(), path));
            }
        }
        named
    }

    /// Refuses a component if its digest isn't the configured digest.
    pub(super) fn check_digest(&self, name: &str, digest: &str) -> Result<(), HostError> {
        let Some(plugin) = self.config.values.plugins.get(name) else { return Ok(()) };
        let expected = plugin.digest.as_str();
        let allows_any_digest = expected.is_empty();
        if allows_any_digest || expected == digest {
            return Ok(());
        }
        let table = self.config.own_table(&format!("plugins.{name}")).name;
        let reason = format!("the digest is {digest}, but `digest` in {table} is {expected}");
        Err(HostError::Load { plugin: name.to_owned(), reason })
    }

    pub(super) fn replaced_by(&self, name: &str) -> Option<&str> {
        let replaced = self.config.values.plugins.get(name)?.replaces.as_str();
        if replaced.is_empty() { None } else { Some(replaced) }
    }

    /// Checks whether another plugin replaces a built-in plugin. The built-in plugin stays disabled
    /// even if its replacement fails to load.
    pub fn is_replaced(&self, builtin: &str) -> bool {
        self.config.values.plugins.values().any(|plugin| plugin.replaces == builtin)
    }

    /// Checks that each `replaces` names a different built-in plugin.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if a `replaces` is invalid.
    pub fn check_replacements(&self, builtins: &[Builtin]) -> Result<(), HostError> {
        let builtin_names: Vec<&str> = builtins.iter().map(|builtin| builtin.name).collect();
        let mut replacements: HashMap<&str, &str> = HashMap::new();
        for name in self.config.values.plugins.keys() {
            let Some(replaced) = self.replaced_by(name) else { continue };
            let source = self.config.source(&format!("plugins.{name}.replaces"));
            if !builtin_names.contains(&replaced) {
                let available = if builtin_names.is_empty() {
                    "this program has no built-in plugins".to_owned()
                } else {
                    format!("use one of: {}", builtin_names.join(", "))
                };
                let message = format!("`replaces` doesn't name a built-in plugin; {available}");
                return Err(HostError::Config(Problem::new(source, message).to_string()));
            }
            if let Some(other) = replacements.insert(replaced, name) {
                let message = format!("[plugins.{other}] already replaces `{replaced}`");
                return Err(HostError::Config(Problem::new(source, message).to_string()));
            }
        }
        Ok(())
    }

    /// Returns the plugin folder.
    pub fn folder(&self) -> PathBuf {
        self.config.plugin_folder(&self.folders, &self.directory)
    }
}

/// Returns the configuration of the runtime.
pub fn runtime_config(
    config: &Config,
    folders: Option<&Folders>,
    helper: Option<PathBuf>,
) -> RuntimeConfig {
    let concurrency = usize::try_from(config.values.tools.max_concurrent.get()).unwrap_or(0);
    RuntimeConfig {
        concurrency,
        memory: most_memory(config),
        keep_ready: Duration::from_secs(config.values.tools.keep_ready.get()),
        cache: folders.map(compiled_folder),
        helper,
    }
}

/// Returns the folder for compiled code.
pub fn compiled_folder(folders: &Folders) -> PathBuf {
    folders.operator_cache().join("compiled")
}

/// Returns the largest memory limit of all plugins in bytes, which is the size of the pool's slots.
pub fn most_memory(config: &Config) -> usize {
    let mut most = config.values.tools.limits.memory_mib.get();
    for name in config.values.plugins.keys() {
        most = most.max(config.plugin_limits(name).memory_mib.get());
    }
    mebibytes(most)
}

fn read_only(mut files: FileGrants) -> FileGrants {
    files.grants.iter_mut().for_each(|grant| grant.access = Access::Read);
    files
}

fn mebibytes(count: u64) -> usize {
    usize::try_from(count.saturating_mul(MIB)).unwrap_or(usize::MAX)
}
