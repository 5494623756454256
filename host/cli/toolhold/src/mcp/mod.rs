//! `toolhold mcp`: upstream servers.

mod add;
mod import;
mod login;
mod proposed;
mod server_tables;
mod servers;
mod shown_tool;

use std::path::Path;

use toolhold_core::config::{Config, Folders};

use self::import::ImportOutcome;
pub(crate) use self::import::{Moved, clients_with_servers, find_client, is_connected, moved};
use crate::arguments::servers::{ImportArguments, ServersCommand};
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

pub(crate) fn run(command: &ServersCommand, options: &Options) -> Result<Exit, Error> {
    servers::reject_unused_options(command, options)?;
    let folders = Folders::from_environment()?;
    let file = options.config_file(&folders);
    host::block_on(servers::run(command, &file, &folders, || host::load(options, &folders)))
}

/// Imports the servers of all the user's clients into `file`, the user's `toolhold.toml`. With
/// `yes`, nothing is asked, as with `--yes`.
///
/// # Errors
///
/// Returns an error if the clients' folders aren't known, or if the servers can't be written.
pub(crate) fn import_servers(
    file: &Path,
    folders: &Folders,
    config: &Config,
    yes: bool,
) -> Result<ImportOutcome, Error> {
    let arguments = ImportArguments { client: None, project: false, yes };
    import::import(&arguments, file, folders, config, servers::confirm)
}
