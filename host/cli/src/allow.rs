//! `toolhold allow` and `toolhold allow-host`: write a grant into the user's `toolhold.toml`.

use std::io::Write;

use toolhold_core::config::{self, Folders, PathAccess, insert};
use toolhold_core::text::neutral_line;

use crate::arguments::{AllowArguments, AllowHostArguments};
use crate::error::Error;
use crate::exit::Exit;
use crate::init;
use crate::options::Options;
use crate::shown;

/// Grants a directory.
pub(crate) fn directory(arguments: &AllowArguments, options: &Options) -> Result<Exit, Error> {
    let own = own_file(options)?;
    let here = config::working_directory()?;
    let usage = |why: String| {
        Error::Usage(format!("{} can't be granted: {why}", shown::path(&arguments.directory)))
    };
    let path = here.join(&arguments.directory);
    let path = path.to_str().ok_or_else(|| usage("its name is not UTF-8".to_owned()))?;
    let real = init::folder(path, &own, &here).map_err(usage)?;
    let (access, may) = match arguments.read {
        true => (PathAccess::Read, "read"),
        false => (PathAccess::ReadWrite, "read and write"),
    };
    let file = insert::directory(&own, &real, access)?;
    writeln!(
        anstream::stdout(),
        "File tools may {may} {} now, and commands too unless `allowed_paths` of [tools.shell] says otherwise.\nWritten to {}.",
        neutral_line(&real),
        shown::path(&file)
    )?;
    Ok(Exit::Success)
}

/// Grants a host.
pub(crate) fn host(arguments: &AllowHostArguments, options: &Options) -> Result<Exit, Error> {
    let own = own_file(options)?;
    let file = insert::host(&own, &arguments.host)?;
    writeln!(
        anstream::stdout(),
        "The web tools reach {} without asking now.\nWritten to {}.",
        neutral_line(&arguments.host),
        shown::path(&file)
    )?;
    Ok(Exit::Success)
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
            "this command writes your own toolhold.toml, and {file} is used instead: add the line there by hand"
        )))
    }
}
