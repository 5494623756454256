//! Rules about names: each thing has one name.

use std::collections::BTreeMap;

use super::tree::{File, Tree};
use super::{Violation, at};

/// Names that don't say what a function does.
const VAGUE: [&str; 4] = ["kept", "of", "says", "told"];

/// Names that public types of several crates below `host/` share, and why.
const SHARED: [(&str, &str); 23] = [
    ("Approvals", "approvals of plugins in catalogue; the table of the configuration in config"),
    ("Audit", "the writer of records in audit; the table of the configuration in config"),
    ("Autonomy", SETTINGS_AND_RULES),
    ("Blocklist", "with places of any kind in shell-commands; with the places of rules in policy"),
    ("Body", "the body of a part of an answer in contract; of a request in net"),
    ("Child", "a process in system; a guest's handle of one in engine"),
    ("Command", "a parsed command in shell-commands; a command to start in system"),
    ("Definition", "the definition of a tool in contract; the part that rules use in policy"),
    ("Dependencies", SETTINGS_AND_RULES),
    ("Finding", "a finding of a verification in audit; of an examination in core"),
    (
        "Limits",
        "limits of a call in engine; of a command in system; of a request in net; the table of the configuration in config",
    ),
    (
        "Network",
        "the table of the configuration in config; the rules in policy; the connections in net",
    ),
    ("Origin", "the origin of a rule in policy; of a plugin in engine"),
    ("Output", "the output of a tool in contract; of a process in system"),
    (
        "Pattern",
        "the pattern of a filter in contract; of a permission in policy; of a search in system",
    ),
    ("Part", "a part of a plugin in component; a part of a message in models"),
    ("Plugin", "a loaded plugin in engine; the table of the configuration in config"),
    ("Report", "the report of a call in contract; of an examination in core"),
    (
        "Request",
        "the request for a call in core; for a capability in engine; to the network in net",
    ),
    ("Scope", "the scope of an approval in answers; of a request in net; of a search in system"),
    ("Secret", "its configuration in config; its value in requests in net"),
    ("Source", "the source of a value in config; of a plugin in registry"),
    ("Web", SETTINGS_AND_RULES),
];

const SETTINGS_AND_RULES: &str = "the settings in config; the rules made of them in policy";

pub(crate) fn function_names_say_what_functions_do(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in tree.rust(&["host/", "plugins/", "tests/", "xtask/"]) {
        for (number, line) in source.code.lines().enumerate() {
            if let Some(name) = item(line, &["fn"]).filter(|name| VAGUE.contains(name)) {
                found.push(at(
                    file,
                    number + 1,
                    format!(
                        "`fn {name}` is too vague: use a verb that says what the function does"
                    ),
                ));
            }
        }
    }
    found
}

pub(crate) fn public_types_have_different_names(tree: &Tree) -> Vec<Violation> {
    // For each name, and each crate, the first declaration.
    let mut declared: BTreeMap<&str, BTreeMap<&str, (&File, usize)>> = BTreeMap::new();
    for (file, source) in tree.rust(&["host/"]) {
        let Some((owner, _)) =
            file.path.strip_prefix("host/").and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        for (number, line) in
            source.code.lines().enumerate().filter(|(number, _)| !file.is_test(number + 1))
        {
            // Only declarations at the start of a line: not those inside a function or a module.
            let Some(name) = line
                .strip_prefix("pub ")
                .and_then(|line| item(line, &["struct", "enum", "trait", "type"]))
            else {
                continue;
            };
            declared.entry(name).or_default().entry(owner).or_insert((file, number + 1));
        }
    }
    let mut found = Vec::new();
    for (name, crates) in declared.iter().filter(|(_, crates)| crates.len() > 1) {
        if SHARED.iter().any(|(shared, _)| shared == name) {
            continue;
        }
        let others: Vec<&str> = crates.keys().copied().collect();
        for (file, line) in crates.values() {
            let message = format!(
                "`{name}` is a public type of {}: rename one, or say in xtask/src/tidy/names.rs why both have the name",
                others.join(" and ")
            );
            found.push(at(file, *line, message));
        }
    }
    found
}

/// The name of the item that a line declares. `None` if it doesn't declare an item of one of these
/// kinds.
fn item<'l>(line: &'l str, kinds: &[&str]) -> Option<&'l str> {
    let mut words = line.trim_start().split_ascii_whitespace();
    words
        .find(|word| kinds.contains(word) || !is_modifier(word))
        .filter(|word| kinds.contains(word))?;
    let name = words.next()?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

fn is_modifier(word: &str) -> bool {
    matches!(word, "pub" | "async" | "const" | "unsafe" | "extern") || word.starts_with("pub(")
}
