//! The groups in which `toolhold --help` lists the subcommands.

use std::fmt::Write as _;

use clap::Command;
use toolhold_terminal::shown;

/// The titles of the groups and their subcommands, in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Use", &["call", "tools", "run", "chat", "undo", "approvals"]),
    ("Connect", &["serve", "token", "connect", "mcp", "jobs", "tasks"]),
    ("Extend", &["plugin", "filter", "skills", "memory"]),
    ("Rules", &["init", "config", "policy", "allow", "trust"]),
    ("Look", &["audit", "models", "doctor", "demo", "generate"]),
];

/// The width of the column with the names, including the spaces around a name.
const NAME_COLUMN: usize = 13;

/// The spaces before a name.
const INDENT: usize = 2;

/// The number of columns up to which a description uses the width of the terminal.
const MAX_COLUMNS: usize = 100;

/// Gives `command` a help text that lists the subcommands in groups. clap can group only options.
pub(super) fn with_groups(command: Command) -> Command {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let columns = shown::columns().map(|columns| columns.min(MAX_COLUMNS));
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    // The results of `writeln!` are ignored, because writing to a string never fails.
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{header}{group}:{header:#}");
        for name in names {
            let subcommand = command.find_subcommand(name);
            let about = subcommand.and_then(Command::get_about).unwrap_or_default();
            let wrapped = shown::wrap(&about.to_string(), NAME_COLUMN, columns);
            let width = NAME_COLUMN - INDENT;
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}{wrapped}");
        }
    }
    let _ =
        write!(text, "\n{header}Options for every command:{header:#}\n{{options}}{{after-help}}");
    command.help_template(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_subcommand_is_in_one_group() {
        let mut grouped = BTreeSet::new();
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            assert!(grouped.insert(*name), "{name} is in two groups");
            assert!(name.len() + 4 <= NAME_COLUMN, "{name} needs more columns");
        }
        let command = Arguments::command();
        let all: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!(grouped, all, "a subcommand has no group, or a group has no such subcommand");
    }

    #[test]
    fn help_lists_every_group_with_its_subcommands() {
        let help = with_groups(Arguments::command()).render_long_help().to_string();
        assert!(
            help.contains("\nConnect:\n  serve      Serve the tools to the MCP client"),
            "{help}"
        );
        assert!(help.contains("\nOptions for every command:\n      --allow <DIRECTORY>"), "{help}");
        assert!(help.contains("  -V, --version") && help.contains("Exit codes:"), "{help}");
        assert!(!help.contains("Commands:"), "{help}");
    }
}
