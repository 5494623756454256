//! The inputs of a configuration beside the user's file: variables, flags, the working directory,
//! and the organisation's files.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toolhold_contract::HostError;
use toolhold_signing::signature_path;

use super::PathAccess;

/// The organisation's ceiling. If anybody but root can write it, the start ends.
pub const SYSTEM_CEILING: &str = "/etc/toolhold/ceiling.toml";

/// The organisation's file below the user's own. If anybody but root can write it, the start ends.
pub const SYSTEM_DEFAULTS: &str = "/etc/toolhold/toolhold.toml";

/// The variable that names a further ceiling.
pub(super) const VARIABLE: &str = "TOOLHOLD_CEILING";

/// The operator's inputs beside the user's file.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// A file that is read instead of the user's own. It has to exist.
    pub file: Option<PathBuf>,
    /// The directory whose `toolhold.toml` may narrow the user's. If `None`, no such file is read.
    pub working_directory: Option<PathBuf>,
    /// Environment variables. Only those that begin with `TOOLHOLD_` can be keys.
    pub variables: Vec<(OsString, OsString)>,
    /// Settings `key=value`: the key is dotted, the value is TOML or a bare text.
    pub settings: Vec<String>,
    /// Directories that are granted in addition, with the access to them.
    pub allow: Vec<(PathBuf, PathAccess)>,
    /// The file of the organisation's [`Ceiling`](super::Ceiling), if there is one:
    /// [`SYSTEM_CEILING`] for a process that runs as a user. The variable `TOOLHOLD_CEILING` names
    /// a further ceiling.
    pub ceiling: Option<PathBuf>,
    /// The bounds of a task: the [`task_bounds`](super::Config::task_bounds) of its maker's
    /// configuration. They are applied last, and only take away.
    pub bounds: Vec<String>,
    /// Names and globs of the only tools that the program offers and calls. `None`: all tools.
    pub only_tools: Option<Vec<String>>,
    /// The organisation's file below the user's own, if there is one: [`SYSTEM_DEFAULTS`] for a
    /// process that runs as a user. It has the same keys, and the user's file wins, key by key.
    pub defaults: Option<PathBuf>,
}

impl Inputs {
    /// Takes the variables and the working directory of this process, and the organisation's files.
    /// The other inputs are empty.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the working directory was deleted.
    pub fn from_environment() -> Result<Self, HostError> {
        Ok(Self {
            working_directory: Some(working_directory()?),
            variables: std::env::vars_os().collect(),
            ceiling: Some(PathBuf::from(SYSTEM_CEILING)),
            defaults: Some(PathBuf::from(SYSTEM_DEFAULTS)),
            ..Self::default()
        })
    }

    /// Returns the path of the ceiling that the variable names, if it is set.
    pub(super) fn named_ceiling(&self) -> Option<&Path> {
        let variable =
            self.variables.iter().find(|(name, value)| name == VARIABLE && !value.is_empty());
        variable.map(|(_, path)| Path::new(path))
    }

    /// Returns the files of all ceilings. The organisation's ceiling also has a file of keys and a
    /// signature.
    pub(super) fn ceiling_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        if let Some(path) = &self.ceiling {
            files.extend([path.clone(), ceiling_keys_path(path), signature_path(path)]);
        }
        files.extend(self.named_ceiling().map(Path::to_owned));
        files
    }
}

/// Returns the path of the file with the keys that sign a ceiling, next to it: `ceiling.pub`.
pub fn ceiling_keys_path(ceiling: &Path) -> PathBuf {
    ceiling.with_extension("pub")
}

/// Returns the directory that this process works in.
///
/// # Errors
///
/// [`HostError`] if it was deleted.
pub fn working_directory() -> Result<PathBuf, HostError> {
    std::env::current_dir().map_err(|error| match error.kind() {
        ErrorKind::NotFound => HostError::Config(
            "the working directory was deleted or moved; change to one that exists".to_owned(),
        ),
        _ => HostError::io("finding the working directory")(error),
    })
}
