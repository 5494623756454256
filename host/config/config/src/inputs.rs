//! The inputs of a configuration in addition to the user's file: variables, flags, the working
//! directory, and the organisation's files.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toolhold_contract::HostError;

use super::{PathAccess, Who};

/// The path of the organisation's ceiling. If users other than root can write the file, Toolhold
/// doesn't start.
pub const SYSTEM_CEILING: &str = "/etc/toolhold/ceiling.toml";

/// The organisation's file with defaults. The user's own file has precedence. If users other than
/// root can write it, Toolhold doesn't start.
pub const SYSTEM_DEFAULTS: &str = "/etc/toolhold/toolhold.toml";

/// The variable with the path of another ceiling.
pub(super) const CEILING_VARIABLE: &str = "TOOLHOLD_CEILING";

/// The operator's inputs in addition to the user's file.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// A file that is read instead of the user's file. It must exist.
    pub file: Option<PathBuf>,
    /// The directory whose `toolhold.toml` may narrow the user's configuration. If `None`, no such
    /// file is read.
    pub working_directory: Option<PathBuf>,
    /// The environment variables. Variables that begin with `TOOLHOLD_` set keys.
    pub variables: Vec<(OsString, OsString)>,
    /// Settings of the form `key=value`. The key is dotted, and the value is TOML or an unquoted
    /// string.
    pub settings: Vec<String>,
    /// The additional granted directories, with their access.
    pub allow: Vec<(PathBuf, PathAccess)>,
    /// The path of the organisation's [`Ceiling`](super::Ceiling), usually [`SYSTEM_CEILING`]. The
    /// variable `TOOLHOLD_CEILING` names another ceiling.
    pub ceiling: Option<PathBuf>,
    /// The limits of a task: the [`task_bounds`](super::Config::task_bounds) of the configuration
    /// of the task's creator. The limits are applied last, and grant nothing.
    pub bounds: Vec<String>,
    /// Names and globs of the only tools that the program offers and calls. If `None`, all tools.
    pub only_tools: Option<Vec<String>>,
    /// The organisation's file with defaults, if there is one. For a process that runs as a user,
    /// this is [`SYSTEM_DEFAULTS`]. The user's file has precedence, key by key.
    pub defaults: Option<PathBuf>,
    /// The caller of a server whose rights the configuration gets, by the tables of `[principals]`.
    /// `None` for the local user, to whom no table applies. The caller's directory takes the place
    /// of `working_directory`, where the operator's relative paths start.
    pub who: Option<Who>,
    /// The table of `[principals]` that the token of `who` names. If `None`, the first table that
    /// matches `who`.
    pub principal_table: Option<String>,
}

impl Inputs {
    /// Takes the variables and the working directory of this process, and the paths of the
    /// organisation's files. The other inputs are empty.
    ///
    /// # Errors
    ///
    /// Returns [`HostError`] if the working directory was deleted.
    pub fn from_environment() -> Result<Self, HostError> {
        Ok(Self {
            working_directory: Some(working_directory()?),
            variables: std::env::vars_os().collect(),
            ceiling: Some(PathBuf::from(SYSTEM_CEILING)),
            defaults: Some(PathBuf::from(SYSTEM_DEFAULTS)),
            ..Self::default()
        })
    }

    /// Returns the folder with the organisation's approvals of MCP servers.
    pub(super) fn organisation_servers(&self) -> Option<PathBuf> {
        self.defaults.as_ref().map(|defaults| defaults.with_file_name("servers"))
    }

    pub(super) fn named_ceiling(&self) -> Option<&Path> {
        let mut variables = self.variables.iter();
        let variable =
            variables.find(|(name, value)| name == CEILING_VARIABLE && !value.is_empty());
        variable.map(|(_, path)| Path::new(path))
    }

    /// Returns the paths of all ceilings, and of the file of keys of the organisation's ceiling.
    pub(super) fn ceiling_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        if let Some(path) = &self.ceiling {
            files.extend([path.clone(), ceiling_keys_path(path)]);
        }
        files.extend(self.named_ceiling().map(Path::to_owned));
        files
    }
}

/// Returns the path of the file with the keys that sign a ceiling: `ceiling.pub`, next to the
/// ceiling.
pub fn ceiling_keys_path(ceiling: &Path) -> PathBuf {
    ceiling.with_extension("pub")
}

/// Returns the working directory of this process.
///
/// # Errors
///
/// Fails if the directory was deleted.
pub fn working_directory() -> Result<PathBuf, HostError> {
    std::env::current_dir().map_err(|error| match error.kind() {
        ErrorKind::NotFound => HostError::Config(
            "the working directory was deleted or moved; change to one that exists".to_owned(),
        ),
        _ => HostError::io("finding the working directory")(error),
    })
}
