//! `toolhold allow`: writes a grant for a directory or a host into the user's `toolhold.toml`.

use std::io::Write;
use std::path::Path;

use toolhold_core::config::{self, Folders, PathAccess, insert};
use toolhold_core::text::neutral_line;

use crate::arguments::AllowArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::init;
use crate::options::Options;
use crate::shown;
use crate::style::warn;

/// Grants a directory or a host.
pub(crate) fn run(arguments: &AllowArguments, options: &Options) -> Result<Exit, Error> {
    let own = own_file(options)?;
    if let Some(path) = &arguments.directory {
        directory(path, arguments.read, &own)?;
    }
    if let Some(name) = &arguments.host {
        host(name, &own)?;
    }
    Ok(Exit::Success)
}

fn directory(directory: &Path, is_read_only: bool, own: &Folders) -> Result<(), Error> {
    let here = config::working_directory()?;
    let real = init::folder_at(&here.join(directory), own, &here).map_err(|error| {
        Error::Usage(format!("{} can't be granted: {error}", shown::path(directory)))
    })?;
    let (access, may) = if is_read_only {
        (PathAccess::Read, "read")
    } else {
        (PathAccess::ReadWrite, "read and write")
    };
    let file = insert::directory(own, &real, access)?;
    if std::env::home_dir().is_some_and(|home| home.starts_with(&real)) {
        warn(
            "your home contains keys, passwords and your shell's history, and every tool may see \
             them now; grant the folders of projects instead",
        )?;
    }
    writeln!(
        anstream::stdout(),
        "File tools may now {may} {}, and so may commands, unless [tools.shell] has its own \
         `allowed_paths`.\nWritten to {}.",
        neutral_line(&real),
        shown::path(&file)
    )?;
    Ok(())
}

fn host(name: &str, own: &Folders) -> Result<(), Error> {
    let file = insert::host(own, name)?;
    writeln!(
        anstream::stdout(),
        "The web tools may now reach {} without asking.\nWritten to {}.",
        neutral_line(name),
        shown::path(&file)
    )?;
    Ok(())
}

/// The folders, if the user's own file counts.
pub(crate) fn own_file(options: &Options) -> Result<Folders, Error> {
    let own = Folders::from_environment()?;
    let file = options.config_file(&own);
    if file == own.config_file() {
        Ok(own)
    } else {
        let file = shown::path(&file);
        Err(Error::Usage(format!(
            "this command changes only your own toolhold.toml, and {file} is used instead; add the \
             line to that file yourself"
        )))
    }
}
