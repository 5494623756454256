//! From what the operator wrote to what the processes of a plugin may see and use.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use berth_contract::HostError;
use berth_policy::files::FileRules;
use berth_policy::{Origin, Programs};
use berth_redaction::{self as redaction, Keys};
use berth_system::confine::{Limits, Sandbox, Tree};
use berth_system::files::real_or_given;

use super::policy::expand;
use super::presets::{CREDENTIALS, PRESETS, Preset, Roots, with_all};
use super::{
    AllowedPath, FilePolicy, Folders, Loaded, NetworkGrant, PathGlob, Problem, Problems,
    SandboxMode, Shell, Source, VariableName,
};

/// What the processes of one plugin may see, reach and use.
#[derive(Clone, Debug)]
pub struct ProcessGrants {
    /// The directories, and the globs for what lies in them.
    pub files: FilePolicy,
    /// What presets grant beside them: real paths that are there.
    pub also: Vec<Tree>,
    /// What of all that isn't theirs: files with credentials, by real paths.
    pub also_hidden: Vec<PathBuf>,
    /// Sockets that may be connected to, and folders of such.
    pub sockets: Vec<PathBuf>,
    /// The programs that may be started.
    pub programs: Programs,
    /// Whether a shell may run commands.
    pub shell: bool,
    /// Whether they reach the network; of a plugin's it is not asked.
    pub network: NetworkGrant,
    /// How much of the sandbox there has to be.
    pub sandbox: Sandbox,
    /// Their bounds.
    pub limits: Limits,
    /// All variables that they get.
    pub environment: Vec<(String, String)>,
    /// Their home, by its real path.
    pub home: Option<PathBuf>,
    /// Who knows what could help where a command fails.
    pub context: ProcessContext,
}

/// What holds for the processes of one plugin, for advice after a command has failed.
#[derive(Clone, Debug)]
pub struct ProcessContext {
    /// The table of the configuration that grants.
    pub table: String,
    /// Whether it is the shell's.
    pub shell: bool,
    /// Whether they reach the network.
    pub network: NetworkGrant,
    /// The rules about files.
    pub rules: FileRules,
    /// The granted directories as they are written.
    pub allowed: Vec<AllowedPath>,
    /// What presets grant.
    pub also: Vec<Tree>,
    /// Where the presets that aren't named have their places.
    pub presets: Vec<(&'static str, PathBuf)>,
    /// Those that are, as they are written.
    pub named: Vec<&'static str>,
    /// Where credentials lie, whether or not there are any.
    pub credentials: Vec<PathBuf>,
    /// The names of their environment variables.
    pub variables: Vec<String>,
    /// Variables that are granted by name.
    pub env: Vec<String>,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// Where relative paths are taken to begin.
    pub directory: PathBuf,
    /// Their bounds.
    pub limits: Limits,
    /// Whether there is a sandbox.
    pub sandboxed: bool,
}

/// What one table of the configuration says of processes.
struct Granted<'g> {
    table: String,
    network: NetworkGrant,
    allowed: &'g [AllowedPath],
    env: &'g [VariableName],
}

/// Where programs are looked for if the operator's environment doesn't say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where programs find a home that have none: it is their own, and empty.
const NO_HOME: &str = "/tmp";

/// Variables that every process gets as the operator has them, beside `LC_*`.
const USUAL: [&str; 5] = ["USER", "LOGNAME", "LANG", "LANGUAGE", "TZ"];

