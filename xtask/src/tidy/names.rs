//! Rules about names: one word for one thing.

use std::collections::BTreeMap;

use super::tree::{File, Tree};
use super::{Violation, at};

/// Names that say nothing of what a function does.
const EMPTY: [&str; 4] = ["kept", "of", "says", "told"];

/// Public types of one name in several crates below `host/`, and why.
const SHARED: [(&str, &str); 21] = [
    ("Approvals", "of plugins in catalogue; the table of the configuration in config"),
    ("Audit", "what writes the records in audit; the table of the configuration in config"),
    ("Autonomy", WRITTEN),
    ("Blocklist", "of any places in commands; with the places of rules in policy"),
    ("Body", "of a part of an answer in contract; of a request in egress"),
    ("Child", "a process in system; a guest's handle of one in runtime"),
    ("Command", "read in commands; started in system"),
    ("Definition", "of a tool in contract; what the rules see of one in policy"),
    ("Dependencies", WRITTEN),
    ("Finding", "of a verification in audit; of an examination in core"),
    (
        "Limits",
        "of a call in runtime; of a command in system; of a request in egress; the table of the configuration in config",
    ),
    (
        "Network",
        "the table of the configuration in config; what the rules say in policy; what requests go through in egress",
    ),
    ("Origin", "of a rule in policy; of a plugin in runtime"),
    ("Output", "of a tool in contract; of a process in system"),
    ("Pattern", "of a filter in contract; of a permission in policy; of a search in system"),
    ("Plugin", "one that runs in runtime; the table of the configuration in config"),
    ("Report", "of a call in contract; of an examination in core"),
    ("Request", "of a call in core; of a capability in runtime"),
    ("Scope", "of an approval in answers; of a request in egress; of a search in system"),
    ("Secret", "as it is configured in config; as it is put into requests in egress"),
    ("Web", WRITTEN),
];

const WRITTEN: &str = "as it is written in config; as it decides in policy";

pub(crate) fn functions_have_the_verb_of_what_they_do(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (file, source) in tree.rust(&["host/", "plugins/", "tests/", "xtask/"]) {
        for (number, line) in source.code.lines().enumerate() {
            if let Some(name) = item(line, &["fn"]).filter(|name| EMPTY.contains(name)) {
                found.push(at(
                    file,
                    number + 1,
                    format!("`fn {name}` says nothing: take the verb of what it does"),
                ));
            }
        }
    }
    found
}

pub(crate) fn one_public_type_has_a_name(tree: &Tree) -> Vec<Violation> {
    // By name, and then by crate: where it is declared first.
    let mut declared: BTreeMap<&str, BTreeMap<&str, (&File, usize)>> = BTreeMap::new();
    for (file, source) in tree.rust(&["host/"]) {
        let Some((owner, "src", _)) =
            file.path["host/".len()..].split_once('/').and_then(|(owner, rest)| {
                let (folder, rest) = rest.split_once('/')?;
                Some((owner, folder, rest))
            })
        else {
            continue;
        };
        for (number, line) in
            source.code.lines().enumerate().filter(|(number, _)| !file.is_test(number + 1))
        {
            // Those of a crate itself, and not of what a function or a module holds.
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

/// The name of the item of one of these kinds that a line declares.
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
