//! The command that a call starts, and the reason why it can't be started.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_contract::{ChangeRecorder, ConnectionGate, OutputRecorder, PathRules, ShellSession};
use toolhold_data_dir::Way;

use super::limits::PlacesError;
use super::network::SharedNetwork;
use crate::confine::AUTHORITIES;

/// Variables with the file of trusted certificates, for programs that don't read the machine's file,
/// or for which the user has named another file.
const CERTIFICATES: [&str; 7] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "GIT_SSL_CAINFO",
    "CURL_CA_BUNDLE",
];

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
    /// command reaches the machine's network. `None` means a network of its own.
    pub shared_network: Option<Arc<SharedNetwork>>,
    /// Makes the connections of the command, in the shared network or without namespaces. `None` if
    /// the command reaches no hosts.
    pub connections: Option<Arc<dyn ConnectionGate>>,
    /// The certificate, in PEM format, that the command trusts besides the machine's certificates.
    /// Needs [`connections`](Self::connections). `None` if there is none.
    pub authority: Option<String>,
    /// The rules for calls that decide on the command's paths.
    pub path_rules: Option<Arc<dyn PathRules>>,
    /// Saves each file before the command changes it. `None` if changes aren't recorded.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// Gets all output of the command.
    pub output: Option<Arc<dyn OutputRecorder>>,
    /// Gets the state that the command leaves for later commands. Only for `bash`.
    pub shell: Option<Arc<dyn ShellSession>>,
}

impl Command {
    /// Lets the command trust a further certificate, in PEM format. Needs
    /// [`connections`](Self::connections).
    pub fn trust(&mut self, certificate: String) {
        self.authority = Some(certificate);
        for name in CERTIFICATES {
            self.set_variable(name, AUTHORITIES);
        }
    }

    /// Sets a variable of the environment. The value replaces any other.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.retain(|(other, _value)| other != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the real paths of the folders in which programs are searched. Leaves out parents of
    /// the home folder, and folders that a tool could have redirected.
    pub(crate) fn path_folders(&self) -> Vec<String> {
        let home = self.variable("HOME").map(Path::new);
        let mut folders = Vec::new();
        for path in self.variable("PATH").unwrap_or_default().split(':').map(Path::new) {
            if !path.is_absolute() {
                continue;
            }
            let Ok(way) = Way::follow(path) else { continue };
            // A tool could replace a link or folder on the way.
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

/// The reason why a command can't be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox isn't available on this machine.
    #[error("{0}")]
    Sandbox(String),
    /// A path that the command may not see was moved during each attempt to set up the sandbox.
    #[error("{0}; denied files and folders must stay in place while a command starts")]
    Moved(String),
    /// The paths that the command may see can't be determined.
    #[error("{0}")]
    Places(#[from] PlacesError),
    /// The system's error.
    #[error("{0}")]
    Io(#[from] io::Error),
}
