//! Converts the configuration to the runtime's policy for each plugin: its grants and limits.

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
use toolhold_net::{Egress, Network, Settings};
use toolhold_policy::files::{Grant, OwnFolder};
use toolhold_store::index::{DocumentIndex, IndexQuota};
use toolhold_store::{Quota, Store};
use toolhold_system::confine::TreeAccess;
use toolhold_system::files::{Grants, with_its_links};
use toolhold_system::process::{Places, RememberedPlaces};

use super::advice::SandboxAdvisor;
use super::advisor::{CommandGate, PluginAdvisor};

pub(super) const MIB: u64 = 1 << 20;

/// The folder in the data folder for the stores of plugins. `INDEXES` is the folder for the
/// documents that they search.
pub(super) const STORES: &str = "stores";
pub(super) const INDEXES: &str = "indexes";

/// Returns the documents of the built-in memory, which `toolhold memory` also reads.
pub fn memory(config: &Config, folders: &Folders) -> DocumentIndex {
    let memory = &config.values.tools.memory;
    let quota = IndexQuota {
        bytes: memory.index_mib.get().saturating_mul(MIB),
        documents: memory.index_documents(),
    };
    DocumentIndex::named(folders.data.join(INDEXES), MEMORY, quota, false)
}

/// The folder of the memory in [`INDEXES`], and the folder of the code index.
const MEMORY: &str = "memory";
const CODE: &str = "code";

/// Maximum number of language servers in one session.
const LANGUAGE_SERVERS: u64 = 4;

/// The store of the last answers of compilers and linters.
const DIAGNOSTICS: &str = "diagnostics";
const DIAGNOSTICS_KEPT: Quota = Quota { bytes: 64 * MIB, keys: 10_000 };

/// Creates the policy of each plugin when it is loaded.
pub struct GrantResolver {
    /// The configuration.
    pub config: Config,
    /// Toolhold's own folders.
    pub folders: Folders,
    /// The real path of the working directory.
    pub directory: PathBuf,
    /// Folders that the built-in tools for files and commands may read without a grant.
    pub readable: Vec<PathBuf>,
    /// The models and databases that the program provides for capabilities.
    pub providers: CapabilityProviders,
    /// Toolhold's own files and folders, which no grant includes.
    own: Vec<OwnFolder>,
    /// The grants for the commands of the built-in shell. Looking them up reads many links, so this
    /// is done once.
    shell: OnceLock<ProcessGrants>,
    /// The grants for the built-in file tools, which are also looked up once.
    file: OnceLock<Option<Arc<Grants>>>,
    /// Decides on the commands of processes.
    gate: Arc<dyn CommandGate>,
    /// The program of the confining helper process.
    helper: Option<PathBuf>,
    /// Network parts that all plugins share and that aren't in the configuration.
    network: Network,
}

/// Returns where the server `name` of `[mcp.servers]` runs, whether it may use the network, and its
/// environment. Returns `None` if the configuration has no such server.
///
/// # Errors
///
/// [`HostError::Config`] if a granted directory doesn't exist.
pub fn server_places(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    helper: Option<PathBuf>,
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
    let own = config.protected(folders, directory);
    let places = Places {
        grants: Arc::new(open(files, own)?),
        also: extra_trees,
        also_hidden: hidden,
        sockets: Vec::new(),
        sandbox,
        limits,
        home,
        helper,
        known: RememberedPlaces::default(),
    };
    let network = grants.network == NetworkGrant::Allow;
    Ok(Some(ServerPlaces { places, network, environment, advisor: SandboxAdvisor { context } }))
}

/// Where a server runs.
#[derive(Debug)]
pub struct ServerPlaces {
    /// The places that the server sees and may change.
    pub places: Places,
    /// Whether the server may use the network.
    pub network: bool,
    /// The whole environment of the server.
    pub environment: Vec<(String, String)>,
    /// The advisor on failures of which the sandbox may be the cause.
    pub advisor: SandboxAdvisor,
}

fn open(files: FileGrants, own: Vec<OwnFolder>) -> Result<Grants, HostError> {
    let FileGrants { grants, deny_read, allow_read, deny_write } = files;
    Grants::open(grants, own, |rules| rules.with_globs(deny_read, allow_read, deny_write))
        .map_err(|error| HostError::Config(error.to_string()))
}

