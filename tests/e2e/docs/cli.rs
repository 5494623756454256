//! The page of the commands, generated from `--help`.

use std::fmt::Write as _;
use std::process::Command;

use crate::support::toolhold;

/// The options of every command, which the page shows once.
const SHARED: &str = "Options for every command:\n";

/// What stands before the commands.
const INTRODUCTION: &str = "\
# CLI reference

This page is generated from `toolhold COMMAND --help`. To change it, change the help, run
`cargo xtask test -- page_of_commands_equals_the_help`, and copy the file that the test names.
";

/// The page.
pub(super) fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    section(&mut page, &mut Vec::new());
    page
}

fn section(page: &mut String, names: &mut Vec<String>) {
    let help = help(names);
    // Of the subcommands, only their own options.
    let shown = match (names.is_empty(), help.split_once(SHARED)) {
        (false, Some((own, shared))) => {
            // An indented line continues the options; text after them belongs to the command again.
            let behind = shared.find("\n\n").and_then(|_| {
                shared.lines().position(|line| !line.is_empty() && !line.starts_with(' '))
            });
            let behind = behind
                .map(|at| shared.lines().skip(at).collect::<Vec<_>>().join("\n"))
                .unwrap_or_default();
            format!("{own}{behind}")
        }
        _ => help.clone(),
    };
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    let _ = write!(
        page,
        "\n## `{}`\n\n```text\n{}\n```\n",
        [&["toolhold".to_owned()][..], names].concat().join(" "),
        lines.join("\n").trim_end()
    );
    for name in below(&help) {
        names.push(name);
        section(page, names);
        names.pop();
    }
}

/// The commands that a help lists. That of `toolhold` itself has them in groups.
fn below(help: &str) -> Vec<String> {
    let headings = ["Commands:", "Use:", "Connect:", "Extend:", "Rules:", "Look:"];
    let mut is_list = false;
    let mut names = Vec::new();
    for line in help.lines() {
        let Some(indented) = line.strip_prefix("  ") else {
            is_list = headings.contains(&line);
            continue;
        };
        let name = indented.split(' ').next().unwrap_or_default();
        if is_list && !name.is_empty() && name != "help" {
            names.push(name.to_owned());
        }
    }
    names
}

fn help(names: &[String]) -> String {
    let output = Command::new(toolhold())
        .args(names)
        .arg("--help")
        .env("COLUMNS", "100")
        .output()
        .expect("toolhold runs");
    assert!(output.status.success(), "{names:?}");
    String::from_utf8(output.stdout).expect("it is UTF-8")
}
