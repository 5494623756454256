//! What the operator says beside the user's file, and the names of where it stands.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;

use berth_contract::HostError;

use super::PathAccess;

/// The organisation's file. Only root can write it, or it ends the start.
pub const SYSTEM_CEILING: &str = "/etc/berth/ceiling.toml";

/// The variable that names a ceiling beside the organisation's.
pub(super) const VARIABLE: &str = "BERTH_CEILING";

/// What the operator says beside the user's file.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// A file to read instead of the user's own; it has to exist.
    pub file: Option<PathBuf>,
    /// The directory whose `berth.toml` may narrow what the user's says. None: no such file is
    /// read.
    pub working_directory: Option<PathBuf>,
    /// Environment variables; those that do not begin with `BERTH_` are passed over.
    pub variables: Vec<(OsString, OsString)>,
    /// `key=value` each, the key dotted and the value TOML or a bare text.
    pub settings: Vec<String>,
    /// Directories granted in addition, and how.
    pub allow: Vec<(PathBuf, PathAccess)>,
    /// The organisation's [`Ceiling`](super::Ceiling), where there is such a file:
    /// [`SYSTEM_CEILING`] for what runs in a user's name. `BERTH_CEILING` among the variables names
    /// another one beside it.
    pub ceiling: Option<PathBuf>,
}

impl Inputs {
    /// The variables and the working directory of this process, the organisation's ceiling, and
    /// nothing else.
    ///
    /// # Errors
    ///
    /// [`HostError`] where there is no working directory any more.
    pub fn from_environment() -> Result<Self, HostError> {
        let working_directory = working_directory()?;
        let ceiling = Some(PathBuf::from(SYSTEM_CEILING));
        Ok(Self {
            working_directory: Some(working_directory),
            variables: std::env::vars_os().collect(),
            ceiling,
            ..Self::default()
        })
    }
}

/// The directory that this process works in.
///
/// # Errors
///
/// [`HostError`] where it was deleted.
pub fn working_directory() -> Result<PathBuf, HostError> {
    std::env::current_dir().map_err(|error| match error.kind() {
        ErrorKind::NotFound => HostError::Config(
            "the working directory was deleted or moved; go to one that is there".to_owned(),
        ),
        _ => HostError::io("finding the working directory")(error),
    })
}
