//! `toolhold mcp add`, `remove`, `list` and `approve`: changes, shows and approves upstream
//! servers.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::ProgramState;
use toolhold_core::config::{Config, Folders, working_directory};
use toolhold_core::text::{counted, neutral, neutral_line, shell_word};
use toolhold_mcp_client::{
    HostState, Inspection, Pins, ToolDifference, forget_packages, forget_tokens, inspect, states,
    unpinned,
};
use toolhold_terminal::ask;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{FAINT, STRONG, WARNING};
use toolhold_terminal::table::Table;

use crate::arguments::servers::ServersCommand;
use crate::mcp::add::add;
use crate::mcp::import::{import, kept_files};
use crate::mcp::login::{login, logout};
use crate::mcp::server_tables::{self, change, check_name};
use crate::mcp::shown_tool;
use crate::options::Options;

/// Most packages that are shown.
const MAX_PACKAGES: usize = 200;

/// Runs the command. `file` is the user's `toolhold.toml`, and `load` reads the whole
/// configuration.
///
/// # Errors
///
/// The errors of the command.
pub(crate) async fn run(
    command: &ServersCommand,
    file: &Path,
    folders: &Folders,
    load: impl FnOnce() -> Result<Config, CommandError>,
) -> Result<Exit, CommandError> {
    match command {
        ServersCommand::Add(arguments) => add(arguments, file, folders),
        ServersCommand::Remove { name } => {
            check_name(name)?;
            let mut secrets = Vec::new();
            change(file, |text| {
                secrets = server_tables::secret_files(text, name);
                server_tables::remove(text, name)
            })?;
            let kept = kept_files(file, &secrets);
            if !kept.is_empty() {
                writeln!(
                    anstream::stderr(),
                    "The files with the server's secrets stay: {}",
                    kept.join(", ")
                )?;
            }
            Pins::default().store(folders, name)?;
            forget_tokens(folders, name, "")?;
            forget_packages(&folders.server_packages(name), None);
            Ok(Exit::Success)
        }
        ServersCommand::Login { name } => login(&load()?, folders, name).await,
        ServersCommand::Logout { name } => logout(&load()?, folders, name),
        ServersCommand::Import(arguments) => import(arguments, file, folders, &load()?, confirm),
        ServersCommand::List { json } => list(&load()?, folders, *json),
        ServersCommand::Approve { name, yes, full } => {
            let answers = Approval { yes: *yes, full: *full };
            approve(&load()?, folders, &working_directory()?, name, answers).await
        }
    }
}

/// Refuses options of every command that have no effect on a command that only changes the file.
///
/// # Errors
///
/// There is such an option. The error names the right one.
pub(crate) fn reject_unused_options(
    command: &ServersCommand,
    options: &Options,
) -> Result<(), CommandError> {
    let is_add = match command {
        ServersCommand::Add(_) => true,
        ServersCommand::Remove { .. } => false,
        _ => return Ok(()),
    };
    let has_read = !is_add && !options.allow_read.is_empty();
    let unused = [
        ("--allow", !options.allow.is_empty(), "--allow-path DIR"),
        ("--allow-read", has_read, "--allow-read DIR"),
        ("--plugin", !options.plugin.is_empty(), ""),
        ("--set", !options.set.is_empty(), ""),
    ];
    for (option, is_given, instead) in unused {
        if !is_given {
            continue;
        }
        let message = if is_add && !instead.is_empty() {
            format!(
                "`{option}` is about the built-in tools; to let the server use a directory, write \
                 `{instead}`"
            )
        } else {
            format!("`{option}` has no effect on this command, which only changes toolhold.toml")
        };
        return Err(CommandError::Usage(message));
    }
    Ok(())
}

