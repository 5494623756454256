//! The command that a call wants to start, the folders where its program is searched, and the
//! reason why it wasn't started.

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
    /// The complete environment.
    pub environment: Vec<(String, String)>,
    /// The working directory, as a real path.
    pub directory: PathBuf,
    /// Whether the command reaches the network.
    pub network: bool,
    /// The network that the command shares with other commands of its session. Unused if the
    /// command reaches the machine's network. If `None`, the command has its own network.
    pub shared_network: Option<Arc<SharedNetwork>>,
    /// The rules about calls for the paths that the command accesses.
    pub path_rules: Option<Arc<dyn PathRules>>,
    /// Receives each file change before the command makes it. `None` if changes aren't recorded.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// Gets everything that the command writes, if set.
    pub output: Option<Arc<dyn OutputRecorder>>,
    /// Gets the record of the state that the command leaves for later commands, if set. Only for
    /// `bash`.
    pub shell: Option<Arc<dyn ShellSession>>,
}

impl Command {
    /// Returns the real paths of the folders where programs are searched. Omits parents of the home
    /// folder, and folders that a tool could have redirected.
    pub(crate) fn path_folders(&self) -> Vec<String> {
        let home = self.variable("HOME").map(Path::new);
        let mut folders = Vec::new();
        for path in self.variable("PATH").unwrap_or_default().split(':').map(Path::new) {
            if !path.is_absolute() {
                continue;
            }
            let Ok(way) = Way::follow(path) else { continue };
            if way.exchangeable().is_some() {
                continue;
            }
            let folder = way.real;
            let contains_home = home.is_some_and(|home| home.starts_with(&folder));
            if contains_home || !folder.is_dir() {
                continue;
            }
            if let Ok(folder) = folder.into_os_string().into_string() {
                folders.push(folder);
            }
        }
        folders
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let variable = self.environment.iter().find(|(known, _)| known == name);
        variable.map(|(_, value)| value.as_str())
    }
}

/// The reason why a command wasn't started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox isn't available here.
    #[error("{0}")]
    Sandbox(String),
    /// A path that the command may not see was moved during each attempt to set up the sandbox.
    #[error("{0}; denied files and folders must not be moved while a command starts")]
    Moved(String),
    /// The paths that the command may see can't be determined.
    #[error("{0}")]
    Places(#[from] PlacesError),
    /// The system's answer.
    #[error("{0}")]
    Io(#[from] io::Error),
}
