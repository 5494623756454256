//! `toolhold token new`.

use std::io::Write;

use serde_json::json;
use toml_edit::{Array, InlineTable};
use toolhold_core::HostError;
use toolhold_core::config::{self, Folders, Inputs, PathAccess};
use toolhold_mcp_server::{LocalTokens, NewToken, TokenError};

use super::time;
use crate::arguments::token::NewTokenArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;

/// The keys with the directories of the file tools and of commands.
const FILE_DIRECTORIES: &str = "tools.file.allowed_paths";
const COMMAND_DIRECTORIES: &str = "tools.shell.allowed_paths";

pub(super) fn run(
    arguments: &NewTokenArguments,
    options: &Options,
    folders: &Folders,
    tokens: &LocalTokens,
) -> Result<Exit, Error> {
    let new = NewToken {
        name: arguments.name.clone(),
        groups: arguments.groups.clone(),
        table: arguments.table.clone(),
        lifetime: arguments.expires,
        bounds: bounds(options, folders)?,
    };
    let (record, token) = tokens.make(new).map_err(|error| match error {
        TokenError::Host(error) => Error::Host(error),
        error => Error::usage(error),
    })?;
    let mut out = anstream::stdout().lock();
    let expires = time(record.expires);
    if arguments.json {
        let made =
            json!({ "id": record.id, "name": record.name, "expires": expires, "token": token });
        writeln!(out, "{made:#}")?;
    } else {
        writeln!(out, "{token}")?;
        writeln!(
            anstream::stderr(),
            "The token is valid until {expires}, and isn't shown again. To revoke it: toolhold \
             token revoke {}",
            record.id
        )?;
    }
    Ok(Exit::Success)
}

/// Returns the limits that the options set, or nothing without such an option. Refuses options that
/// allow more than the configuration.
fn bounds(options: &Options, folders: &Folders) -> Result<Vec<String>, Error> {
    let mut inputs = options.inputs()?;
    if inputs.allow.is_empty() && inputs.settings.is_empty() {
        return Ok(Vec::new());
    }
    let has_directories = !inputs.allow.is_empty();
    if has_directories {
        set_directories(&mut inputs)?;
    }
    let narrowed = config::load(folders, &inputs).map_err(HostError::from)?;
    let mut bounds = narrowed.task_bounds()?;
    if has_directories {
        // The configuration may have fewer directories for commands than for file tools. The token
        // then also has fewer.
        bounds.by_flags.retain(|key| key != COMMAND_DIRECTORIES);
    }
    if bounds.by_flags.is_empty() {
        return Ok(bounds.texts);
    }
    let keys = bounds.by_flags.join(", ");
    Err(Error::Usage(format!(
        "a token can't allow more than your configuration, but the options allow more for: {keys}"
    )))
}

/// Replaces the directories of the configuration by those of `--allow` and `--allow-read`. In other
/// commands, these options add directories.
fn set_directories(inputs: &mut Inputs) -> Result<(), Error> {
    let mut directories = Array::new();
    for (path, access) in std::mem::take(&mut inputs.allow) {
        let real = path
            .canonicalize()
            .map_err(|error| Error::Usage(format!("{} can't be used: {error}", path.display())))?;
        let Some(real) = real.to_str() else {
            return Err(Error::Usage(format!("the path {} isn't UTF-8", real.display())));
        };
        let access = match access {
            PathAccess::Read => "read",
            PathAccess::ReadWrite => "read-write",
        };
        let mut directory = InlineTable::new();
        directory.insert("path", real.into());
        directory.insert("access", access.into());
        directories.push(directory);
    }
    for key in [FILE_DIRECTORIES, COMMAND_DIRECTORIES] {
        inputs.settings.push(format!("{key}={directories}"));
    }
    Ok(())
}
