//! `berth mcp list` and `approve`: the servers whose tools Berth offers, for people.

use std::io::Write;
use std::path::Path;

use berth_core::config::{Folders, Loaded};
use berth_core::text::{counted, neutral, neutral_line, shell_word};
use berth_terminal::ask;
use berth_terminal::error::CommandError;
use berth_terminal::exit::Exit;
use berth_terminal::style::{FAINT, STRONG};
use serde_json::{Value, json};

use crate::approval::{Inspection, inspect, states};
use crate::pins::ToolDifference;

/// Checks the name of a new server.
///
/// # Errors
///
/// What names may be.
pub fn check_name(name: &str) -> Result<(), CommandError> {
    let valid =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.len() <= 24
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(valid)
    {
        return Ok(());
    }
    Err(CommandError::Usage(
        "the name takes 1 to 24 of a-z, 0-9 and `-`, starting with a letter".to_owned(),
    ))
}

/// Lists the servers of the configuration. Starts none. Blocks.
///
/// # Errors
///
/// The approvals can't be read, or the list can't be written.
pub fn list(config: &Loaded, folders: &Folders, as_json: bool) -> Result<Exit, CommandError> {
    let states = states(config, folders)?;
    if as_json {
        writeln!(std::io::stdout().lock(), "{:#}", json!(states))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    if states.is_empty() {
        writeln!(out, "Your configuration has no server; `berth mcp add` adds one.")?;
    }
    for state in &states {
        let (name, tools) = (&state.name, counted(state.tools.len() as u64, "tool"));
        writeln!(
            out,
            "{STRONG}{name:24}{STRONG:#} {:10} {tools}  {FAINT}{}{FAINT:#}",
            state.state, state.version
        )?;
        for (tool, reason) in &state.left_out {
            writeln!(out, "  {tool} is left out: {}", neutral_line(reason))?;
        }
        if matches!(state.state, "unapproved" | "changed") {
            writeln!(out, "  run `berth mcp approve {name}`")?;
        }
    }
    Ok(Exit::Success)
}

/// Shows how the server is started, asks, starts it, shows what it offers, asks again, and pins it.
/// `yes`: asks nothing.
///
/// # Errors
///
/// There is no such server, nobody can be asked, or the server can't be used.
pub async fn approve(
    config: &Loaded,
    folders: &Folders,
    directory: &Path,
    name: &str,
    yes: bool,
) -> Result<Exit, CommandError> {
    let Some(server) = config.config.mcp.servers.get(name) else {
        let name = neutral_line(name);
        return Err(CommandError::Usage(format!("your configuration has no [mcp.servers.{name}]")));
    };
    let mut out = anstream::stdout();
    let words: Vec<String> =
        std::iter::once(&server.command).chain(&server.args).map(|word| shell_word(word)).collect();
    writeln!(out, "{STRONG}{name}{STRONG:#} starts: {}", neutral_line(&words.join(" ")))?;
    let all = serde_json::to_value(server).unwrap_or_default();
    for key in ["allowed_paths", "network", "presets", "env", "variables"] {
        writeln!(out, "  {key} = {}", neutral_line(&all[key].to_string()))?;
    }
    if !yes && !confirm("Start it in the sandbox, to see its tools?")? {
        writeln!(out, "It was not started.")?;
        return Ok(Exit::Denied);
    }
    let inspection = inspect(config, folders, directory, name).await?;
    show(&mut out, &inspection)?;
    if !yes && !confirm(&format!("Approve {name}?"))? {
        writeln!(out, "It is not approved.")?;
        return Ok(Exit::Denied);
    }
    inspection.pins.store(folders, name)?;
    let tools = counted(inspection.pins.tools.len() as u64, "tool");
    writeln!(out, "Approved, with {tools}. Hosts that start from now on offer them.")?;
    Ok(Exit::Success)
}

fn show(out: &mut impl Write, inspection: &Inspection) -> Result<(), CommandError> {
    let part = |value: &Value| match value {
        Value::String(text) => neutral(text).into_owned(),
        other => neutral(&other.to_string()).into_owned(),
    };
    for (word, difference) in &inspection.differences {
        // Most are tools.
        let word = if *word == "tool" { String::new() } else { format!("{word} ") };
        match difference {
            ToolDifference::New(tool) => {
                let name = neutral_line(&tool.name);
                writeln!(out, "+ {word}{name}\n  {}", part(&tool.definition))?;
            }
            ToolDifference::Missing(name) => writeln!(out, "- {word}{}", neutral_line(name))?,
            ToolDifference::Changed(name, parts) => {
                writeln!(out, "~ {word}{}", neutral_line(name))?;
                for (key, before, after) in parts {
                    writeln!(out, "  {key}\n  - {}\n  + {}", part(before), part(after))?;
                }
            }
        }
    }
    for (tool, reason) in &inspection.left_out {
        writeln!(out, "! {tool} is left out: {}", neutral_line(reason))?;
    }
    Ok(())
}

fn confirm(question: &str) -> Result<bool, CommandError> {
    let Some(mut dialogue) = ask::open_dialogue("it is not approved") else {
        let message = "there is no terminal to ask at; `--yes` approves";
        return Err(CommandError::Unasked(message.to_owned()));
    };
    dialogue.yes_or_no(question, false)
}
