//! `toolhold mcp add`, `remove`, `list`, `import`, `login`, `logout` and `approve`.

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
use crate::shown;

/// The most listed packages. The others are only counted, because a long list scrolls away what the
/// user approves.
const MAX_PACKAGES: usize = 10;

/// The most listed packages with `--full`.
const MAX_PACKAGES_IN_FULL: usize = 200;

/// Runs a subcommand. `file` is the user's `toolhold.toml`. `load` reads the whole configuration,
/// which some subcommands don't need.
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
            let mut rules = Vec::new();
            change(file, |text| {
                secrets = server_tables::secret_files(text, name);
                let after = server_tables::remove(text, name)?;
                rules = server_tables::tool_rules(&after, name);
                Ok(after)
            })?;
            let kept = kept_files(file, &secrets);
            if !kept.is_empty() {
                writeln!(
                    anstream::stderr(),
                    "The files with the server's secrets stay: {}",
                    kept.join(", ")
                )?;
            }
            warn_of_rules(&mut anstream::stderr(), file, name, &rules)?;
            Pins::default().store(folders, name)?;
            forget_tokens(folders, name, "")?;
            forget_packages(&folders.server_packages(name), None);
            Ok(Exit::Success)
        }
        ServersCommand::Login { name } => login(&load()?, folders, name).await,
        ServersCommand::Logout { name } => logout(&load()?, folders, name),
        ServersCommand::Import(arguments) => {
            import(arguments, file, folders, &load()?, confirm)?.into_exit()
        }
        ServersCommand::List { json } => list(&load()?, folders, *json),
        ServersCommand::Approve { name, yes, full } => {
            let answers = Approval { yes: *yes, full: *full };
            approve(&load()?, folders, &working_directory()?, name, answers).await
        }
    }
}

/// Names the permission rules of a removed server, each with its line in `file`. They stay, because
/// the user may have written them.
fn warn_of_rules(
    out: &mut impl Write,
    file: &Path,
    name: &str,
    rules: &[(String, usize)],
) -> std::io::Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "{WARNING}The rules for the server's tools stay{WARNING:#}, and also apply to a later \
         server named {name}. Remove them if you don't need them:"
    )?;
    let file = shown::path(file);
    for (tool, line) in rules {
        writeln!(out, "  {file}:{line}: {}", neutral_line(tool))?;
    }
    Ok(())
}