impl Loaded {
    /// What the commands of the built-in shell may see and use: nothing where it is switched off.
    ///
    /// Makes the caches of presets that are missing.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] for a grant that names no directory.
    pub fn processes_of_shell(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<ProcessGrants, HostError> {
        let shell = &self.config.tools.shell;
        let default = Shell::default().allowed_paths;
        let paths = match shell.enabled {
            true if shell.allowed_paths.is_empty() => &default,
            true => &shell.allowed_paths,
            false => &Vec::new(),
        };
        let files =
            self.process_files("tools.shell.allowed_paths", paths, folders, working_directory)?;
        let granted = Granted {
            table: "tools.shell".to_owned(),
            network: shell.network,
            allowed: paths,
            env: &shell.env,
        };
        Ok(ProcessGrants {
            shell: shell.enabled,
            ..self.processes(files, &granted, folders, working_directory)
        })
    }

    /// What the processes of the plugin `name` may see and use. None where it may start none.
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
        let Some(plugin) = self
            .config
            .plugins
            .get(name)
            .filter(|plugin| plugin.shell || !plugin.programs.is_empty())
        else {
            return Ok(None);
        };
        let key = |key: &str| format!("plugins.{name}.{key}");
        let files = self.process_files(
            &key("allowed_paths"),
            &plugin.allowed_paths,
            folders,
            working_directory,
        )?;
        let entries = plugin.programs.iter().enumerate();
        let entries = entries.map(|(index, entry)| -> (String, Origin) {
            (entry.as_str().to_owned(), self.origin(&format!("{}.{index}", key("programs"))))
        });
        let programs = Programs::new(entries).map_err(|message| {
            Problems::from(Problem::new(self.source(&key("programs")), message))
        })?;
        let network = if plugin.network { NetworkGrant::Allow } else { NetworkGrant::Deny };
        let granted = Granted {
            table: format!("plugins.{name}"),
            network,
            allowed: &plugin.allowed_paths,
            env: &plugin.env,
        };
        Ok(Some(ProcessGrants {
            programs,
            shell: plugin.shell,
            ..self.processes(files, &granted, folders, working_directory)
        }))
    }

    /// The files of processes. The built-in default of `deny_write` is for tools that write what a
    /// model says: of git's folder, git itself has to write most, and the rest is protected by the
    /// sandbox.
    fn process_files(
        &self,
        key: &str,
        paths: &[AllowedPath],
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<FilePolicy, HostError> {
        let is_default = |(index, _): &(usize, &PathGlob)| {
            self.source(&format!("tools.file.deny_write.{index}")) == Source::Default
        };
        self.file_policy(key, paths, &|glob| !is_default(glob), folders, working_directory)
    }

    fn processes(
        &self,
        files: FilePolicy,
        granted: &Granted<'_>,
        folders: &Folders,
        working_directory: &Path,
    ) -> ProcessGrants {
        let shell = &self.config.tools.shell;
        let variables = self.variables();
        let home =
            folders.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        let mut presets: Vec<&'static Preset> = Vec::new();
        for preset in shell.presets.iter().filter_map(|name| name.preset()).flat_map(with_all) {
            if !presets.iter().any(|known| known.name == preset.name) {
                presets.push(preset);
            }
        }
        let roots = home.as_deref().map(|home| Roots { home, variables: &variables });
        let also: Vec<Tree> = roots
            .iter()
            .flat_map(|roots| presets.iter().flat_map(|preset| roots.trees(preset)))
            .collect();
        let credentials = roots.iter().flat_map(Roots::credentials);
        // What the operator grants by itself is granted.
        let is_granted =
            |path: &PathBuf| files.grants.iter().any(|grant| path.starts_with(&grant.path));
        let also_hidden = credentials.filter(|path| !is_granted(path)).collect();
        let environment = environment(&variables, home.as_deref(), &presets, granted.env);
        let limits = Limits::from(shell.limits);
        let named = |preset: &&Preset| presets.iter().any(|known| known.name == preset.name);
        let others = PRESETS.iter().filter(|preset| !named(preset));
        let places = |preset: &'static Preset| {
            roots
                .iter()
                .flat_map(move |roots| preset.places().filter_map(|(place, _)| roots.find(place)))
        };
        let rules = FileRules::new(files.grants.clone(), Vec::new());
        let context = ProcessContext {
            table: format!("[{}]", granted.table),
            shell: granted.table == "tools.shell",
            network: granted.network,
            rules: rules.with_globs(
                files.deny_read.clone(),
                files.allow_read.clone(),
                files.deny_write.clone(),
            ),
            allowed: granted.allowed.to_vec(),
            also: also.clone(),
            presets: others
                .flat_map(|preset| places(preset).map(|place| (preset.name, place)))
                .collect(),
            named: shell.presets.iter().filter_map(|name| Some(name.preset()?.name)).collect(),
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
            also,
            also_hidden,
            sockets: shell
                .sockets
                .iter()
                .map(|path| unresolved(path, folders, working_directory))
                .collect(),
            programs: Programs::default(),
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

    /// The environment that the configuration was read with. What isn't UTF-8 is left out.
    fn variables(&self) -> BTreeMap<String, String> {
        let variables = self.read_from.iter().flat_map(|(_, inputs)| &inputs.variables);
        variables
            .filter_map(|(name, value)| {
                Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
            })
            .collect()
    }
}

/// A path by its spelling alone: a link that a command puts in its place leads nowhere else.
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

/// What processes get: from nothing.
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
        // By its name or by what it holds: an address with a password in it, say.
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
