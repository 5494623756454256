//! Builds the grants of processes from the configuration: the files, hosts and programs of
//! commands, plugins' programs and MCP servers, and their environment.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Component, Path, PathBuf};

use toolhold_contract::HostError;
use toolhold_policy::files::FileRules;
use toolhold_policy::{CommandTemplate, OwnTable, Programs, WrittenPart};
use toolhold_redaction::{self as redaction, Keys};
use toolhold_system::confine::{Limits, Sandbox, Tree};
use toolhold_system::files::real_or_given;

use super::presets::{CREDENTIALS, PRESETS, Preset, Roots, with_all};
use super::resolved::{Resolved, expand, resolve};
use super::{
    AllowedPath, ArgumentPart, Config, FileGrants, Folders, NetworkGrant, PresetName, Problem,
    Problems, SandboxMode, Source, VariableName,
};

/// The files, hosts and programs of one plugin's processes.
#[derive(Clone, Debug)]
pub struct ProcessGrants {
    /// The granted directories, and the globs for the files in them.
    pub files: FileGrants,
    /// Existing trees that presets grant, by their real paths.
    pub extra_trees: Vec<Tree>,
    /// Hidden files with credentials in these trees, by their real paths.
    pub hidden: Vec<PathBuf>,
    /// Sockets that processes may connect to, and folders of such sockets.
    pub sockets: Vec<PathBuf>,
    /// The programs that may be started.
    pub programs: Programs,
    /// Whether other programs may be started that would be allowed as commands of `bash`.
    pub judged: bool,
    /// How many of them may outlive a call, in one session.
    pub services: u64,
    /// Whether these may be programs that are not granted here, but allowed as commands of `bash`.
    pub judged_services: bool,
    /// Whether a shell may run commands.
    pub shell: bool,
    /// Whether they reach the network. A plugin's processes never need approval for it.
    pub network: NetworkGrant,
    /// How much of the sandbox is required.
    pub sandbox: Sandbox,
    /// Their limits.
    pub limits: Limits,
    /// All environment variables that they get.
    pub environment: Vec<(String, String)>,
    /// Their home directory, by its real path.
    pub home: Option<PathBuf>,
    /// Data for advice after a failed command.
    pub context: ProcessContext,
}

/// The rules for the processes of one plugin, for advice after a command has failed.
#[derive(Clone, Debug)]
pub struct ProcessContext {
    /// The table of the configuration that grants.
    pub table: OwnTable,
    /// Whether it is the table of the shell.
    pub shell: bool,
    /// Whether they reach the network.
    pub network: NetworkGrant,
    /// The rules about files.
    pub rules: FileRules,
    /// The granted directories as they were written.
    pub allowed: Vec<AllowedPath>,
    /// Trees that presets grant.
    pub also: Vec<Tree>,
    /// The places of presets that aren't used, each with the preset's name.
    pub other_presets: Vec<(&'static str, PathBuf)>,
    /// The presets that are used, as they were written.
    pub used_presets: Vec<&'static str>,
    /// Paths of credentials. They need not exist.
    pub credentials: Vec<PathBuf>,
    /// The names of their environment variables.
    pub variables: Vec<String>,
    /// Environment variables that are granted by name.
    pub env: Vec<String>,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The directory in which relative paths begin.
    pub directory: PathBuf,
    /// Their limits.
    pub limits: Limits,
    /// Whether they run in a sandbox.
    pub sandboxed: bool,
}

/// The keys of one table of the configuration about processes.
struct ProcessTable<'t> {
    table: String,
    network: NetworkGrant,
    allowed: &'t [AllowedPath],
    env: &'t [VariableName],
    presets: &'t [PresetName],
}

/// `PATH` of processes if the operator's environment has none.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// AddressSanitizer without its search for leaks, which traces the program. The sandbox refuses to
/// trace, and a program whose leaks can't be searched for fails.
const LEAK_CHECK: (&str, &str) = ("ASAN_OPTIONS", "detect_leaks=0");

/// `HOME` of processes if the user has no home directory: a private, empty folder.
const NO_HOME: &str = "/tmp";

/// Variables of the operator that every process gets, in addition to `LC_*`.
const USUAL: [&str; 5] = ["USER", "LOGNAME", "LANG", "LANGUAGE", "TZ"];

