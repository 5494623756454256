//! The grants and limits of each plugin: from the configuration to the runtime's policy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_config::{
    self as config, FilePolicy, Folders, InstanceLifetime, Loaded, NetworkGrant, Problem,
    ProcessGrants,
};
use berth_contract::HostError;
use berth_egress::{Egress, Network, Settings};
use berth_policy::files::{Grant, OwnFolder};
use berth_runtime::{Builtin, Limits, PluginPolicy, ProcessPolicy, RuntimeConfig};
use berth_store::{Quota, Store};
use berth_system::files::Grants;
use berth_system::process::{Places, RememberedPlaces};

use super::advice::SandboxAdvisor;
use super::advisor::{CommandGate, PluginAdvisor};

const MIB: u64 = 1 << 20;

/// The built-in plugin that runs commands.
const SHELL: &str = "shell";

/// The built-in plugin that makes requests.
const WEB: &str = "web";

/// The built-in plugin that makes tasks.
const SCHEDULER: &str = "scheduler";

/// Makes the policy of each plugin when it is loaded.
pub struct Policies {
    /// The configuration.
    pub config: Loaded,
    /// Berth's own folders.
    pub folders: Folders,
    /// The real path of the working directory.
    pub directory: PathBuf,
    /// Folders that the built-in tools for files and commands may read, whatever is granted.
    pub readable: Vec<PathBuf>,
    /// Berth's own files and folders, which no grant includes.
    own: Vec<OwnFolder>,
    /// Decides on the commands of processes.
    gate: Arc<dyn CommandGate>,
    /// The program of the confining helper process.
    helper: Option<PathBuf>,
    /// Network parts that all plugins share and that aren't in the configuration.
    network: Network,
}

