//! `toolhold filter discover`: finds the commands for which a new rule would be useful.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;
use toolhold_core::config::Folders;
use toolhold_core::{Host, Trail, commands};

use crate::error::Error;
use crate::exit::Exit;
use crate::shown;
use crate::style::FAINT;
use toolhold_terminal::table::Table;

/// Commands that are shown.
const SHOWN: usize = 20;

/// The most commands that are counted separately. Others are left out, because the audit log may
/// have any number of commands.
const MAX_COMMANDS: usize = 10_000;

/// Characters of a command in the table.
const WIDTH: usize = 60;

/// Lists commands whose output no rule knows.
pub(super) fn run(host: &Host, as_json: bool) -> Result<Exit, Error> {
    let unknown = unknown_commands(host)?;
    if as_json {
        let rows: Vec<_> = unknown
            .iter()
            .map(|(command, Outputs { calls, bytes, .. })| {
                json!({ "command": command, "calls": calls, "bytes": bytes })
            })
            .collect();
        writeln!(io::stdout().lock(), "{:#}", json!(rows))?;
        return Ok(Exit::Success);
    }
    let Some((first, _)) = unknown.first() else {
        writeln!(
            anstream::stdout(),
            "The rules match the outputs of all commands in the audit log."
        )?;
        return Ok(Exit::Success);
    };
    let mut table = Table::new(["COMMAND", "CALLS", "BYTES", "TOKENS"], &[1, 2, 3]);
    for (command, Outputs { calls, bytes, .. }) in &unknown {
        let shown: String = command.chars().take(WIDTH).collect();
        let tokens = format!("~{}", bytes / 4);
        table.row([shown, calls.to_string(), bytes.to_string(), tokens]);
    }
    table.print(&mut anstream::stdout().lock())?;
    let file = host.filter_rules().map(|rules| shown::path(&rules.path));
    writeln!(
        anstream::stdout(),
        "\n{FAINT}A rule for the first command, for {}:{FAINT:#}\n\n{}\n{FAINT}To try the rule: \
         toolhold filter try --command {} OUTPUT_FILE{FAINT:#}",
        file.as_deref().unwrap_or("filters.toml"),
        rule_for(first),
        shown::shell_word(first),
    )?;
    Ok(Exit::Success)
}

/// The outputs of a command in the audit log.
struct Outputs {
    /// Whether a rule matches the outputs.
    is_known: bool,
    calls: u64,
    bytes: u64,
}

/// Returns the commands whose output no rule matches, the one with the longest output first.
fn unknown_commands(host: &Host) -> Result<Vec<(String, Outputs)>, Error> {
    let mut outputs_by_command: BTreeMap<String, Outputs> = BTreeMap::new();
    Trail::open(&Folders::from_environment()?)?.command_outputs(&mut |text, bytes| {
        let Some(last) = commands::last_command(text) else { return };
        let command = first_words(&last.line);
        let is_full = outputs_by_command.len() == MAX_COMMANDS;
        if is_full && !outputs_by_command.contains_key(&command) {
            return;
        }
        // A known command stays in the map, so that its rules are looked up only once.
        let outputs = outputs_by_command.entry(command).or_insert_with_key(|command| Outputs {
            is_known: host.knows_output(command),
            calls: 0,
            bytes: 0,
        });
        outputs.calls += 1;
        outputs.bytes += bytes;
    })?;

    let mut unknown: Vec<(String, Outputs)> = outputs_by_command.into_iter().collect();
    unknown.retain(|(_, outputs)| !outputs.is_known && outputs.bytes > 0);
    unknown.sort_by_key(|(_, outputs)| std::cmp::Reverse(outputs.bytes));
    unknown.truncate(SHOWN);
    Ok(unknown)
}

/// Writes a rule in the form of `filters.toml`.
fn rule_for(command: &str) -> String {
    let name: String = command
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(40)
        .collect();
    format!(
        "[[rules]]\nname = \"{}\"\nmatch = {{ prefix = {} }}\nstrategy = {{ type = \"dedup\" }}\n",
        name.trim_matches('-'),
        shown::toml(&json!(command))
    )
}

/// Returns the name of the program, followed by its subcommand if there is one.
fn first_words(command: &str) -> String {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    match words.next() {
        Some(word) if is_subcommand(word) => format!("{program} {word}"),
        _ => program.to_owned(),
    }
}

fn is_subcommand(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_lowercase())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_:".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_known_by_its_program_and_subcommand() {
        for (command, words) in [
            ("terraform plan -out x", "terraform plan"),
            ("seq 1 10", "seq"),
            ("python3 tool.py run", "python3"),
            ("task run:all", "task run:all"),
            ("ls -la src", "ls"),
            ("", ""),
        ] {
            assert_eq!(first_words(command), words, "{command}");
        }
    }
}
