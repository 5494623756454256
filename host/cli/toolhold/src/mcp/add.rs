//! `toolhold mcp add`: writes the table of a server, with proposed grants.

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
use crate::granted_folder::real_folder;
use crate::mcp::import::{check_address, check_command, check_loads, is_secret};
use crate::mcp::proposed::{make_folders, show_proposals};
use crate::mcp::server_tables::{self, change, check_name};

/// Adds a server to `file`, the user's `toolhold.toml`. First asks about the grants that the server
/// seems to need.
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

    let server = decide(name, server, &proposals, arguments.yes)?;
    change(file, |text| server_tables::add(text, name, &server))?;
    let mut err = anstream::stderr();
    for secret in missing_secrets(&server, &context) {
        writeln!(
            err,
            "{WARNING}The server needs {secret}{WARNING:#}: add the value with `--secret \
             {secret}=env:VARIABLE` or `--secret {secret}=file:PATH`."
        )?;
    }
    writeln!(err, "`toolhold mcp approve {name}` shows the server's tools.")?;
    Ok(Exit::Success)
}

/// Checks that the configuration is valid with the table of the new server.
fn check_addable(
    name: &str,
    server: &McpServer,
    file: &Path,
    folders: &Folders,
) -> Result<(), CommandError> {
    let empty_file = "";
    let table = server_tables::add(empty_file, name, server).map_err(CommandError::usage)?;
    check_loads(name, &table, folders).map_err(CommandError::usage)?;
    // A missing file has no text. An unreadable file makes the command fail later, when the file is
    // changed.
    let text = std::fs::read_to_string(file).unwrap_or_default();
    server_tables::add(&text, name, server).map_err(CommandError::usage)?;
    Ok(())
}

/// Shows the proposed grants. Returns the server with these grants if the user agrees, or else
/// unchanged. With `--yes` (`has_yes`), the user has already agreed.
fn decide(
    name: &str,
    server: McpServer,
    proposals: &[GrantProposal],
    has_yes: bool,
) -> Result<McpServer, CommandError> {
    if proposals.is_empty() {
        return Ok(server);
    }
    let granted = with_proposals(&server, proposals).map_err(CommandError::usage)?;
    let mut err = anstream::stderr();
    writeln!(err, "{STRONG}{name} seems to need more grants:{STRONG:#}")?;
    show_proposals(&mut err, "  ", &server, &granted, proposals)?;
    if !has_yes {
        let Some(mut dialogue) = ask::open_dialogue("nothing is changed") else {
            writeln!(
                err,
                "The server is added without these grants, because there is no terminal to ask at. \
                 Write the lines in [mcp.servers.{name}], or remove the server and add it again \
                 with `--yes`."
            )?;
            return Ok(server);
        };
        let default_answer = false;
        if !dialogue.yes_or_no("Add these grants?", default_answer)? {
            return Ok(server);
        }
    }
    make_folders(proposals)?;
    Ok(granted)
}

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
            let path = real_folder(path, folders, directory).map_err(CommandError::usage)?;
            allowed.push(AllowedPath { path, access });
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
            Some((name, value)) => {
                variables.insert(name.to_owned(), json!(value));
            }
        }
    }
    table["allowed_paths"] = json!(allowed);
    table["network"] = json!(arguments.network);
    table["hosts"] = json!(arguments.host);
    table["presets"] = json!(arguments.preset);
    table["env"] = json!(names);
    table["variables"] = Value::Object(variables);
    serde_json::from_value(table).map_err(CommandError::usage)
}

/// Parses the secrets of the command line, such as `NAME=env:VARIABLE` or `NAME=file:PATH`, as a
/// JSON object. Relative paths start at `directory`, the working directory.
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
            // In `toolhold.toml`, a relative path would start at the folder of this file.
            Some(("file", path)) => json!({ "file": directory.join(path) }),
            // The error must not repeat the text, because the user may have written the secret.
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
