//! How a server is started.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_core::config::{Folders, Loaded, McpServer, OwnFolder};
use berth_core::{CancellationToken, ServerPlaces, own_helper, server_places};
use berth_system::confine::{Tree, TreeAccess};
use berth_system::process::{Child, Command};

use crate::packages::{self, Line};

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
    /// The lock of the packages that its runner would fetch. Empty: it fetches none that are
    /// pinned.
    lock: String,
}

impl Launch {
    /// The start of the server of this name.
    pub(crate) fn new(
        around: &Arc<Surroundings>,
        name: &str,
        server: &McpServer,
        lock: String,
    ) -> Self {
        let (name, server, around) = (name.to_owned(), server.clone(), Arc::clone(around));
        Self { name, server, around, lock }
    }

    /// With the lock of what its package runner means now. Blocks, for minutes perhaps.
    ///
    /// # Errors
    ///
    /// Its packages can't be resolved.
    pub(crate) fn resolved(self) -> Result<Self, String> {
        let Some(line) = self.line() else { return Ok(self) };
        let lock = packages::resolve(&line, self.places()?, &self.folder())?;
        packages::fetch(&line, &lock, || self.places(), &self.folder())?;
        Ok(Self { lock, ..self })
    }

    /// The lock of its packages.
    pub(crate) fn lock(&self) -> &str {
        &self.lock
    }

    /// What its package runner is told, if Berth pins what that fetches.
    fn line(&self) -> Option<Line> {
        Line::parse(&self.server.command, &self.server.args).ok().flatten()
    }

    /// The folder of its packages.
    fn folder(&self) -> PathBuf {
        self.around.folders.server_packages(&self.name)
    }

    fn places(&self) -> Result<ServerPlaces, String> {
        let Surroundings { config, folders, directory, .. } = &*self.around;
        let places = server_places(config, folders, directory, own_helper(), &self.name);
        let places = places.map_err(|error| error.to_string())?;
        places.ok_or_else(|| "the configuration doesn't have it".to_owned())
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
    /// A grant isn't an existing directory, its packages can't be fetched, or the program doesn't
    /// start.
    pub(crate) fn start(&self) -> Result<Child, String> {
        let mut places = self.places()?;
        let arguments = match self.line() {
            Some(line) => {
                let fetched = packages::fetch(&line, &self.lock, || self.places(), &self.folder())?;
                let path = fetched.folder.display().to_string();
                places.places.also.push(Tree { path, access: TreeAccess::Read });
                let program = fetched.program.display().to_string();
                std::iter::once(program).chain(line.arguments).collect()
            }
            None => {
                std::iter::once(&self.server.command).chain(&self.server.args).cloned().collect()
            }
        };
        let command = Command {
            arguments,
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