impl GrantResolver {
    /// Creates a resolver. `files` has the components that the configuration doesn't name. Tools
    /// may not write to these components, because the host loads them at its next start.
    pub fn new(
        config: Config,
        folders: Folders,
        directory: PathBuf,
        files: &[PathBuf],
        gate: Arc<dyn CommandGate>,
        helper: Option<PathBuf>,
        network: Network,
    ) -> Self {
        // Looked up once, since that reads many links.
        let files = files
            .iter()
            .map(|path| OwnFolder { path: directory.join(path), secret: false })
            .flat_map(with_its_links);
        let own = config.protected(&folders, &directory).into_iter().chain(files).collect();
        Self {
            config,
            folders,
            directory,
            readable: Vec::new(),
            providers: CapabilityProviders::default(),
            own,
            shell: OnceLock::new(),
            file: OnceLock::new(),
            gate,
            helper,
            network,
        }
    }

    /// Returns the policy of a built-in plugin. A plugin that isn't in the table gets no grants.
    pub fn built_in(&self, name: &str) -> Result<PluginGrants, HostError> {
        let plugin = BuiltInPlugin::named(name);
        let table = plugin.map_or("tools", |plugin| plugin.table);
        let mut policy =
            self.policy(table, FileGrants::default(), self.config.values.tools.limits)?;
        if let Some(plugin) = plugin {
            for grant in plugin.grants {
                policy = self.with_grant(policy, table, *grant)?;
            }
        }
        Ok(policy)
    }

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

    /// Returns the files of the file tools, which code search shares.
    fn file_grants(&self) -> Result<Option<Arc<Grants>>, HostError> {
        if let Some(grants) = self.file.get() {
            return Ok(grants.clone());
        }
        let mut files = self.config.built_in_files(&self.folders, &self.directory)?;
        self.add_readable(&mut files);
        let grants = self.opened(files)?;
        Ok(self.file.get_or_init(|| grants).clone())
    }

    /// Adds commands. If commands are disabled or no program is allowed, each call fails with the
    /// reason.
    fn with_commands(
        &self,
        mut policy: PluginGrants,
        table: &str,
    ) -> Result<PluginGrants, HostError> {
        let mut grants = self.shell_grants()?;
        self.add_readable(&mut grants.files);
        policy.files = self.opened(grants.files.clone())?;
        self.add_processes(&mut policy.capabilities, table, grants)?;
        Ok(policy)
    }

    /// Adds the documents of the memory.
    fn with_memory(&self, mut policy: PluginGrants) -> PluginGrants {
        let documents = Arc::new(memory(&self.config, &self.folders));
        policy.capabilities.index =
            Some(IndexGrant { documents, is_derived: false, vectors: None });
        let model = self.embeddings(&self.config.values.tools.memory.embeddings);
        policy.capabilities.embeddings = Some(model);
        policy
    }

    /// Adds the code index, and the time for updating it.
    fn with_code_index(&self, mut policy: PluginGrants) -> PluginGrants {
        let settings = &self.config.values.index;
        let bytes = settings.max_mib.get().saturating_mul(MIB);
        // The documents of code have about a KiB each.
        let quota = IndexQuota { bytes, documents: bytes / 512 };
        let documents =
            Arc::new(DocumentIndex::named(self.folders.data.join(INDEXES), CODE, quota, true));
        let vectors = self.providers.vector_database.clone();
        policy.capabilities.index = Some(IndexGrant { documents, is_derived: true, vectors });
        policy.capabilities.embeddings = Some(self.embeddings(&settings.embeddings));
        let time = Duration::from_secs(settings.update_secs.get());
        policy.limits.cpu += time;
        // The parsers run on all processors.
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let processors = u32::try_from(processors).unwrap_or(1);
        policy.capabilities.parts = Some(time.saturating_mul(processors));
        let table = json!({
            "max_files": settings.max_files.get(),
            "update_secs": settings.update_secs.get(),
            "lsp": self.config.values.tools.code.lsp,
        });
        let config = table.as_object().cloned().unwrap_or_default();
        PluginGrants { config: PluginConfig::new(config).into(), ..policy }
    }