/// Refuses global options that have no effect on adding or removing a server. The error names the
/// right option.
pub(crate) fn reject_unused_options(
    command: &ServersCommand,
    options: &Options,
) -> Result<(), CommandError> {
    let is_add = match command {
        ServersCommand::Add(_) => true,
        ServersCommand::Remove { .. } => false,
        // These subcommands use the global options.
        _ => return Ok(()),
    };
    // Adding a server uses `--allow-read`.
    let is_read_unused = !is_add && !options.allow_read.is_empty();
    let unused = [
        ("--allow", !options.allow.is_empty(), "--allow-path DIR"),
        ("--allow-read", is_read_unused, "--allow-read DIR"),
        ("--plugin", !options.plugin.is_empty(), ""),
        ("--set", !options.set.is_empty(), ""),
    ];
    for (option, is_given, instead) in unused {
        if !is_given {
            continue;
        }
        let message = if is_add && !instead.is_empty() {
            format!(
                "`{option}` applies only to the built-in tools; to let the server use a directory, \
                 write `{instead}`"
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
    let state_column = 1;
    for state in &states {
        let name = &state.name;
        let tools = state.tools.len().to_string();
        table.row([name.clone(), state.state.to_owned(), tools, state.version.clone()]);
        let needs_approval = matches!(state.state, "unapproved" | "changed");
        if needs_approval {
            table.colour(state_column, WARNING);
        }
        if !state.reaches.is_empty() {
            table.detail(&format!("reaches {}", state.reaches.join(", ")));
        }
        if let Some(place) = &state.organisation {
            table.detail(&format!("approved for every user, in {}", shown::path(place)));
        }
        for (tool, reason) in &state.left_out {
            table.detail(&format!("{tool} is left out: {reason}"));
        }
        if let Some(reason) = &state.unpinned {
            table.detail(&format!("not pinned: {reason}"));
        }
        for pattern in &state.unmatched {
            table.detail(&format!("`tools` names `{pattern}`, but the server has no such tool"));
        }
        if let Some(line) = &state.unseen {
            let problem = "its arguments name a directory that isn't granted";
            table.detail(&format!("{problem}; to grant it: `{line}`"));
        }
        for host in &state.hosts {
            add_program(&mut table, host);
        }
        if needs_approval {
            table.detail(&format!("run `toolhold mcp approve {name}`"));
        } else if state.logged_out {
            let remedy = format!("run `toolhold mcp login {name}`");
            table.detail(&format!("the server's login is no longer valid: {remedy}"));
        }
    }
    table.print(&mut out)?;
    Ok(Exit::Success)
}

/// Adds a line about a server's program in a running host, unless the program is idle without a
/// problem.
fn add_program(table: &mut Table<4>, host: &HostState) {
    let HostState { pid, program } = host;
    let activity = match program.state {
        ProgramState::Idle if program.problem.is_none() => return,
        ProgramState::Idle => "doesn't run".to_owned(),
        ProgramState::Starting => "is starting".to_owned(),
        ProgramState::Running { seconds } => format!("has run for {seconds} s"),
        // After a failure, the next start must wait.
        ProgramState::Paused { seconds } => {
            format!("failed; the next start is possible in {seconds} s")
        }
    };
    table.detail(&format!("host with process {pid}: {activity}"));
    if let Some(problem) = &program.problem {
        for line in problem.lines() {
            table.detail(&format!("  {line}"));
        }
    }
    for line in program.complaint.lines() {
        table.detail(&format!("  {line}"));
    }
}

#[derive(Clone, Copy)]
struct Approval {
    yes: bool,
    full: bool,
}

/// Approves a server. Asks before the server starts, and again before its tools are pinned.
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
        &["allowed_paths", "network", "hosts", "presets", "env", "variables", "secrets"]
    } else {
        &["headers", "secrets"]
    };
    let question = if is_program {
        "Start the server in the sandbox to list its tools?"
    } else {
        "Connect to the server to list its tools?"
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

    let action = if is_program { "Starting the server" } else { "Connecting to the server" };
    writeln!(out, "{action}, and asking for its tools …")?;
    let inspection = inspect(config, folders, directory, name).await?;
    show(&mut out, &inspection, full, server.trust_annotations)?;
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
    if let Some((place, _)) = Pins::of_organisation(config, name, server)? {
        writeln!(
            out,
            "Stored, with {tools}{left_out}. Every user of this machine has the approval in {}. To \
             replace that approval, an administrator copies {} there.",
            shown::path(&place),
            shown::path(&Pins::path(folders, name))
        )?;
        return Ok(Exit::Success);
    }
    writeln!(
        out,
        "Approved, with {tools}{left_out}. The approval applies from the next call, also in \
         running hosts."
    )?;
    Ok(Exit::Success)
}

fn show(
    out: &mut impl Write,
    inspection: &Inspection,
    full: bool,
    trusts_promises: bool,
) -> Result<(), CommandError> {
    // Changes of approved packages must be shown, so they come before new packages.
    let (changed, new): (Vec<_>, Vec<_>) =
        inspection.packages.iter().partition(|(_, before, _)| before.is_some());
    let most = if full { MAX_PACKAGES_IN_FULL } else { MAX_PACKAGES };
    for (name, before, now) in changed.into_iter().chain(new).take(most) {
        match (before, now) {
            (Some(before), Some(now)) => writeln!(out, "~ package {name} {before} -> {now}")?,
            (Some(before), None) => writeln!(out, "- package {name} {before}")?,
            (None, now) => {
                writeln!(out, "+ package {name} {}", now.as_deref().unwrap_or_default())?;
            }
        }
    }
    let count = inspection.packages.len();
    if count > most {
        let more = counted((count - most) as u64, "more package");
        let hint = if full { "" } else { "; `--full` lists more" };
        writeln!(out, "  {more}{hint}")?;
    }
    let mut is_shortened = false;
    for (word, difference) in &inspection.differences {
        // Most differences are about tools, so this word is left out.
        let word = if *word == "tool" { String::new() } else { format!("{word} ") };
        match difference {
            ToolDifference::New(tool) => {
                let name = neutral_line(&tool.name);
                let lines = shown_tool::lines(&tool.definition);
                let card = if full {
                    lines.clone()
                } else {
                    shown_tool::card(&tool.definition, trusts_promises)
                };
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
        writeln!(out, "! `tools` names `{pattern}`, but the server has no such tool")?;
    }
    if is_shortened {
        writeln!(out, "{FAINT}`--full` shows each definition as models get it.{FAINT:#}")?;
    }
    writeln!(out, "`toolhold undo` restores nothing that this server changes.")?;
    Ok(())
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => neutral(text).into_owned(),
        other => neutral(&other.to_string()).into_owned(),
    }
}

/// Asks a question at the terminal.
///
/// # Errors
///
/// Returns an error if there is no terminal.
pub(crate) fn confirm(question: &str) -> Result<bool, CommandError> {
    let Some(mut dialogue) = ask::open_dialogue("nothing is changed") else {
        let message = "there is no terminal to ask at; `--yes` answers yes to all questions";
        return Err(CommandError::Unasked(message.to_owned()));
    };
    let default_answer = false;
    dialogue.yes_or_no(question, default_answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_removed_server_are_named_with_their_lines() {
        let said = |rules: &[(String, usize)]| {
            let mut out = Vec::new();
            warn_of_rules(&mut out, Path::new("/c/toolhold.toml"), "git", rules)
                .expect("it is written");
            String::from_utf8(out).expect("it is UTF-8")
        };
        assert_eq!(said(&[]), "");
        let text = said(&[("git__log".to_owned(), 4), ("git__*".to_owned(), 9)]);
        let lines = "\n  /c/toolhold.toml:4: git__log\n  /c/toolhold.toml:9: git__*\n";
        assert!(text.contains("server named git.") && text.ends_with(lines), "{text}");
    }

    #[test]
    fn changed_packages_are_listed_and_many_new_ones_counted() {
        let version = Some("1".to_owned());
        let mut packages = Vec::new();
        for number in 0..30 {
            packages.push((format!("new{number}"), None, version.clone()));
        }
        packages.push(("old".to_owned(), version, None));
        let inspection = Inspection {
            pins: Pins::default(),
            packages,
            differences: Vec::new(),
            offered: 0,
            left_out: Vec::new(),
            unmatched: Vec::new(),
        };
        let shown = |full| {
            let mut out = Vec::new();
            show(&mut out, &inspection, full, false).expect("it is written");
            String::from_utf8(out).expect("it is UTF-8")
        };
        let short = shown(false);
        assert!(short.starts_with("- package old 1\n+ package new0 1\n"), "{short}");
        assert!(short.contains("\n  21 more packages; `--full` lists more\n"), "{short}");
        assert!(short.contains("`toolhold undo` restores nothing"), "{short}");
        assert!(shown(true).contains("+ package new29 1\n"));
    }
}
