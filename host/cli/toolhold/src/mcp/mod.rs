//! `toolhold mcp`: upstream servers.

mod add;
mod import;
mod login;
mod proposed;
mod server_tables;
mod servers;
mod shown_tool;

use toolhold_core::config::Folders;

pub(crate) use self::import::{Moved, find_client, is_connected, moved};
use crate::arguments::servers::ServersCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

/// Runs the command.
pub(crate) fn run(command: &ServersCommand, options: &Options) -> Result<Exit, Error> {
    servers::reject_unused_options(command, options)?;
    let folders = Folders::from_environment()?;
    let file = options.config_file(&folders);
    host::block_on(servers::run(command, &file, &folders, || host::load(options, &folders)))
}