    /// Adds the language servers that code search may start. If they are disabled, code search
    /// starts no program, and all its calls only read. Code search never writes files.
    fn with_language_servers(&self, mut policy: PluginGrants) -> Result<PluginGrants, HostError> {
        let settings = &self.config.values.tools.code.lsp;
        let mut grants = self.shell_grants()?;
        grants.judged = settings.enabled;
        grants.services = LANGUAGE_SERVERS;
        // The configuration sets the commands of language servers.
        grants.judged_services = settings.enabled;
        grants.shell = false;
        grants.network = NetworkGrant::Deny;
        self.add_processes(&mut policy.capabilities, "tools.shell", grants)?;
        if !settings.enabled {
            return Ok(PluginGrants { read_only: true, only_reads: true, ..policy });
        }
        let mut files = self.config.built_in_files(&self.folders, &self.directory)?;
        self.add_readable(&mut files);
        policy.files = self.opened(read_only(files))?;
        let time = policy.limits.call + Duration::from_secs(settings.timeout.get());
        policy.limits.call = time.min(policy.limits.max_call);
        Ok(policy)
    }

    fn shell_grants(&self) -> Result<ProcessGrants, HostError> {
        if let Some(grants) = self.shell.get() {
            return Ok(grants.clone());
        }
        let grants = self.config.processes_of_shell(&self.folders, &self.directory)?;
        Ok(self.shell.get_or_init(|| grants).clone())
    }

    /// Adds compilers and linters. They may read the files that commands may read, and start the
    /// programs that commands may start.
    fn with_compilers(
        &self,
        mut policy: PluginGrants,
        table: &str,
    ) -> Result<PluginGrants, HostError> {
        let settings = &self.config.values.tools.diagnostics;
        let mut grants = self.shell_grants()?;
        policy.files = self.opened(read_only(grants.files.clone()))?;
        grants.judged = grants.shell;
        grants.shell = false;
        // The access to the network is decided for each command.
        grants.network = NetworkGrant::Deny;
        self.add_processes(&mut policy.capabilities, table, grants)?;
        let stores = self.folders.data.join(STORES);
        let store = Store::named(stores, DIAGNOSTICS, DIAGNOSTICS_KEPT);
        policy.capabilities.store = Some(Arc::new(store));
        if let Ok(Value::Object(config)) = serde_json::to_value(settings) {
            policy.config = PluginConfig::new(config).into();
        }
        policy.limits.call =
            Duration::from_secs(settings.timeout.get()).min(policy.limits.max_call);
        Ok(policy)
    }

    /// Adds the readable folders that aren't granted yet. Without any grant, the tools are
    /// disabled, and nothing is added.
    fn add_readable(&self, files: &mut FileGrants) {
        let Some(first) = files.grants.first() else { return };
        // A denial names the place of the operator's list, also for the added folders.
        let place = first.place.clone();
        let mut added = Vec::new();
        for path in &self.readable {
            if files.grants.iter().any(|grant| path.starts_with(&grant.path)) {
                continue;
            }
            added.push(Grant { place: place.clone(), ..self.config.grant_of_skills(path) });
        }
        files.grants.extend(added);
    }

    /// Returns the file of the operator's rules for filters.
    pub fn filter_rules_path(&self) -> PathBuf {
        self.config.filter_rules_path(&self.folders, &self.directory)
    }

    pub(super) fn policy(
        &self,
        table: &str,
        files: FileGrants,
        limits: config::Limits,
    ) -> Result<PluginGrants, HostError> {
        let mut limits = self.limits(limits);
        if table.starts_with("plugins.") {
            limits.table = self.config.own_table(&format!("{table}.limits")).into();
        }
        Ok(PluginGrants {
            files: self.opened(files)?,
            working_directory: Some(self.directory.clone()),
            limits,
            table: self.config.own_table(table).into(),
            ..PluginGrants::default()
        })
    }

    /// Returns the egress of a plugin's requests.
    pub(super) fn egress(&self, mut settings: Settings) -> Arc<Egress> {
        let Network { resolver, listening, trust, .. } = self.network.clone();
        settings.network = Network { resolver, listening, trust, ..settings.network };
        Arc::new(Egress::new(settings))
    }

    fn open(&self, files: FileGrants) -> Result<Grants, HostError> {
        open(files, self.own.clone())
    }

