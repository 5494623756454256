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
    /// The organisation's file below the user's own, if there is one: [`SYSTEM_DEFAULTS`] for a
    /// process that runs as a user. It has the same keys, and the user's file wins, key by key.
    pub defaults: Option<PathBuf>,
}

impl Inputs {
    /// The variables and the working directory of this process, the organisation's ceiling, and
    /// nothing else.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the working directory was deleted.
    pub fn from_environment() -> Result<Self, HostError> {
        let working_directory = working_directory()?;
        let ceiling = Some(PathBuf::from(SYSTEM_CEILING));
        Ok(Self {
            working_directory: Some(working_directory),
            variables: std::env::vars_os().collect(),
            ceiling,
            defaults: Some(PathBuf::from(SYSTEM_DEFAULTS)),
            ..Self::default()
        })
    }

    /// The ceiling that the variable names.
    pub(super) fn named_ceiling(&self) -> Option<&Path> {
        let named =
            self.variables.iter().find(|(name, value)| name == VARIABLE && !value.is_empty());
        named.map(|(_, path)| Path::new(path))
    }

    /// The files of all ceilings: their own, and those of their keys and signatures.
    pub(super) fn ceiling_files(&self) -> Vec<PathBuf> {
        let system = self
            .ceiling
            .iter()
            .flat_map(|path| [path.clone(), ceiling_keys_path(path), signature_path(path)]);
        system.chain(self.named_ceiling().map(Path::to_owned)).collect()
    }
}

/// The file with the keys that sign a ceiling, beside it: `ceiling.pub`.
pub fn ceiling_keys_path(ceiling: &Path) -> PathBuf {
    ceiling.with_extension("pub")
}

/// The directory that this process works in.
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