/// Where the server `name` of `[mcp.servers]` runs, whether it reaches the network, and its
/// environment. `None`: the configuration has no such server.
///
/// # Errors
///
/// [`HostError::Config`] for a grant that isn't an existing directory.
pub fn server_places(
    config: &Loaded,
    folders: &Folders,
    directory: &Path,
    helper: Option<PathBuf>,
    name: &str,
) -> Result<Option<ServerPlaces>, HostError> {
    let Some(grants) = config.processes_of_server(name, folders, directory)? else {
        return Ok(None);
    };
    let ProcessGrants { files, extra_trees, hidden, sandbox, limits, environment, home, .. } =
        grants;
    let places = Places {
        grants: Arc::new(open(files, config.own(folders, directory))?),
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
    Ok(Some(ServerPlaces { places, network, environment }))
}

/// Where a server runs.
#[derive(Debug)]
pub struct ServerPlaces {
    /// What it sees and may change.
    pub places: Places,
    /// Whether it reaches the network.
    pub network: bool,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
}

fn open(files: FilePolicy, own: Vec<OwnFolder>) -> Result<Grants, HostError> {
    let FilePolicy { grants, deny_read, allow_read, deny_write } = files;
    let globs =
        |rules: berth_policy::files::FileRules| rules.with_globs(deny_read, allow_read, deny_write);
    Grants::open(grants, own, globs).map_err(|error| HostError::Config(error.to_string()))
}

impl Policies {
    /// `files`: components that aren't named in the configuration. Tools may not write to them,
    /// since they are code that the host loads the next time.
    pub fn new(
        config: Loaded,
        folders: Folders,
        directory: PathBuf,
        files: &[PathBuf],
        gate: Arc<dyn CommandGate>,
        helper: Option<PathBuf>,
        network: Network,
    ) -> Self {
        let mut own = config.own(&folders, &directory);
        own.extend(
            files.iter().map(|path| OwnFolder { path: directory.join(path), secret: false }),
        );
        let readable = Vec::new();
        Self { config, folders, directory, readable, own, gate, helper, network }
    }

    /// The policy of a built-in plugin.
    pub fn built_in(&self, name: &str) -> Result<PluginPolicy, HostError> {
        if name == SHELL {
            // It is always loaded. If it is disabled or may start nothing, its calls say so.
            let mut grants = self.config.processes_of_shell(&self.folders, &self.directory)?;
            self.add_readable(&mut grants.files);
            let table = "tools.shell";
            let policy =
                self.policy(table, grants.files.clone(), self.config.config.tools.limits)?;
            return Ok(PluginPolicy { process: Some(self.processes(table, grants)?), ..policy });
        }
        if name == WEB {
            // It is always loaded, like the shell.
            let egress = self.config.egress_of_web(&self.folders, &self.directory)?;
            let policy =
                self.policy("tools.web", FilePolicy::default(), self.config.config.tools.limits)?;
            return Ok(PluginPolicy { egress: Some(self.egress(egress)), ..policy });
        }
        if name == SCHEDULER {
            let policy = self.policy(
                "tools.scheduler",
                FilePolicy::default(),
                self.config.config.tools.limits,
            )?;
            return Ok(PluginPolicy { schedule: true, ..policy });
        }
        let mut files = self.config.built_in_files(&self.folders, &self.directory)?;
        self.add_readable(&mut files);
        self.policy("tools.file", files, self.config.config.tools.limits)
    }

    /// Adds the readable folders to grants. Tools that are disabled are granted nothing, and
    /// nothing becomes narrower.
    fn add_readable(&self, files: &mut FilePolicy) {
        let is_granted =
            |path: &PathBuf| files.grants.iter().any(|grant| path.starts_with(&grant.path));
        let Some(first) = files.grants.first() else { return };
        // What is outside of all grants is refused for want of one of the list, not of a skill.
        let place = first.place.clone();
        let added: Vec<&PathBuf> = self.readable.iter().filter(|path| !is_granted(path)).collect();
        files.grants.extend(
            added
                .into_iter()
                .map(|path| Grant { place: place.clone(), ..self.config.grant_of_skills(path) }),
        );
    }

    /// The file of the operator's rules for filters.
    pub fn filter_rules_path(&self) -> PathBuf {
        self.config.filter_rules_path(&self.folders, &self.directory)
    }

    /// The policy of a third-party plugin. A grant belongs to a name.
    pub fn third_party(&self, name: &str) -> Result<PluginPolicy, HostError> {
        let files = self.config.plugin_files(name, &self.folders, &self.directory)?;
        let table = format!("plugins.{name}");
        let policy = self.policy(&table, files, self.config.plugin_limits(name))?;
        let process = self.config.processes_of_plugin(name, &self.folders, &self.directory)?;
        let process = process.map(|grants| self.processes(&table, grants)).transpose()?;
        let egress = self.config.egress_of_plugin(name, &self.folders, &self.directory)?;
        let egress = egress.map(|settings| self.egress(settings));
        let command = self.config.command_of_plugin(name)?.map(Arc::new);
        let store = self.store(name);
        let table = self.config.config.plugins.get(name);
        let session = table.is_some_and(|plugin| plugin.instance == InstanceLifetime::Session);
        let schedule = table.is_some_and(|plugin| plugin.schedule_tasks.get() > 0);
        let policy = PluginPolicy { process, egress, command, store, schedule, session, ..policy };
        Ok(PluginPolicy { replaces_built_in: self.replaced_by(name).is_some(), ..policy })
    }

    fn policy(
        &self,
        table: &str,
        files: FilePolicy,
        limits: config::Limits,
    ) -> Result<PluginPolicy, HostError> {
        let grants = if files.grants.is_empty() { None } else { Some(Arc::new(self.open(files)?)) };
        let mut limits = self.limits(limits);
        if table.starts_with("plugins.") {
            limits.table = self.config.own_table(&format!("{table}.limits")).into();
        }
        Ok(PluginPolicy {
            files: grants,
            working_directory: Some(self.directory.clone()),
            limits,
            table: self.config.own_table(table).into(),
            ..PluginPolicy::default()
        })
    }

    /// What a plugin may keep between its calls.
    fn store(&self, name: &str) -> Option<Arc<Store>> {
        let plugin = self.config.config.plugins.get(name)?;
        let bytes = plugin.store_mib.get().saturating_mul(MIB);
        let quota = Quota { bytes, keys: plugin.store_keys.get() };
        (bytes > 0).then(|| Arc::new(Store::named(self.folders.data.join("stores"), name, quota)))
    }

    /// The egress of a plugin's requests.
    fn egress(&self, mut settings: Settings) -> Arc<Egress> {
        let Network { resolver, listening, trust, .. } = self.network.clone();
        settings.network = Network { resolver, listening, trust, ..settings.network };
        Arc::new(Egress::new(settings))
    }

    fn open(&self, files: FilePolicy) -> Result<Grants, HostError> {
        open(files, self.own.clone())
    }

    /// The policy for the processes of a plugin.
    fn processes(
        &self,
        table: &str,
        grants: ProcessGrants,
    ) -> Result<Arc<ProcessPolicy>, HostError> {
        let ProcessGrants {
            files,
            extra_trees: also,
            hidden: also_hidden,
            sockets,
            programs,
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
        Ok(Arc::new(ProcessPolicy {
            programs,
            shell,
            network: network == NetworkGrant::Allow,
            places,
            environment,
            table: self.config.own_table(table).into(),
            advisor: Box::new(advisor),
        }))
    }

    /// The limits of calls, in the runtime's form.
    pub fn limits(&self, limits: config::Limits) -> Limits {
        let tools = &self.config.config.tools;
        let defaults = Limits::default();
        Limits {
            call: tools.call_time(),
            max_call: tools.max_call_time(),
            cpu: std::time::Duration::from_secs(limits.cpu_secs.get()),
            memory: mebibytes(limits.memory_mib.get()),
            result: mebibytes(limits.result_mib.get()),
            // The host has to be able to copy a whole answer and the data around it.
            host_allocation: defaults
                .host_allocation
                .max(mebibytes(limits.result_mib.get()).saturating_mul(2)),
            written: limits.written_mib.get().saturating_mul(MIB),
            handles: usize::try_from(limits.handles.get()).unwrap_or(defaults.handles),
            table: self.config.own_table("tools.limits").into(),
            ..defaults
        }
    }

    /// The plugins with a file in the configuration: names and files.
    pub fn named(&self) -> Vec<(String, PathBuf)> {
        let names = self.config.config.plugins.keys();
        names
            .filter_map(|name| {
                Some((name.clone(), self.config.plugin_path(name, &self.folders, &self.directory)?))
            })
            .collect()
    }

    /// Refuses a component that isn't the one that the configuration names.
    pub(super) fn check_digest(&self, name: &str, digest: &str) -> Result<(), HostError> {
        let wanted = self.config.config.plugins.get(name).map(|plugin| plugin.digest.as_str());
        match wanted.filter(|wanted| !wanted.is_empty() && *wanted != digest) {
            None => Ok(()),
            Some(wanted) => Err(HostError::Load {
                plugin: name.to_owned(),
                reason: format!(
                    "its digest is {digest}, and `digest` in {} names {wanted}",
                    self.config.own_table(&format!("plugins.{name}")).name
                ),
            }),
        }
    }

    /// The built-in plugin that a plugin replaces.
    pub(super) fn replaced_by(&self, name: &str) -> Option<&str> {
        Some(self.config.config.plugins.get(name)?.replaces.as_str())
            .filter(|replaced| !replaced.is_empty())
    }

    /// Whether another plugin replaces a built-in one. That plugin need not load: a built-in plugin
    /// that the operator replaced must not come back by accident.
    pub fn is_replaced(&self, builtin: &str) -> bool {
        self.config.config.plugins.values().any(|plugin| plugin.replaces == builtin)
    }

    /// Checks that each `replaces` names a built-in plugin, and each a different one.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] with the place of the wrong one.
    pub fn check_replacements(&self, builtins: &[Builtin]) -> Result<(), HostError> {
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for name in self.config.config.plugins.keys() {
            let Some(replaced) = self.replaced_by(name) else { continue };
            let source = self.config.source(&format!("plugins.{name}.replaces"));
            let fail =
                |message: String| Err(HostError::Config(Problem::new(source, message).to_string()));
            if !builtins.iter().any(|builtin| builtin.name == replaced) {
                let names: Vec<&str> = builtins.iter().map(|builtin| builtin.name).collect();
                let available = if names.is_empty() {
                    "this program has no built-in plugins".to_owned()
                } else {
                    format!("use one of: {}", names.join(", "))
                };
                return fail(format!("`replaces` doesn't name a built-in plugin; {available}"));
            }
            if let Some((_, other)) = seen.iter().find(|(known, _)| *known == replaced) {
                return fail(format!("[plugins.{other}] already replaces `{replaced}`"));
            }
            seen.push((replaced, name));
        }
        Ok(())
    }

    /// The folder whose plugins are loaded.
    pub fn folder(&self) -> PathBuf {
        self.config.plugin_folder(&self.folders, &self.directory)
    }
}

/// The configuration of the runtime.
pub fn runtime_config(
    config: &Loaded,
    folders: Option<&Folders>,
    helper: Option<PathBuf>,
) -> RuntimeConfig {
    RuntimeConfig {
        concurrency: usize::try_from(config.config.tools.max_concurrent.get()).unwrap_or(0),
        memory: most_memory(config),
        keep_ready: std::time::Duration::from_secs(config.config.tools.keep_ready.get()),
        cache: folders.map(compiled_folder),
        helper,
    }
}

/// The folder for compiled code.
pub fn compiled_folder(folders: &Folders) -> PathBuf {
    folders.cache.join("compiled")
}

/// The largest memory limit of all plugins, in bytes: the size of the pool's slots.
pub fn most_memory(config: &Loaded) -> usize {
    let named = config.config.plugins.keys().map(|name| config.plugin_limits(name));
    let all = std::iter::once(config.config.tools.limits).chain(named);
    all.map(|limits| mebibytes(limits.memory_mib.get())).max().unwrap_or_default()
}

fn mebibytes(count: u64) -> usize {
    usize::try_from(count.saturating_mul(MIB)).unwrap_or(usize::MAX)
}
