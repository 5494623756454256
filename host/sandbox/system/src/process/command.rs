//! The command that a call wants to start, where its program is searched, and why it wasn't
//! started.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_contract::{ChangeRecorder, OutputRecorder, PathRules, ShellSession};
use toolhold_data_dir::Way;

use super::limits::PlacesError;
use super::network::SharedNetwork;

/// A command to start. The program is searched on the `PATH` of `environment`.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// Its working directory: a real path.
    pub directory: PathBuf,
    /// Whether it reaches the network.
    pub network: bool,
    /// The network that it shares with other commands of its session, unless it reaches that of the
    /// machine. `None`: it has one of its own.
    pub shared_network: Option<Arc<SharedNetwork>>,
    /// The rules about calls for the paths that it reaches.
    pub path_rules: Option<Arc<dyn PathRules>>,
    /// Learns what it changes in files, before it does. `None`: nobody does.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// Learns of everything that it writes. `None`: nobody does.
    pub output: Option<Arc<dyn OutputRecorder>>,
    /// Gets the record of what it leaves for later commands. Only for `bash`. `None`: there is no
    /// record.
    pub shell: Option<Arc<dyn ShellSession>>,
}

impl Command {
    /// The folders where programs are searched, by their real paths: those that hold programs and
    /// nothing else. Not those that a tool could have led elsewhere.
    pub(crate) fn path_folders(&self) -> Vec<String> {
        let home = self.variable("HOME").map(Path::new);
        let folders = self.variable("PATH").unwrap_or_default().split(':').map(Path::new);
        folders
            .filter(|path| path.is_absolute())
            .filter_map(|path| Way::follow(path).ok())
            .filter(|way| way.exchangeable().is_none())
            .map(|way| way.real)
            // Not a home folder or a folder that contains one.
            .filter(|path| path.is_dir() && home.is_none_or(|home| !home.starts_with(path)))
            .filter_map(|path| path.into_os_string().into_string().ok())
            .collect()
    }

    fn variable(&self, wanted: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    }
}

/// The reason why a command wasn't started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox isn't available here.
    #[error("{0}")]
    Sandbox(String),
    /// A path that it may not see was moved each time while the sandbox was set up.
    #[error("{0}; denied files and folders must not be moved while a command starts")]
    Moved(String),
    /// The paths that it may see can't be determined.
    #[error("{0}")]
    Places(#[from] PlacesError),
    /// The system's answer.
    #[error("{0}")]
    Io(#[from] io::Error),
}
