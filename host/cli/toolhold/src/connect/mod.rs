//! `toolhold connect`: puts Toolhold into the files of an MCP client, and takes it out again.

mod list;
mod plan;
mod record;
mod server;
mod undo;

use std::io::{BufRead, Write};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};
use toolhold_core::config::Folders;
use toolhold_core::text::neutral;
use toolhold_mcp_client::client_files::{Client, ClientState, ServerConfig, edit};

pub(crate) use self::list::found_clients;
use self::plan::Plan;
use crate::arguments::connect::ConnectArguments;
use crate::ask::{self, Dialogue};
use crate::error::Error;
use crate::exit::Exit;
use crate::mcp::find_client;
use crate::options::Options;
use crate::shown;
use crate::style::{FAINT, STRONG};

/// Runs the command.
pub(crate) fn run(arguments: &ConnectArguments, options: &Options) -> Result<Exit, Error> {
    let Some(name) = &arguments.client else { return list::list(arguments.json) };
    let client = find_client(name)?;
    if arguments.undo {
        return undo::undo(client, arguments);
    }
    let server = server::server(arguments, options)?;
    if arguments.print {
        return print_entry(client, arguments, &server);
    }
    connect(client, arguments, &server, options)
}

/// Checks that a client can be connected with these options.
///
/// # Errors
///
/// No client has this name, or the options belong to the server.
pub(crate) fn check(name: &str, options: &Options) -> Result<(), Error> {
    find_client(name)?;
    server::server(&ConnectArguments::of_client(name, true), options)?;
    Ok(())
}

/// Shows the change, asks, and makes it.
fn connect(
    client: &'static Client,
    arguments: &ConnectArguments,
    server: &ServerConfig,
    options: &Options,
) -> Result<Exit, Error> {
    let asks = !arguments.yes && !arguments.json;
    let mut dialogue = if asks { ask::open_dialogue("nothing was changed") } else { None };
    let mut only_toolhold = arguments.only_toolhold;
    if let Some(dialogue) = &mut dialogue
        && !only_toolhold
    {
        only_toolhold = ask_for_own_tools(dialogue, client)?;
    }
    let folders = Folders::from_environment()?;
    let plan = Plan::new(client, arguments, server, only_toolhold, options, &folders)?;
    if arguments.json {
        if arguments.yes {
            plan.make(&folders)?;
        }
        writeln!(std::io::stdout().lock(), "{:#}", plan.to_json(client, arguments.yes))?;
        return Ok(Exit::Success);
    }

    plan.show()?;
    if plan.is_empty() {
        writeln!(anstream::stderr(), "{} is connected already.", client.title)?;
        return Ok(Exit::Success);
    }
    if !arguments.yes && !confirm(dialogue.as_mut(), "Make this change?")? {
        writeln!(anstream::stderr(), "Nothing was changed.")?;
        return Ok(Exit::Denied);
    }
    if plan.make(&folders)? {
        describe_next(client, arguments, server)?;
    }
    Ok(Exit::Success)
}

/// Asks whether the client's own tools are switched off, if the client has a setting for that.
fn ask_for_own_tools<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    client: &Client,
) -> Result<bool, Error> {
    if !matches!(client.own_tools_off(), ClientState::Settings(..)) {
        return Ok(false);
    }
    let title = client.title;
    dialogue.print(&format!(
        "{title} has its own tools for files, commands and the web. No rule of Toolhold applies to \
         them."
    ))?;
    dialogue.yes_or_no(&format!("Switch off the own tools of {title}?"), false)
}

/// Asks at the terminal.
///
/// # Errors
///
/// There is no terminal.
fn confirm<R: BufRead, W: Write>(
    dialogue: Option<&mut Dialogue<R, W>>,
    question: &str,
) -> Result<bool, Error> {
    match dialogue {
        Some(dialogue) => dialogue.yes_or_no(question, true),
        None => {
            let message = "there is no terminal to ask at; `--yes` makes the change";
            Err(Error::Unasked(message.to_owned()))
        }
    }
}

/// Says what the user does next.
fn describe_next(
    client: &Client,
    arguments: &ConnectArguments,
    server: &ServerConfig,
) -> Result<(), Error> {
    let mut out = anstream::stderr();
    let title = client.title;
    if let ServerConfig::Http { variable: Some(variable), .. } = server {
        writeln!(out, "{title} reads the server's token from the variable {variable}.")?;
    }
    let project = if arguments.project { " --project" } else { "" };
    writeln!(
        out,
        "{STRONG}{title} is connected from its next start on.{STRONG:#} To take this back: \
         `toolhold connect {}{project} --undo`",
        client.name
    )?;
    Ok(())
}

/// Prints the entry for the client's file, or the command that adds it.
fn print_entry(
    client: &Client,
    arguments: &ConnectArguments,
    server: &ServerConfig,
) -> Result<Exit, Error> {
    let entry = client.entry(server).map_err(Error::usage)?;
    let file = if arguments.project {
        Some(client.project_file().map_err(Error::usage)?)
    } else {
        client.user_file().map_err(Error::usage)?
    };
    let mut out = std::io::stdout().lock();
    let Some(file) = file else {
        let words = client.command(&arguments.name, server);
        if arguments.json {
            writeln!(out, "{:#}", json!({ "client": client.name, "command": words }))?;
        } else {
            writeln!(out, "{}", command_line(&words))?;
        }
        return Ok(Exit::Success);
    };
    if arguments.json {
        let whole = object(client.table, object(&arguments.name, entry));
        let report = json!({ "client": client.name, "file": file, "config": whole });
        writeln!(out, "{report:#}")?;
        return Ok(Exit::Success);
    }
    let text =
        edit(client.format, "", client.table, &arguments.name, &entry).map_err(Error::usage)?;
    write!(out, "{text}")?;
    let file = shown::path(&file);
    writeln!(
        anstream::stderr(),
        "{FAINT}Without `--print`, this goes into {file}, and the rest of the file stays.{FAINT:#}"
    )?;
    Ok(Exit::Success)
}

fn object(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}

/// Formats a command for a shell.
fn command_line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shown::shell_word(word)).collect();
    neutral(&words.join(" ")).into_owned()
}

/// Runs a command of a client, or prints it if the client isn't in `PATH`. Returns whether the
/// command ran.
fn run_or_print(words: &[String]) -> Result<bool, Error> {
    let Some((program, arguments)) = words.split_first() else { return Ok(true) };
    let line = command_line(words);
    let Some(path) = server::find_program(program) else {
        writeln!(anstream::stderr(), "`{program}` isn't in PATH. Run this where it is:\n  {line}")?;
        return Ok(false);
    };
    // The output of the client isn't the output of this command.
    let status = Command::new(path)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(toolhold_core::HostError::io(format!("running {program}")))?;
    if !status.success() {
        return Err(Error::Usage(format!("`{line}` failed: {status}")));
    }
    Ok(true)
}
