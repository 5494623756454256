//! `toolhold mcp add`: makes the table of a server from the command line, proposes what else the
//! server seems to need, and writes the table.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};
use toolhold_core::config::{AllowedPath, Folders, McpServer, PathAccess, working_directory};
use toolhold_core::text::neutral_line;
use toolhold_mcp_client::{
    GrantProposal, ProposalContext, missing_secrets, proposals, with_proposals,
};
use toolhold_terminal::ask;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{STRONG, WARNING};

use crate::arguments::servers::AddServerArguments;
use crate::granted_folder::folder_at;
use crate::mcp::import::{check_address, check_command, check_loads, is_secret};
use crate::mcp::proposed::{make_folders, show_proposals};
use crate::mcp::server_tables::{self, change, check_name};

/// Runs the command. `file` is the user's `toolhold.toml`.
pub(crate) fn add(
    arguments: &AddServerArguments,
    file: &Path,
    folders: &Folders,
) -> Result<Exit, CommandError> {
    let name = &arguments.name;
    check_name(name)?;
    let directory = working_directory()?;
    let server = server(arguments, folders, &directory)?;
    let variables = ProposalContext::environment();
    let context = ProposalContext { folders, directory: &directory, variables: &variables };
    let proposals = proposals(name, &server, &context);
    check_addable(name, &server, file, folders)?;

    let mut err = anstream::stderr();
    if !arguments.host.is_empty() {
        writeln!(
            err,
            "Programs get the network as a whole, so `network = true` is written for {}.",
            neutral_line(&arguments.host.join(", "))
        )?;
    }
    let server = decide(name, server, &proposals, arguments.yes)?;
    change(file, |text| server_tables::add(text, name, &server))?;
    for secret in missing_secrets(&server, &context) {
        writeln!(
            err,
            "{WARNING}It needs {secret}{WARNING:#}: add it with `--secret {secret}=env:VARIABLE` \
             or `--secret {secret}=file:PATH`."
        )?;
    }
    writeln!(err, "`toolhold mcp approve {name}` shows its tools.")?;
    Ok(Exit::Success)
}

/// Checks that the table can be added and that the configuration loads with it, before anything is
/// asked.
fn check_addable(
    name: &str,
    server: &McpServer,
    file: &Path,
    folders: &Folders,
) -> Result<(), CommandError> {
    let table = server_tables::add("", name, server).map_err(CommandError::usage)?;
    check_loads(name, &table, folders).map_err(CommandError::usage)?;
    // A missing file is made; one that can't be read is an error when it is changed.
    let text = std::fs::read_to_string(file).unwrap_or_default();
    server_tables::add(&text, name, server).map_err(CommandError::usage)?;
    Ok(())
}

/// Shows what is proposed, and grants it if a person or `--yes` says so.
fn decide(
    name: &str,
    server: McpServer,
    proposals: &[GrantProposal],
    yes: bool,
) -> Result<McpServer, CommandError> {
    if proposals.is_empty() {
        return Ok(server);
    }
    let granted = with_proposals(&server, proposals).map_err(CommandError::usage)?;
    let mut err = anstream::stderr();
    writeln!(err, "{STRONG}{name} seems to need more than it is granted:{STRONG:#}")?;
    show_proposals(&mut err, "  ", &server, &granted, proposals)?;
    if !yes {
        let Some(mut dialogue) = ask::open_dialogue("nothing is changed") else {
            writeln!(
                err,
                "It is added without these lines, since there is no terminal to ask at. Write \
                 them in [mcp.servers.{name}], or remove the server and add it with `--yes`."
            )?;
            return Ok(server);
        };
        if !dialogue.yes_or_no("Grant that?", false)? {
            return Ok(server);
        }
    }
    make_folders(proposals)?;
    Ok(granted)
}

/// Makes the server of the command line.
fn server(
    arguments: &AddServerArguments,
    folders: &Folders,
    directory: &Path,
) -> Result<McpServer, CommandError> {
    let mut table = json!({ "secrets": secrets(&arguments.secret, directory)? });
    match (&arguments.url, &arguments.command[..]) {
        (Some(url), _) => {
            check_address(url).map_err(CommandError::usage)?;
            table["url"] = json!(url);
        }
        (None, []) => {
            let message = "add `--url URL`, or `--` and the command that starts the server";
            return Err(CommandError::Usage(message.to_owned()));
        }
        (None, [program, own_arguments @ ..]) => {
            check_command(&arguments.command).map_err(CommandError::usage)?;
            table["command"] = json!(program);
            table["args"] = json!(own_arguments);
        }
    }

    let mut allowed = Vec::new();
    for (paths, access) in
        [(&arguments.allow_path, PathAccess::ReadWrite), (&arguments.allow_read, PathAccess::Read)]
    {
        for path in paths {
            allowed.push(AllowedPath { path: allowed_path(path, folders, directory)?, access });
        }
    }
    let mut names = Vec::new();
    let mut variables = Map::new();
    for variable in &arguments.env {
        match variable.split_once('=') {
            None => names.push(variable),
            Some((name, value)) if is_secret(name, value) => {
                return Err(CommandError::Usage(format!(
                    "the value of `{0}` looks like a credential, which must not be in \
                     toolhold.toml: use `--secret {0}=env:VARIABLE` or `--secret {0}=file:PATH`",
                    neutral_line(name)
                )));
            }
            Some((name, value)) => drop(variables.insert(name.to_owned(), json!(value))),
        }
    }
    table["allowed_paths"] = json!(allowed);
    table["network"] = json!(arguments.network || !arguments.host.is_empty());
    table["presets"] = json!(arguments.preset);
    table["env"] = json!(names);
    table["variables"] = Value::Object(variables);
    serde_json::from_value(table).map_err(CommandError::usage)
}

/// Returns the form of a directory in the file.
fn allowed_path(path: &Path, folders: &Folders, directory: &Path) -> Result<String, CommandError> {
    folder_at(path, folders, directory).map_err(CommandError::usage)
}

/// Reads the secrets of the command line: NAME=env:VARIABLE or NAME=file:PATH.
fn secrets(written: &[String], directory: &Path) -> Result<Value, CommandError> {
    let mut secrets = Map::new();
    for secret in written {
        let Some((name, source)) = secret.split_once('=') else {
            return Err(CommandError::usage(
                "--secret takes a name and a source: NAME=env:VARIABLE or NAME=file:PATH",
            ));
        };
        let source = match source.split_once(':') {
            Some(("env", variable)) => json!({ "env": variable }),
            Some(("file", path)) if path.starts_with("~/") => json!({ "file": path }),
            // In the file, a relative path would start at the folder of that file.
            Some(("file", path)) => json!({ "file": directory.join(path) }),
            // The text may be the secret itself, so it isn't shown.
            _ => {
                return Err(CommandError::Usage(format!(
                    "--secret takes the source of the secret, never the secret itself: \
                     {0}=env:VARIABLE or {0}=file:PATH",
                    neutral_line(name)
                )));
            }
        };
        secrets.insert(name.to_owned(), source);
    }
    Ok(Value::Object(secrets))
}