    /// Opens the granted directories. Returns `None` if no files are granted.
    fn opened(&self, files: FileGrants) -> Result<Option<Arc<Grants>>, HostError> {
        if files.grants.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.open(files)?)))
    }

    /// Adds the processes of a plugin, including those that keep running after a call.
    pub(super) fn add_processes(
        &self,
        capabilities: &mut CapabilityGrants,
        table: &str,
        grants: ProcessGrants,
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
        let most = usize::try_from(services).unwrap_or_default();
        if most > 0 {
            // Changes that services make later couldn't be undone.
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
                Some(Arc::new(PluginServices::new(most, judged_services, places)));
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
            places,
            environment,
            table: self.config.own_table(table).into(),
            advisor: Box::new(advisor),
        }));
        Ok(())
    }

    /// Returns the limits of calls, in the runtime's form.
    pub fn limits(&self, limits: config::Limits) -> Limits {
        let tools = &self.config.values.tools;
        let defaults = Limits::default();
        let result = mebibytes(limits.result_mib.get());
        // The host must be able to copy a whole answer and the data around it.
        let host_allocation = defaults.host_allocation.max(result.saturating_mul(2));
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

    /// Returns the names and files of the plugins that have a file in the configuration.
    pub fn named(&self) -> Vec<(String, PathBuf)> {
        let mut named = Vec::new();
        for name in self.config.values.plugins.keys() {
            if let Some(path) = self.config.plugin_path(name, &self.folders, &self.directory) {
                named.push((name.clone(), path));
            }
        }
        named
    }

    /// Refuses a component if its digest isn't the one in the configuration.
    pub(super) fn check_digest(&self, name: &str, digest: &str) -> Result<(), HostError> {
        let Some(plugin) = self.config.values.plugins.get(name) else { return Ok(()) };
        let expected = plugin.digest.as_str();
        if expected.is_empty() || expected == digest {
            return Ok(());
        }
        let table = self.config.own_table(&format!("plugins.{name}")).name;
        let reason = format!("its digest is {digest}, and `digest` in {table} names {expected}");
        Err(HostError::Load { plugin: name.to_owned(), reason })
    }

    /// Returns the built-in plugin that a plugin replaces.
    pub(super) fn replaced_by(&self, name: &str) -> Option<&str> {
        let replaced = self.config.values.plugins.get(name)?.replaces.as_str();
        if replaced.is_empty() { None } else { Some(replaced) }
    }

    /// Checks whether another plugin replaces a built-in one. The other plugin may fail to load: a
    /// replaced plugin must not return by accident.
    pub fn is_replaced(&self, builtin: &str) -> bool {
        self.config.values.plugins.values().any(|plugin| plugin.replaces == builtin)
    }

    /// Checks that each `replaces` names a different built-in plugin.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] with the place of an invalid `replaces`.
    pub fn check_replacements(&self, builtins: &[Builtin]) -> Result<(), HostError> {
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for name in self.config.values.plugins.keys() {
            let Some(replaced) = self.replaced_by(name) else { continue };
            let source = self.config.source(&format!("plugins.{name}.replaces"));
            if !builtins.iter().any(|builtin| builtin.name == replaced) {
                let names: Vec<&str> = builtins.iter().map(|builtin| builtin.name).collect();
                let available = if names.is_empty() {
                    "this program has no built-in plugins".to_owned()
                } else {
                    format!("use one of: {}", names.join(", "))
                };
                let message = format!("`replaces` doesn't name a built-in plugin; {available}");
                return Err(HostError::Config(Problem::new(source, message).to_string()));
            }
            if let Some((_, other)) = seen.iter().find(|(known, _)| *known == replaced) {
                let message = format!("[plugins.{other}] already replaces `{replaced}`");
                return Err(HostError::Config(Problem::new(source, message).to_string()));
            }
            seen.push((replaced, name));
        }
        Ok(())
    }

    /// Returns the folder whose plugins are loaded.
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
    RuntimeConfig {
        concurrency: usize::try_from(config.values.tools.max_concurrent.get()).unwrap_or(0),
        memory: most_memory(config),
        keep_ready: Duration::from_secs(config.values.tools.keep_ready.get()),
        cache: folders.map(compiled_folder),
        helper,
    }
}

/// Returns the folder for compiled code.
pub fn compiled_folder(folders: &Folders) -> PathBuf {
    folders.cache.join("compiled")
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
