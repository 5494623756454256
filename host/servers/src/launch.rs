//! How a server is started.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_core::config::{Folders, Loaded, McpServer, OwnFolder};
use berth_core::{CancellationToken, ServerPlaces, own_helper, server_places};
use berth_system::process::{Child, Command};

/// The latest time of a process: no server lasts so long.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What all servers of a host have in common.
#[derive(Debug)]
pub(crate) struct Surroundings {
    config: Loaded,
    folders: Folders,
    /// The working directory of the host.
    directory: PathBuf,
    /// What no server may reach.
    own: Vec<OwnFolder>,
}

impl Surroundings {
    /// Those of a host with this configuration.
    pub(crate) fn new(config: &Loaded, folders: &Folders, directory: &Path) -> Self {
        let own = config.own(folders, directory);
        let (config, folders) = (config.clone(), folders.clone());
        Self { config, folders, directory: directory.to_owned(), own }
    }
}

impl PartialEq for Surroundings {
    /// Whether a server may and sees the same in both.
    fn eq(&self, other: &Self) -> bool {
        let (tools, others) = (&self.config.config.tools, &other.config.config.tools);
        self.directory == other.directory
            && self.own == other.own
            && tools.shell == others.shell
            && tools.file == others.file
    }
}

/// How one server is started.
#[derive(Debug, PartialEq)]
pub(crate) struct Launch {
    /// The name of its table.
    name: String,
    /// The keys of its table.
    pub(crate) server: McpServer,
    around: Arc<Surroundings>,
}

impl Launch {
    /// The start of the server of this name.
    pub(crate) fn new(around: &Arc<Surroundings>, name: &str, server: &McpServer) -> Self {
        Self { name: name.to_owned(), server: server.clone(), around: Arc::clone(around) }
    }

    /// Where the server starts: the working directory, if it may see that.
    fn directory(&self, places: &ServerPlaces) -> PathBuf {
        let directory = &self.around.directory;
        let grants = places.places.grants.rules().grants();
        let is_seen = grants.iter().any(|grant| directory.starts_with(&grant.path));
        if is_seen { directory.clone() } else { Path::new("/").to_owned() }
    }

    /// Starts the process. Blocks until the program runs. What it is granted is looked at here and
    /// not earlier: it takes about a millisecond.
    ///
    /// # Errors
    ///
    /// A grant isn't an existing directory, or the program doesn't start.
    pub(crate) fn start(&self) -> Result<Child, String> {
        let Surroundings { config, folders, directory, .. } = &*self.around;
        let places = server_places(config, folders, directory, own_helper(), &self.name)
            .map_err(|error| error.to_string())?
            .ok_or("the configuration doesn't have it")?;
        let arguments = std::iter::once(&self.server.command).chain(&self.server.args);
        let command = Command {
            arguments: arguments.cloned().collect(),
            environment: places.environment.clone(),
            directory: self.directory(&places),
            network: places.network,
            path_rules: None,
            changes: None,
            output: None,
        };
        let end = Instant::now() + FOREVER;
        Child::start(&places.places, &command, 0, end, &CancellationToken::new())
            .map_err(|error| error.to_string())
    }
}
