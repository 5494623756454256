//! `toolhold allow`: writes a grant for a directory or a host, or a rule that allows a tool, into
//! the user's `toolhold.toml`.

use std::io::Write;
use std::path::Path;

use toolhold_core::ToolGlob;
use toolhold_core::config::insert::{self, AllowRule};
use toolhold_core::config::{self, Folders, PathAccess};
use toolhold_core::text::neutral_line;

use crate::arguments::AllowArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::granted_folder::folder_at;
use crate::options::Options;
use crate::shown;
use crate::style::warn;

/// Grants a directory or a host, or allows a tool.
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

fn grant_directory(directory: &Path, is_read_only: bool, folders: &Folders) -> Result<(), Error> {
    let here = config::working_directory()?;
    let real = folder_at(&here.join(directory), folders, &here).map_err(|error| {
        Error::Usage(format!("{} can't be granted: {error}", shown::path(directory)))
    })?;
    let (access, verbs) = if is_read_only {
        (PathAccess::Read, "read")
    } else {
        (PathAccess::ReadWrite, "read and write")
    };
    let file = insert::directory(folders, &real, access)?;
    if std::env::home_dir().is_some_and(|home| home.starts_with(&real)) {
        warn(
            "your home contains keys, passwords and your shell's history, and every tool may see \
             them now; grant the folders of projects instead",
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

/// Writes a rule that allows every call of a tool, or of the tools that a glob matches.
fn allow_tool(name: &str, folders: &Folders) -> Result<(), Error> {
    let shown_name = neutral_line(name);
    if !name.contains("__") {
        return Err(Error::Usage(format!(
            "`{shown_name}` isn't a tool of a plugin or server (as `git__status` is): allow a \
             built-in tool by a rule with a pattern, [[tools.permissions.{shown_name}]]"
        )));
    }
    ToolGlob::new(name).map_err(|error| Error::Usage(error.to_string()))?;
    let rule = AllowRule { tool: name.to_owned(), pattern: "*".to_owned(), is_glob: true };
    let file = insert::permission(folders, &rule)?;
    writeln!(
        anstream::stdout(),
        "Calls of {shown_name} now run without approval, unless another rule asks or denies.\n\
         Written to {}.",
        shown::path(&file)
    )?;
    Ok(())
}

/// Returns Toolhold's folders.
///
/// # Errors
///
/// The command line names another file than the user's own `toolhold.toml`.
pub(crate) fn folders_of_own_file(options: &Options) -> Result<Folders, Error> {
    let folders = Folders::from_environment()?;
    let file = options.config_file(&folders);
    if file != folders.config_file() {
        let file = shown::path(&file);
        return Err(Error::Usage(format!(
            "this command changes only your own toolhold.toml, and {file} is used instead; add the \
             line to that file yourself"
        )));
    }
    Ok(folders)
}
