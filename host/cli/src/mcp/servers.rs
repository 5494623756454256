//! `berth mcp add`, `remove`, `list` and `approve`: the servers whose tools Berth offers.

use std::io::Write;

use berth_core::config::{self, Folders};
use berth_core::text::neutral;
use berth_servers::Pins;

use crate::changed_file;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

/// Adds a server to the user's file. It isn't used before it is approved.
pub(super) fn add(name: &str, command: &[String], options: &Options) -> Result<Exit, Error> {
    berth_servers::check_name(name)?;
    change(options, |text| berth_servers::add(text, name, command))?;
    writeln!(anstream::stderr(), "`berth mcp approve {name}` starts it and shows its tools.")?;
    Ok(Exit::Success)
}

/// Removes a server from the user's file, and forgets its approval.
pub(super) fn remove(name: &str, options: &Options) -> Result<Exit, Error> {
    berth_servers::check_name(name)?;
    change(options, |text| berth_servers::remove(text, name))?;
    Pins::default().store(&Folders::from_environment()?, name)?;
    Ok(Exit::Success)
}

/// Changes the user's file, and shows the change.
fn change(
    options: &Options,
    edited: impl FnOnce(&str) -> Result<String, String>,
) -> Result<(), Error> {
    let path = options.config_file(&Folders::from_environment()?);
    if let Some(diff) = changed_file::change(&path, false, edited)? {
        write!(std::io::stdout().lock(), "{}", neutral(&diff))?;
    }
    Ok(())
}

/// Lists the servers of the configuration.
pub(super) fn list(as_json: bool, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    berth_servers::list(&host::load(options, &folders)?, &folders, as_json)
}

/// Shows a server, asks, and approves it.
pub(super) fn approve(name: &str, yes: bool, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let directory = config::working_directory()?;
    host::block_on(berth_servers::approve(&loaded, &folders, &directory, name, yes))
}
