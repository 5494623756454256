//! Builds the grants of processes from the configuration. The processes are commands, programs of
//! plugins, and MCP servers.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use toolhold_contract::HostError;
use toolhold_policy::files::FileRules;
use toolhold_policy::{CommandTemplate, OwnTable, Programs, WrittenPart};
use toolhold_redaction::{self as redaction, Keys};
use toolhold_system::confine::{Limits, Sandbox, Tree};
use toolhold_system::files::real_or_given;

use super::presets::{CREDENTIALS, PRESETS, Preset, Roots, with_all};
use super::resolved::{Resolved, expand, resolve};
use super::tool_hosts::hidden_registries;
use super::{
    AllowedPath, ArgumentPart, Config, FileGrants, Folders, NetworkGrant, PresetName, Problem,
    Problems, SandboxMode, Source, VariableName, variables,
};

/// The files, programs, variables and limits of the processes of one table.
#[derive(Clone, Debug)]
pub struct ProcessGrants {
    /// The granted directories, and the globs for their files.
    pub files: FileGrants,
    /// Existing directories and files that presets grant, by their real paths.
    pub extra_trees: Vec<Tree>,
    /// Files with credentials that are hidden in these directories, by their real paths.
    pub hidden: Vec<PathBuf>,
    /// Sockets to which processes may connect, and folders of such sockets.
    pub sockets: Vec<PathBuf>,
    /// The programs that may be started.
    pub programs: Programs,
    /// Whether other programs may be started if the rules for `bash` allow them.
    pub judged: bool,
    /// The number of programs per session that may keep running after a call.
    pub services: u64,
    /// Whether these programs need no grant if the rules for `bash` allow them.
    pub judged_services: bool,
    /// Whether a shell may run commands.
    pub shell: bool,
    /// Whether the processes may use the network. For a plugin, the value is never
    /// [`NetworkGrant::Ask`].
    pub network: NetworkGrant,
    /// The parts of the sandbox that are required.
    pub sandbox: Sandbox,
    /// The limits of the processes.
    pub limits: Limits,
    /// All environment variables of the processes.
    pub environment: Vec<(String, String)>,
    /// The home directory of the processes, by its real path.
    pub home: Option<PathBuf>,
    /// Data for advice after a failed command.
    pub context: ProcessContext,
}

/// The rules for the processes of one table, for advice after a command has failed.
#[derive(Clone, Debug)]
pub struct ProcessContext {
    /// The table of the configuration.
    pub table: OwnTable,
    /// The kind of the processes.
    pub kind: ProcessKind,
    /// Whether the processes may use the network.
    pub network: NetworkGrant,
    /// The path rules.
    pub rules: FileRules,
    /// The granted directories as written.
    pub allowed: Vec<AllowedPath>,
    /// Directories and files that presets grant.
    pub also: Vec<Tree>,
    /// The paths of presets that aren't enabled, each with the preset's name.
    pub other_presets: Vec<(&'static str, PathBuf)>,
    /// The used presets, as written.
    pub used_presets: Vec<&'static str>,
    /// The paths of credentials. They may be missing.
    pub credentials: Vec<PathBuf>,
    /// The names of the processes' environment variables.
    pub variables: Vec<String>,
    /// The environment variables that are granted by name.
    pub env: Vec<String>,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The directory where relative paths start.
    pub directory: PathBuf,
    /// The limits of the processes.
    pub limits: Limits,
    /// Whether the processes run in a sandbox.
    pub sandboxed: bool,
}

/// The kind of the processes that a table of the configuration is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// Commands of the built-in shell.
    Shell,
    /// Programs of a plugin.
    Plugin,
    /// An upstream server.
    Server,
}

struct ProcessTable<'t> {
    /// The name of the table: `tools.shell`, `plugins.NAME` or `mcp.servers.NAME`.
    name: String,
    kind: ProcessKind,
    network: NetworkGrant,
    allowed: &'t [AllowedPath],
    env: &'t [VariableName],
    presets: &'t [PresetName],
}

/// The `PATH` of processes if the operator's environment has no `PATH`.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// AddressSanitizer traces the program to detect leaks. The sandbox denies tracing, so the program
/// would fail without this variable.
const LEAK_CHECK: (&str, &str) = ("ASAN_OPTIONS", "detect_leaks=0");

/// The `HOME` of processes if the user has no home directory. It is a private, empty folder.
const NO_HOME: &str = "/tmp";

/// Variables of the operator that every process gets, in addition to `LC_*`.
const USUAL: [&str; 5] = ["USER", "LOGNAME", "LANG", "LANGUAGE", "TZ"];

