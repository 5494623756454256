//! `toolhold allow`: writes a grant of a directory or host, or a rule that allows a tool, into the
//! user's `toolhold.toml`.

use std::io::Write;
use std::path::Path;

use toolhold_core::ToolGlob;
use toolhold_core::config::insert::{self, AllowRule};
use toolhold_core::config::{self, Folders, PathAccess};
use toolhold_core::text::neutral_line;

use crate::arguments::AllowArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::granted_folder::real_folder;
use crate::options::Options;
use crate::shown;
use crate::style::warn;

/// The note about a glob of tools. Such a glob doesn't allow destructive tools, because a person
/// can't see in it which tools it matches.
const DESTRUCTIVE_TOOLS_ASK: &str = "\
Tools that say that they may destroy something still need approval; allow each by its full name.
";

pub(crate) fn run(arguments: &AllowArguments, options: &Options) -> Result<Exit, Error> {
    let folders = folders_of_own_file(options)?;
    if let Some(path) = &arguments.directory {
        grant_directory(path, arguments.read, &folders)?;
    }
    if let Some(name) = &arguments.host {
        grant_host(name, &folders)?;
    }
    if let Some(name) = &arguments.tool {
        allow_tool(name, &folders)?;
    }
    Ok(Exit::Success)
}

/// Grants a directory to the file tools. Warns if the directory contains the user's home.
fn grant_directory(directory: &Path, is_read_only: bool, folders: &Folders) -> Result<(), Error> {
    let here = config::working_directory()?;
    let real = real_folder(directory, folders, &here).map_err(|error| {
        Error::Usage(format!("{} can't be granted: {error}", shown::path(directory)))
    })?;
    let (access, verbs) = if is_read_only {
        (PathAccess::Read, "read")
    } else {
        (PathAccess::ReadWrite, "read and write")
    };
    let file = insert::directory(folders, &real, access)?;
    let contains_home = std::env::home_dir().is_some_and(|home| home.starts_with(&real));
    if contains_home {
        warn(
            "your home contains keys, passwords and your shell's history, and every tool may now \
             read these files; grant the folders of projects instead",
        )?;
    }
    writeln!(
        anstream::stdout(),
        "File tools may now {verbs} {}, and so may commands, unless [tools.shell] has its own \
         `allowed_paths`.\nWritten to {}.",
        neutral_line(&real),
        shown::path(&file)
    )?;
    Ok(())
}

/// Grants a host to the web tools.
fn grant_host(name: &str, folders: &Folders) -> Result<(), Error> {
    let file = insert::host(folders, name)?;
    writeln!(
        anstream::stdout(),
        "The web tools may now reach {} without asking.\nWritten to {}.",
        neutral_line(name),
        shown::path(&file)
    )?;
    Ok(())
}

/// Allows all calls of a tool of a plugin or server. `name` may be a pattern, such as `git__*`.
fn allow_tool(name: &str, folders: &Folders) -> Result<(), Error> {
    let shown_name = neutral_line(name);
    if !name.contains("__") {
        return Err(Error::Usage(format!(
            "`{shown_name}` isn't a tool of a plugin or server, such as `git__status`. To allow a \
             built-in tool, write a rule with a pattern: [[tools.permissions.{shown_name}]]"
        )));
    }
    let glob = ToolGlob::new(name).map_err(|error| Error::Usage(error.to_string()))?;
    let note = if glob.is_some() { DESTRUCTIVE_TOOLS_ASK } else { "" };
    let rule = AllowRule { tool: name.to_owned(), pattern: "*".to_owned(), is_glob: true };
    let file = insert::permission(folders, &rule)?;
    writeln!(
        anstream::stdout(),
        "Calls of {shown_name} now run without approval, unless another rule asks or denies.\n\
         {note}Written to {}.",
        shown::path(&file)
    )?;
    Ok(())
}

/// Returns Toolhold's folders, for a command that changes the user's `toolhold.toml`.
///
/// # Errors
///
/// Returns an error if the command line or the environment names another configuration file.
pub(crate) fn folders_of_own_file(options: &Options) -> Result<Folders, Error> {
    let folders = Folders::from_environment()?;
    let file = options.config_file(&folders);
    if file != folders.config_file() {
        let file = shown::path(&file);
        return Err(Error::Usage(format!(
            "this command changes only your own toolhold.toml, but {file} is used instead; add the \
             line to that file by hand"
        )));
    }
    Ok(folders)
}
