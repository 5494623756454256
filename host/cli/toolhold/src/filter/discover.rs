//! `toolhold filter discover`: finds the commands that need a new rule most.

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

/// The number of listed commands.
const SHOWN: usize = 20;

/// The most different commands that are counted, because the audit log may have any number.
const MAX_COMMANDS: usize = 10_000;

/// The most characters of a command in the table.
const WIDTH: usize = 60;

/// An estimate of the bytes per token.
const BYTES_PER_TOKEN: u64 = 4;

/// The most characters of a rule's name.
const MAX_RULE_NAME: usize = 40;

/// Lists the commands whose output no rule matches, and prints a rule for the first.
pub(super) fn run(host: &Host, as_json: bool) -> Result<Exit, Error> {
    const NUMBER_COLUMNS: &[usize] = &[1, 2, 3];
    let unknown = unknown_commands(host)?;
    if as_json {
        let mut rows = Vec::new();
        for (command, Outputs { calls, bytes, .. }) in &unknown {
            rows.push(json!({ "command": command, "calls": calls, "bytes": bytes }));
        }
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
    let mut table = Table::new(["COMMAND", "CALLS", "BYTES", "TOKENS"], NUMBER_COLUMNS);
    for (command, Outputs { calls, bytes, .. }) in &unknown {
        let shown: String = command.chars().take(WIDTH).collect();
        let tokens = format!("~{}", bytes / BYTES_PER_TOKEN);
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

struct Outputs {
    is_known: bool,
    calls: u64,
    bytes: u64,
}

/// Returns the commands whose output no rule matches, sorted by the size of the output.
fn unknown_commands(host: &Host) -> Result<Vec<(String, Outputs)>, Error> {
    let mut outputs_by_command: BTreeMap<String, Outputs> = BTreeMap::new();
    Trail::open(&Folders::from_environment()?)?.command_outputs(&mut |text, bytes| {
        let Some(last) = commands::last_command(text) else { return };
        let command = first_words(&last.line);
        let is_full = outputs_by_command.len() == MAX_COMMANDS;
        if is_full && !outputs_by_command.contains_key(&command) {
            return;
        }
        // Commands with a rule are also in the map, so that `knows_output` runs once per command.
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

/// Returns a rule for `filters.toml` that removes repeated lines from the output of `command`.
fn rule_for(command: &str) -> String {
    let mut name = String::new();
    for c in command.chars().take(MAX_RULE_NAME) {
        name.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    }
    format!(
        "[[rules]]\nname = \"{}\"\nmatch = {{ prefix = {} }}\nstrategy = {{ type = \"dedup\" }}\n",
        name.trim_matches('-'),
        shown::toml(&json!(command))
    )
}

/// Returns the program and, if there is one, its subcommand.
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
