//! `toolhold connect`: adds Toolhold to the files of an MCP client, and removes it again.

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

pub(crate) use self::list::{FoundClient, found_clients};
use self::plan::Plan;
use crate::arguments::connect::ConnectArguments;
use crate::ask::{self, Dialogue};
use crate::error::Error;
use crate::exit::Exit;
use crate::mcp::find_client;
use crate::options::Options;
use crate::shown;
use crate::style::{FAINT, STRONG};

/// Connects or disconnects a client, or prints its entry. If the arguments name no client, lists
/// the known clients.
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

/// Checks that `toolhold connect NAME` can work with `options`.
pub(crate) fn check(name: &str, options: &Options) -> Result<(), Error> {
    find_client(name)?;
    let yes = true;
    server::server(&ConnectArguments::of_client(name, yes), options)?;
    Ok(())
}

/// Shows the changes that connect a client, and makes them if the person agrees.
fn connect(
    client: &'static Client,
    arguments: &ConnectArguments,
    server: &ServerConfig,
    options: &Options,
) -> Result<Exit, Error> {
    let asks_person = !arguments.yes && !arguments.json;
    let mut dialogue = if asks_person { ask::open_dialogue("nothing was changed") } else { None };
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
        describe_connection(client, arguments, server)?;
    }
    Ok(Exit::Success)
}

/// Asks whether to switch off the client's own tools. Returns `false` if this isn't possible.
fn ask_for_own_tools<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    client: &Client,
) -> Result<bool, Error> {
    let can_switch_off = matches!(client.own_tools_off(), ClientState::Settings(..));
    if !can_switch_off {
        return Ok(false);
    }
    let title = client.title;
    dialogue.print(&format!(
        "{title} has its own tools for files, commands and the web. Toolhold's rules don't apply \
         to these tools."
    ))?;
    let default_answer = false;
    dialogue.yes_or_no(&format!("Disable {title}'s own tools?"), default_answer)
}

/// Asks whether to make a change. Fails if there is no terminal.
fn confirm<R: BufRead, W: Write>(
    dialogue: Option<&mut Dialogue<R, W>>,
    question: &str,
) -> Result<bool, Error> {
    match dialogue {
        Some(dialogue) => {
            let default_answer = true;
            dialogue.yes_or_no(question, default_answer)
        }
        None => {
            let message = "there is no terminal to ask at; `--yes` makes the change";
            Err(Error::Unasked(message.to_owned()))
        }
    }
}

/// Prints when the connection takes effect, and how to undo it.
fn describe_connection(
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
    let name = match &arguments.name {
        Some(name) => format!(" --name {name}"),
        None => String::new(),
    };
    writeln!(
        out,
        "{STRONG}{title} is connected from its next start on.{STRONG:#} To take this back: \
         `toolhold connect {}{project}{name} --undo`",
        client.name
    )?;
    Ok(())
}

/// Prints the server's entry in the client's file. If the client has no file, prints the command
/// that adds the server.
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
        let words = client.command(arguments.server_name(), server);
        if arguments.json {
            writeln!(out, "{:#}", json!({ "client": client.name, "command": words }))?;
        } else {
            writeln!(out, "{}", command_line(&words))?;
        }
        return Ok(Exit::Success);
    };
    if arguments.json {
        let whole = object(client.table, object(arguments.server_name(), entry));
        let report = json!({ "client": client.name, "file": file, "config": whole });
        writeln!(out, "{report:#}")?;
        return Ok(Exit::Success);
    }
    let empty_file = "";
    let text = edit(client.format, empty_file, client.table, arguments.server_name(), &entry)
        .map_err(Error::usage)?;
    write!(out, "{text}")?;
    let file = shown::path(&file);
    writeln!(
        anstream::stderr(),
        "{FAINT}Without `--print`, Toolhold adds this to {file} and keeps the rest of the \
         file.{FAINT:#}"
    )?;
    Ok(Exit::Success)
}

fn object(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}

fn command_line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shown::shell_word(word)).collect();
    neutral(&words.join(" ")).into_owned()
}

/// Runs a client's command, and returns `true`. If the program isn't in `PATH`, prints the command
/// and returns `false`.
fn run_or_print(words: &[String]) -> Result<bool, Error> {
    let Some((program, arguments)) = words.split_first() else { return Ok(true) };
    let line = command_line(words);
    let Some(path) = server::find_program(program) else {
        writeln!(
            anstream::stderr(),
            "`{program}` isn't in PATH. Run this command where `{program}` is installed:\n  {line}"
        )?;
        return Ok(false);
    };
    // The client's output must not mix with this command's output.
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