fn list(config: &Config, folders: &Folders, as_json: bool) -> Result<Exit, CommandError> {
    let states = states(config, folders)?;
    if as_json {
        writeln!(std::io::stdout().lock(), "{:#}", json!(states))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    if states.is_empty() {
        writeln!(out, "Your configuration has no servers; `toolhold mcp add` adds one.")?;
    }
    let mut table = Table::new(["NAME", "STATE", "TOOLS", "VERSION"], &[2]);
    for state in &states {
        let name = &state.name;
        let tools = state.tools.len().to_string();
        table.row([name.clone(), state.state.to_owned(), tools, state.version.clone()]);
        let needs_approval = matches!(state.state, "unapproved" | "changed");
        if needs_approval {
            table.colour(1, WARNING);
        }
        for (tool, reason) in &state.left_out {
            table.detail(&format!("{tool} is left out: {reason}"));
        }
        if let Some(reason) = &state.unpinned {
            table.detail(&format!("not pinned: {reason}"));
        }
        for pattern in &state.unmatched {
            let pattern = neutral_line(pattern);
            writeln!(out, "  `tools` names `{pattern}`, which is none of its tools")?;
        }
        if let Some(line) = &state.unseen {
            writeln!(out, "  its arguments name a directory that it doesn't see: `{line}`")?;
        }
        for host in &state.hosts {
            add_program(&mut table, host);
        }
        if needs_approval {
            table.detail(&format!("run `toolhold mcp approve {name}`"));
        } else if state.logged_out {
            let remedy = format!("run `toolhold mcp login {name}`");
            table.detail(&format!("the server's login is gone: {remedy}"));
        }
    }
    if !states.is_empty() {
        table.print(&mut out)?;
    }
    Ok(Exit::Success)
}

/// Adds what a server is doing in a running host. A server that waits for its first call has no
/// line.
fn add_program(table: &mut Table<4>, host: &HostState) {
    let HostState { pid, program } = host;
    let doing = match program.state {
        ProgramState::Idle if program.problem.is_none() => return,
        ProgramState::Idle => "doesn't run".to_owned(),
        ProgramState::Starting => "is starting".to_owned(),
        ProgramState::Running { seconds } => format!("has run for {seconds} s"),
        ProgramState::Paused { seconds } => {
            format!("failed; the next start is possible in {seconds} s")
        }
    };
    table.detail(&format!("host with process {pid}: {doing}"));
    for line in program.problem.iter().flat_map(|problem| problem.lines()) {
        table.detail(&format!("  {line}"));
    }
    for line in program.complaint.lines() {
        table.detail(&format!("  {line}"));
    }
}

/// How a server is approved.
#[derive(Clone, Copy)]
struct Approval {
    /// Whether nothing is asked.
    yes: bool,
    /// Whether each definition is shown as a whole.
    full: bool,
}

/// Approves a server. Shows the start command, asks, and starts the server. Then shows its tools,
/// asks again, and pins the server.
async fn approve(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    name: &str,
    approval: Approval,
) -> Result<Exit, CommandError> {
    let Approval { yes, full } = approval;
    let Some(server) = config.values.mcp.servers.get(name) else {
        let name = neutral_line(name);
        return Err(CommandError::Usage(format!("your configuration has no [mcp.servers.{name}]")));
    };
    let mut out = anstream::stdout();
    let is_program = server.url.is_empty();
    let start = if is_program {
        let words = std::iter::once(&server.command).chain(&server.args);
        let quoted: Vec<String> = words.map(|word| shell_word(word)).collect();
        format!("starts: {}", quoted.join(" "))
    } else {
        format!("is at {}", server.url)
    };
    let keys: &[&str] = if is_program {
        &["allowed_paths", "network", "presets", "env", "variables", "secrets"]
    } else {
        &["headers", "secrets"]
    };
    let question = if is_program {
        "Start the server in the sandbox, to see its tools?"
    } else {
        "Connect to the server, to see its tools?"
    };
    writeln!(out, "{STRONG}{name}{STRONG:#} {}", neutral_line(&start))?;
    let table = serde_json::to_value(server).unwrap_or_default();
    for key in keys {
        writeln!(out, "  {key} = {}", neutral_line(&table[key].to_string()))?;
    }
    if let Some(reason) = unpinned(server) {
        writeln!(out, "  {WARNING}not pinned{WARNING:#}: {}", neutral_line(&reason))?;
    }
    if !yes && !confirm(question)? {
        let verb = if is_program { "started" } else { "asked" };
        writeln!(out, "The server was not {verb}.")?;
        return Ok(Exit::Denied);
    }

    let inspection = inspect(config, folders, directory, name).await?;
    show(&mut out, &inspection, full)?;
    if !yes && !confirm(&format!("Approve {name}?"))? {
        writeln!(out, "The server is not approved.")?;
        return Ok(Exit::Denied);
    }
    inspection.pins.store(folders, name)?;
    forget_packages(&folders.server_packages(name), Some(&inspection.pins.lock));
    let tools = counted(inspection.offered as u64, "tool");
    let left_out = match inspection.left_out.len() {
        0 => String::new(),
        many => format!("; {many} left out"),
    };
    writeln!(
        out,
        "Approved, with {tools}{left_out}. The approval applies from the next call, also in \
         running hosts."
    )?;
    Ok(Exit::Success)
}

fn show(out: &mut impl Write, inspection: &Inspection, full: bool) -> Result<(), CommandError> {
    for (name, before, now) in inspection.packages.iter().take(MAX_PACKAGES) {
        match (before, now) {
            (Some(before), Some(now)) => writeln!(out, "~ package {name} {before} -> {now}")?,
            (Some(before), None) => writeln!(out, "- package {name} {before}")?,
            (None, now) => {
                writeln!(out, "+ package {name} {}", now.as_deref().unwrap_or_default())?;
            }
        }
    }
    let count = inspection.packages.len();
    if count > MAX_PACKAGES {
        writeln!(out, "  {}", counted((count - MAX_PACKAGES) as u64, "more package"))?;
    }
    let mut is_shortened = false;
    for (word, difference) in &inspection.differences {
        // Most are tools.
        let word = if *word == "tool" { String::new() } else { format!("{word} ") };
        match difference {
            ToolDifference::New(tool) => {
                let name = neutral_line(&tool.name);
                let lines = shown_tool::lines(&tool.definition);
                let card = if full { lines.clone() } else { shown_tool::card(&tool.definition) };
                is_shortened |= card != lines;
                write!(out, "+ {word}{name}\n{card}")?;
            }
            ToolDifference::Missing(name) => writeln!(out, "- {word}{}", neutral_line(name))?,
            ToolDifference::Changed(name, parts) => {
                writeln!(out, "~ {word}{}", neutral_line(name))?;
                for (key, before, after) in parts {
                    let before = shown_value(before);
                    let after = shown_value(after);
                    writeln!(out, "  {key}\n  - {before}\n  + {after}")?;
                }
            }
        }
    }
    for (tool, reason) in &inspection.left_out {
        writeln!(out, "! {tool} is left out: {}", neutral_line(reason))?;
    }
    for pattern in &inspection.unmatched {
        let pattern = neutral_line(pattern);
        writeln!(out, "! `tools` names `{pattern}`, which is none of its tools")?;
    }
    if is_shortened {
        writeln!(out, "{FAINT}`--full` shows each definition as models read it.{FAINT:#}")?;
    }
    Ok(())
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => neutral(text).into_owned(),
        other => neutral(&other.to_string()).into_owned(),
    }
}

fn confirm(question: &str) -> Result<bool, CommandError> {
    let Some(mut dialogue) = ask::open_dialogue("nothing is changed") else {
        let message = "there is no terminal to ask at; `--yes` answers yes to all questions";
        return Err(CommandError::Unasked(message.to_owned()));
    };
    dialogue.yes_or_no(question, false)
}