impl Config {
    /// Builds the grants of the commands of the built-in shell. A disabled shell gets no grants.
    /// Creates missing cache directories of presets.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if a granted directory doesn't exist.
    pub fn processes_of_shell(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<ProcessGrants, HostError> {
        let shell = &self.values.tools.shell;
        let files = self.shell_files(folders, working_directory)?;
        let (_, allowed) = self.shell_paths();
        let table = ProcessTable {
            name: "tools.shell".to_owned(),
            kind: ProcessKind::Shell,
            network: shell.network,
            allowed: &allowed,
            env: &shell.env,
            presets: &shell.presets,
        };
        let mut grants = self.processes(files, &table, folders, working_directory);
        grants.shell = shell.enabled;
        Ok(grants)
    }

    /// Builds the path rules of the commands of the built-in shell. Returns the errors of
    /// [`Self::processes_of_shell`].
    pub(crate) fn shell_files(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileGrants, HostError> {
        let (key, paths) = self.shell_paths();
        self.process_files(key, &paths, folders, working_directory)
    }

    /// Returns the granted directories of the built-in shell, with their key.
    fn shell_paths(&self) -> (&'static str, Vec<AllowedPath>) {
        let shell = &self.values.tools.shell;
        if !shell.enabled {
            ("tools.shell.allowed_paths", Vec::new())
        } else if shell.allowed_paths.is_empty() {
            ("tools.file.allowed_paths", self.values.tools.file.granted_paths())
        } else {
            ("tools.shell.allowed_paths", shell.allowed_paths.clone())
        }
    }

    /// Parses the template of a plugin's command. Returns `None` if the plugin has no `command`.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if the template is invalid. Also returns this error if the
    /// plugin has no `command`, but another key that is only for commands.
    pub fn command_of_plugin(&self, name: &str) -> Result<Option<CommandTemplate>, HostError> {
        let Some(plugin) = self.values.plugins.get(name) else { return Ok(None) };
        if !plugin.command {
            let keys_of_commands = [
                ("arguments", plugin.arguments.is_empty()),
                ("stdin", plugin.stdin.is_empty()),
                ("description", plugin.description.is_empty()),
                ("argument_descriptions", plugin.argument_descriptions.is_empty()),
            ];
            let written = keys_of_commands.iter().find(|(_, is_empty)| !is_empty);
            let Some((key, _)) = written else { return Ok(None) };
            let message = "this key is for commands: also set `command = true`".to_owned();
            return Err(self.plugin_error(name, key, message));
        }

        let parts = plugin.arguments.iter().map(|part| match part {
            ArgumentPart::Word(word) => WrittenPart::Word(word),
            ArgumentPart::Optional(words) => WrittenPart::Optional(words),
        });
        let mut template =
            CommandTemplate::parse(parts, &plugin.stdin, &plugin.argument_descriptions)
                .map_err(|error| self.plugin_error(name, "arguments", error.to_string()))?;
        template.description =
            if plugin.description.is_empty() { None } else { Some(plugin.description.clone()) };
        Ok(Some(template))
    }

    fn plugin_error(&self, plugin: &str, key: &str, message: String) -> HostError {
        let source = self.source(&format!("plugins.{plugin}.{key}"));
        HostError::from(Problems::from(Problem::new(source, message)))
    }

    /// Builds the grants of the processes of the plugin `name`. Returns `None` if the plugin can't
    /// start processes.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::processes_of_shell`].
    pub fn processes_of_plugin(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Option<ProcessGrants>, HostError> {
        let Some(plugin) = self.values.plugins.get(name) else { return Ok(None) };
        if !plugin.shell && !plugin.judged_programs && plugin.programs.is_empty() {
            return Ok(None);
        }
        let files = self.process_files(
            &format!("plugins.{name}.allowed_paths"),
            &plugin.allowed_paths,
            folders,
            working_directory,
        )?;
        let key = format!("plugins.{name}.programs");
        let entries = plugin.programs.iter().enumerate().map(|(index, entry)| {
            (entry.as_str().to_owned(), self.origin(&format!("{key}.{index}")))
        });
        let programs = Programs::new(entries)
            .map_err(|error| Problems::from(Problem::new(self.source(&key), error.to_string())))?;
        let network = if plugin.network { NetworkGrant::Allow } else { NetworkGrant::Deny };
        let table = ProcessTable {
            name: format!("plugins.{name}"),
            kind: ProcessKind::Plugin,
            network,
            allowed: &plugin.allowed_paths,
            env: &plugin.env,
            presets: &self.values.tools.shell.presets,
        };
        let mut grants = self.processes(files, &table, folders, working_directory);
        grants.programs = programs;
        grants.judged = plugin.judged_programs;
        grants.services = plugin.services.get();
        grants.shell = plugin.shell;
        Ok(Some(grants))
    }

    /// Builds the grants of the server `name` of `[mcp.servers]`. Returns `None` if there is no
    /// such server.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::processes_of_shell`].
    pub fn processes_of_server(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Option<ProcessGrants>, HostError> {
        let Some(server) = self.values.mcp.servers.get(name) else { return Ok(None) };
        let files = self.process_files(
            &format!("mcp.servers.{name}.allowed_paths"),
            &server.allowed_paths,
            folders,
            working_directory,
        )?;
        let network = if server.network { NetworkGrant::Allow } else { NetworkGrant::Deny };
        let table = ProcessTable {
            name: format!("mcp.servers.{name}"),
            kind: ProcessKind::Server,
            network,
            allowed: &server.allowed_paths,
            env: &server.env,
            presets: &server.presets,
        };
        let mut grants = self.processes(files, &table, folders, working_directory);
        // The sockets of `[tools.shell]` are only for its commands.
        grants.sockets.clear();
        // The server's own variables replace inherited variables with the same name.
        for (variable, value) in &server.variables {
            grants.environment.retain(|(known, _)| known != variable);
            grants.environment.push((variable.clone(), value.clone()));
        }
        Ok(Some(grants))
    }

    /// Builds the path rules of processes. The default of `deny_write` doesn't apply: git must
    /// write to most of `.git`. The sandbox protects the files of `.git` that git would run.
    fn process_files(
        &self,
        key: &str,
        paths: &[AllowedPath],
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileGrants, HostError> {
        self.file_policy(
            key,
            paths,
            &|(index, _)| self.source(&format!("tools.file.deny_write.{index}")) != Source::Default,
            folders,
            working_directory,
        )
    }

    /// Builds the grants that all kinds of tables have. `programs` is empty.
    fn processes(
        &self,
        files: FileGrants,
        table: &ProcessTable<'_>,
        folders: &Folders,
        working_directory: &Path,
    ) -> ProcessGrants {
        let shell = &self.values.tools.shell;
        let variables = self.variables();
        let home =
            folders.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        let mut presets: Vec<&'static Preset> = Vec::new();
        for preset in table.presets.iter().filter_map(|name| name.preset()).flat_map(with_all) {
            if !presets.iter().any(|known| known.name == preset.name) {
                presets.push(preset);
            }
        }
        let mut environment = build_environment(&variables, home.as_deref(), &presets, table.env);
        let has_options = environment.iter().any(|(name, _)| name == LEAK_CHECK.0);
        if shell.sandbox != SandboxMode::Off && !has_options {
            environment.push((LEAK_CHECK.0.to_owned(), LEAK_CHECK.1.to_owned()));
        }

        // Without a home directory, presets and credentials have no paths.
        let mut extra_trees: Vec<Tree> = Vec::new();
        let mut hidden = Vec::new();
        let mut other_presets = Vec::new();
        let mut credentials = Vec::new();
        if let Some(home) = home.as_deref() {
            let roots = Roots { home, variables: &variables };
            for (name, value) in
                hidden_registries(self, table.presets, &roots, folders, working_directory)
            {
                let is_set = environment.iter().any(|(known, _)| known == name);
                if !is_set && is_harmless(name, &value) {
                    environment.push((name.to_owned(), value));
                }
            }
            extra_trees.extend(presets.iter().flat_map(|preset| roots.trees(preset, unlinked)));
            hidden.extend(roots.credentials());
            // Credentials in an explicitly granted directory aren't hidden.
            hidden.retain(|path| !files.grants.iter().any(|grant| path.starts_with(&grant.path)));
            other_presets = unused_places(&roots, &presets);
            credentials.extend(CREDENTIALS.iter().filter_map(|place| roots.find(place)));
        }

        let limits = Limits::from(shell.limits);
        let rules = FileRules::new(files.grants.clone(), Vec::new()).with_globs(
            files.deny_read.clone(),
            files.allow_read.clone(),
            files.deny_write.clone(),
        );
        let used_presets = table.presets.iter().filter_map(|name| Some(name.preset()?.name));
        let context = ProcessContext {
            table: self.own_table(&table.name),
            kind: table.kind,
            network: table.network,
            rules,
            allowed: table.allowed.to_vec(),
            also: extra_trees.clone(),
            other_presets,
            used_presets: used_presets.collect(),
            credentials,
            variables: environment.iter().map(|(name, _)| name.clone()).collect(),
            env: table.env.iter().map(|name| name.as_str().to_owned()).collect(),
            home: home.clone(),
            directory: working_directory.to_owned(),
            limits,
            sandboxed: shell.sandbox != SandboxMode::Off,
        };
        let sockets =
            shell.sockets.iter().map(|path| without_parents(path, folders, working_directory));
        ProcessGrants {
            extra_trees,
            hidden,
            sockets: sockets.collect(),
            programs: Programs::default(),
            judged: false,
            services: 0,
            judged_services: false,
            shell: false,
            network: table.network,
            sandbox: shell.sandbox.into(),
            limits,
            environment,
            home,
            files,
            context,
        }
    }

    /// Returns a problem for each directory of a preset that isn't granted, because a tool could
    /// change a link on its path. Each problem names the line of the preset.
    pub fn linked_places(&self, folders: &Folders) -> Vec<Problem> {
        let Some(home) = folders.home.as_deref().map(real_or_given) else { return Vec::new() };
        let variables = self.variables();
        let roots = Roots { home: &home, variables: &variables };
        let mut problems = Vec::new();
        for (key, name) in self.written_presets() {
            let Some(preset) = name.preset() else { continue };
            for (place, _) in with_all(preset).into_iter().flat_map(Preset::places) {
                let Some(path) = roots.find(place) else { continue };
                let Ok(Resolved { real, link: Some(link) }) = resolve(&path) else { continue };
                let message = format!(
                    "{} leads to {} through the link {}, which a tool can change, so the directory \
                     isn't granted",
                    path.display(),
                    real.display(),
                    link.display()
                );
                problems.push(Problem::new(self.source(&key), message));
            }
        }
        problems
    }

    /// Returns the presets in the configuration, with the keys of their list elements.
    fn written_presets(&self) -> Vec<(String, &PresetName)> {
        let mut tables = vec![("tools.shell".to_owned(), &self.values.tools.shell.presets)];
        for (name, server) in &self.values.mcp.servers {
            tables.push((format!("mcp.servers.{name}"), &server.presets));
        }
        let mut presets = Vec::new();
        for (table, names) in tables {
            for (index, name) in names.iter().enumerate() {
                presets.push((format!("{table}.presets.{index}"), name));
            }
        }
        presets
    }

    /// Returns the variables of the environment. Variables that aren't UTF-8 are left out.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        match &self.read_from {
            Some((_, inputs)) => variables::texts(inputs),
            None => BTreeMap::new(),
        }
    }
}

/// Returns the real path of `place`. Returns `None` if the path can't be followed, or if a tool
/// could change a link on it.
fn unlinked(place: &Path) -> Option<PathBuf> {
    match resolve(place) {
        Ok(Resolved { real, link: None }) => Some(real),
        _ => None,
    }
}

/// Returns each path of an unused preset, with the name of the preset.
fn unused_places(roots: &Roots<'_>, used: &[&'static Preset]) -> Vec<(&'static str, PathBuf)> {
    let mut unused = Vec::new();
    for preset in &PRESETS {
        let is_used = used.iter().any(|known| known.name == preset.name);
        if !is_used {
            let paths = preset.places().filter_map(|(place, _)| roots.find(place));
            unused.extend(paths.map(|path| (preset.name, path)));
        }
    }
    unused
}

/// Expands a path of the configuration, and removes each `..` with the name before it. Links aren't
/// resolved, because a command could create a link on the path.
fn without_parents(path: &str, folders: &Folders, working_directory: &Path) -> PathBuf {
    let home = folders.home.as_deref().map(real_or_given);
    let expanded = expand(path, working_directory, &Folders { home, ..folders.clone() });
    let mut plain = PathBuf::new();
    for part in expanded.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// Returns the environment of a process: fixed values, variables that most programs need, variables
/// of presets, and the variables of the list `env`. Other variables aren't inherited, because they
/// may be credentials.
fn build_environment(
    variables: &BTreeMap<String, String>,
    home: Option<&Path>,
    presets: &[&Preset],
    env: &[VariableName],
) -> Vec<(String, String)> {
    let home = home.and_then(Path::to_str).unwrap_or(NO_HOME);
    let mut environment = BTreeMap::from(
        [("PATH", USUAL_PATH), ("HOME", home), ("SHELL", "/bin/bash"), ("TERM", "dumb")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );

    let mut usual_names = vec!["PATH"];
    usual_names.extend(USUAL);
    for preset in presets {
        usual_names.extend(preset.variables());
    }
    let languages = variables.keys().map(String::as_str).filter(|name| name.starts_with("LC_"));
    for name in usual_names.into_iter().chain(languages) {
        let Some(value) = variables.get(name) else { continue };
        // A variable may contain a credential if its name or its value looks like a credential, for
        // example a URL with a password.
        if !value.is_empty() && is_harmless(name, value) {
            environment.insert(name.to_owned(), value.clone());
        }
    }

    for name in env {
        if let Some(value) = variables.get(name.as_str()) {
            environment.insert(name.as_str().to_owned(), value.clone());
        }
    }
    environment.into_iter().collect()
}

fn is_harmless(name: &str, value: &str) -> bool {
    redaction::field(name, value, Keys::Settings) == value
        && redaction::text(value, Keys::Text) == value
}