impl Config {
    /// The grants of the commands of the built-in shell. Empty if the shell is disabled.
    ///
    /// Makes missing caches of presets.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] for a grant that isn't an existing directory.
    pub fn processes_of_shell(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<ProcessGrants, HostError> {
        let shell = &self.values.tools.shell;
        let files = self.shell_files(folders, working_directory)?;
        let granted = ProcessTable {
            table: "tools.shell".to_owned(),
            network: shell.network,
            allowed: &self.paths_of_shell().1,
            env: &shell.env,
            presets: &shell.presets,
        };
        Ok(ProcessGrants {
            shell: shell.enabled,
            ..self.processes(files, &granted, folders, working_directory)
        })
    }

    /// The files of the commands of the built-in shell.
    ///
    /// # Errors
    ///
    /// As [`Self::processes_of_shell`].
    pub(crate) fn shell_files(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FileGrants, HostError> {
        let (key, paths) = self.paths_of_shell();
        self.process_files(key, &paths, folders, working_directory)
    }

    /// The directories of the built-in shell, and the key that grants them.
    fn paths_of_shell(&self) -> (&'static str, Vec<AllowedPath>) {
        let shell = &self.values.tools.shell;
        if !shell.enabled {
            ("tools.shell.allowed_paths", Vec::new())
        } else if shell.allowed_paths.is_empty() {
            ("tools.file.allowed_paths", self.values.tools.file.granted_paths())
        } else {
            ("tools.shell.allowed_paths", shell.allowed_paths.clone())
        }
    }

    /// The template of a plugin's command. `None`: the plugin isn't run as a command.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if the template is wrong, or belongs to no command.
    pub fn command_of_plugin(&self, name: &str) -> Result<Option<CommandTemplate>, HostError> {
        let Some(plugin) = self.values.plugins.get(name) else { return Ok(None) };
        if !plugin.command {
            let keys = [
                ("arguments", plugin.arguments.is_empty()),
                ("stdin", plugin.stdin.is_empty()),
                ("description", plugin.description.is_empty()),
                ("argument_descriptions", plugin.argument_descriptions.is_empty()),
            ];
            return match keys.iter().find(|(_, is_empty)| !is_empty) {
                Some((key, _)) => {
                    let message = "this key is for commands: also set `command = true`".to_owned();
                    Err(self.plugin_problem(name, key, message))
                }
                None => Ok(None),
            };
        }
        let parts = plugin.arguments.iter().map(|part| match part {
            ArgumentPart::Word(word) => WrittenPart::Word(word),
            ArgumentPart::Optional(words) => WrittenPart::Optional(words),
        });
        let mut template =
            CommandTemplate::parse(parts, &plugin.stdin, &plugin.argument_descriptions)
                .map_err(|error| self.plugin_problem(name, "arguments", error.to_string()))?;
        template.description = Some(plugin.description.clone()).filter(|text| !text.is_empty());
        Ok(Some(template))
    }

    fn plugin_problem(&self, plugin: &str, key: &str, message: String) -> HostError {
        let source = self.source(&format!("plugins.{plugin}.{key}"));
        HostError::from(Problems::from(Problem::new(source, message)))
    }

    /// The grants of the processes of the plugin `name`. `None` if it may start no processes.
    ///
    /// # Errors
    ///
    /// As [`Self::processes_of_shell`].
    pub fn processes_of_plugin(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Option<ProcessGrants>, HostError> {
        let Some(plugin) =
            self.values.plugins.get(name).filter(|plugin| {
                plugin.shell || plugin.judged_programs || !plugin.programs.is_empty()
            })
        else {
            return Ok(None);
        };
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
        let granted = ProcessTable {
            table: format!("plugins.{name}"),
            network,
            allowed: &plugin.allowed_paths,
            env: &plugin.env,
            presets: &self.values.tools.shell.presets,
        };
        Ok(Some(ProcessGrants {
            programs,
            judged: plugin.judged_programs,
            services: plugin.services.get(),
            shell: plugin.shell,
            ..self.processes(files, &granted, folders, working_directory)
        }))
    }

    /// The grants of the server `name` of `[mcp.servers]`. `None`: there is no such server.
    ///
    /// # Errors
    ///
    /// As [`Self::processes_of_shell`].
    pub fn processes_of_server(
        &self,
        name: &str,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Option<ProcessGrants>, HostError> {
        let Some(server) = self.values.mcp.servers.get(name) else { return Ok(None) };
        let table = format!("mcp.servers.{name}");
        let files = self.process_files(
            &format!("{table}.allowed_paths"),
            &server.allowed_paths,
            folders,
            working_directory,
        )?;
        let network = if server.network { NetworkGrant::Allow } else { NetworkGrant::Deny };
        let granted = ProcessTable {
            table,
            network,
            allowed: &server.allowed_paths,
            env: &server.env,
            presets: &server.presets,
        };
        let mut grants = self.processes(files, &granted, folders, working_directory);
        grants.sockets.clear();
        for (variable, value) in &server.variables {
            grants.environment.retain(|(known, _)| known != variable);
            grants.environment.push((variable.clone(), value.clone()));
        }
        Ok(Some(grants))
    }

    /// The files of processes. The default of `deny_write` doesn't apply to them: git has to write
    /// to most of its folder, and the sandbox protects the rest.
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

    fn processes(
        &self,
        files: FileGrants,
        granted: &ProcessTable<'_>,
        folders: &Folders,
        working_directory: &Path,
    ) -> ProcessGrants {
        let shell = &self.values.tools.shell;
        let variables = self.variables();
        let home =
            folders.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        let mut presets: Vec<&'static Preset> = Vec::new();
        for preset in granted.presets.iter().filter_map(|name| name.preset()).flat_map(with_all) {
            if !presets.iter().any(|known| known.name == preset.name) {
                presets.push(preset);
            }
        }
        let roots = home.as_deref().map(|home| Roots { home, variables: &variables });
        let also: Vec<Tree> = roots
            .iter()
            .flat_map(|roots| presets.iter().flat_map(|preset| roots.trees(preset, unlinked)))
            .collect();
        let credentials = roots.iter().flat_map(Roots::credentials);
        // Credentials in a directory that the operator grants explicitly are granted.
        let also_hidden = credentials
            .filter(|path| !files.grants.iter().any(|grant| path.starts_with(&grant.path)))
            .collect();
        let mut environment = environment(&variables, home.as_deref(), &presets, granted.env);
        let has_options = environment.iter().any(|(name, _)| name == LEAK_CHECK.0);
        if shell.sandbox != SandboxMode::Off && !has_options {
            environment.push((LEAK_CHECK.0.to_owned(), LEAK_CHECK.1.to_owned()));
        }
        let limits = Limits::from(shell.limits);
        let rules = FileRules::new(files.grants.clone(), Vec::new());
        let context = ProcessContext {
            table: self.own_table(&granted.table),
            shell: granted.table == "tools.shell",
            network: granted.network,
            rules: rules.with_globs(
                files.deny_read.clone(),
                files.allow_read.clone(),
                files.deny_write.clone(),
            ),
            allowed: granted.allowed.to_vec(),
            also: also.clone(),
            other_presets: places_of_others(roots.as_ref(), &presets),
            used_presets: granted
                .presets
                .iter()
                .filter_map(|name| Some(name.preset()?.name))
                .collect(),
            credentials: roots
                .iter()
                .flat_map(|roots| CREDENTIALS.iter().filter_map(|place| roots.find(place)))
                .collect(),
            variables: environment.iter().map(|(name, _)| name.clone()).collect(),
            env: granted.env.iter().map(|name| name.as_str().to_owned()).collect(),
            home: home.clone(),
            directory: working_directory.to_owned(),
            limits,
            sandboxed: shell.sandbox != SandboxMode::Off,
        };
        ProcessGrants {
            extra_trees: also,
            hidden: also_hidden,
            sockets: shell
                .sockets
                .iter()
                .map(|path| unresolved(path, folders, working_directory))
                .collect(),
            programs: Programs::default(),
            judged: false,
            services: 0,
            judged_services: false,
            shell: false,
            network: granted.network,
            sandbox: shell.sandbox.into(),
            limits,
            environment,
            home,
            files,
            context,
        }
    }

    /// The places of presets that commands and MCP servers don't see, since a tool could exchange a
    /// link on the way, each with the preset's line.
    pub fn linked_places(&self, folders: &Folders) -> Vec<Problem> {
        let Some(home) = folders.home.as_deref().map(real_or_given) else { return Vec::new() };
        let variables = self.variables();
        let roots = Roots { home: &home, variables: &variables };
        let mut linked = Vec::new();
        let of_shell = ("tools.shell".to_owned(), &self.values.tools.shell.presets);
        let servers = self.values.mcp.servers.iter();
        let of_servers =
            servers.map(|(name, server)| (format!("mcp.servers.{name}"), &server.presets));
        let presets = iter::once(of_shell).chain(of_servers).flat_map(|(table, presets)| {
            let names = presets.iter().enumerate();
            names.map(move |(index, name)| (format!("{table}.presets.{index}"), name))
        });
        for (key, name) in presets {
            let places = name.preset().into_iter().flat_map(with_all).flat_map(Preset::places);
            for path in places.filter_map(|(place, _)| roots.find(place)) {
                let Ok(Resolved { real, link: Some(link) }) = resolve(&path) else { continue };
                let message = format!(
                    "{} leads to {} through the link {}, which a tool can change, so the directory \
                     isn't granted",
                    path.display(),
                    real.display(),
                    link.display()
                );
                linked.push(Problem::new(self.source(&key), message));
            }
        }
        linked
    }

    /// The environment that the configuration was read with, without variables that aren't UTF-8.
    fn variables(&self) -> BTreeMap<String, String> {
        let variables = self.read_from.iter().flat_map(|(_, inputs)| &inputs.variables);
        variables
            .filter_map(|(name, value)| {
                Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
            })
            .collect()
    }
}

/// The real path, if no link that a tool could exchange is on the way.
fn unlinked(place: &Path) -> Option<PathBuf> {
    let Resolved { real, link } = resolve(place).ok()?;
    link.is_none().then_some(real)
}

/// The existing places of the presets that aren't used, each with its preset's name.
fn places_of_others(
    roots: Option<&Roots<'_>>,
    used: &[&'static Preset],
) -> Vec<(&'static str, PathBuf)> {
    let Some(roots) = roots else { return Vec::new() };
    let mut found = Vec::new();
    for preset in &PRESETS {
        if used.iter().all(|known| known.name != preset.name) {
            let places = preset.places().filter_map(|(place, _)| roots.find(place));
            found.extend(places.map(|place| (preset.name, place)));
        }
    }
    found
}

/// A path without `..`, by its spelling alone: links aren't resolved, since a command could put a
/// link there.
fn unresolved(path: &str, folders: &Folders, working_directory: &Path) -> PathBuf {
    let home = folders.home.as_deref().map(real_or_given);
    let mut plain = PathBuf::new();
    for part in expand(path, working_directory, &Folders { home, ..folders.clone() }).components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// The environment of processes. It starts empty, so that nothing is inherited by accident.
fn environment(
    variables: &BTreeMap<String, String>,
    home: Option<&Path>,
    presets: &[&Preset],
    env: &[VariableName],
) -> Vec<(String, String)> {
    let mut environment = BTreeMap::from(
        [("PATH", USUAL_PATH), ("HOME", NO_HOME), ("SHELL", "/bin/bash"), ("TERM", "dumb")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    if let Some(home) = home.and_then(Path::to_str) {
        environment.insert("HOME".to_owned(), home.to_owned());
    }
    let mut names: Vec<&str> = vec!["PATH"];
    names.extend_from_slice(&USUAL);
    names.extend(variables.keys().map(String::as_str).filter(|name| name.starts_with("LC_")));
    for preset in presets {
        names.extend_from_slice(&preset.variables().collect::<Vec<_>>());
    }
    for name in names {
        // A variable may look like a credential by its name or by its value, for example an address
        // with a password.
        let taken =
            variables.get(name).filter(|value| !value.is_empty() && is_harmless(name, value));
        environment.extend(taken.map(|value| (name.to_owned(), value.clone())));
    }
    let named = env.iter().filter_map(|name| variables.get_key_value(name.as_str()));
    environment.extend(named.map(|(name, value)| (name.clone(), value.clone())));
    environment.into_iter().collect()
}

fn is_harmless(name: &str, value: &str) -> bool {
    redaction::field(name, value, Keys::Settings) == value
        && redaction::text(value, Keys::Text) == value
}
