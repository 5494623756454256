//! The limits for keys that a principal's table doesn't name: a caller gets only grants that the
//! table names.

use serde_json::Value;
use toolhold_config_keys::{ConfigValues, Narrowing};

use super::leaf::Leaf;
use super::narrow::{effective, value_at};
use super::{Config, Source};

/// The tables whose entries a caller uses only if its own table names them.
const PLUGINS_AND_SERVERS: [&[&str]; 2] = [&["plugins"], &["mcp", "servers"]];

/// The lists that mean the working directory if they are empty.
const FILE_PATHS: [&str; 3] = ["tools", "file", "allowed_paths"];
const SHELL_PATHS: [&str; 3] = ["tools", "shell", "allowed_paths"];

/// Returns the limits for all grants that the table doesn't name. `named` are the limits of the
/// table, `source` is the table, and `base` is the configuration with these limits.
pub(crate) fn unnamed_limits(named: &[Leaf], source: &Source, base: &Config) -> Vec<Leaf> {
    let current = serde_json::to_value(effective(base)).unwrap_or_default();
    let mut closing = Closing { named, source, current: &current, leaves: Vec::new() };
    closing.close(ConfigValues::RULES, &mut Vec::new());

    for tables in PLUGINS_AND_SERVERS {
        let names = value_at(&current, tables).as_object().into_iter().flat_map(|all| all.keys());
        for name in names {
            let path = [tables, &[name.as_str()]].concat();
            if !closing.is_named(&path) {
                closing.add(&[path.as_slice(), &["enabled"]].concat(), false.into());
            }
        }
    }
    if !closing.is_named(&FILE_PATHS) {
        closing.add(&["tools", "file", "enabled"], false.into());
        // Without a list of their own, commands use the directories of the file tools.
        if !closing.is_named(&SHELL_PATHS) {
            closing.add(&["tools", "shell", "enabled"], false.into());
        }
    }
    closing.leaves
}

struct Closing<'a> {
    /// The limits of the table.
    named: &'a [Leaf],
    source: &'a Source,
    /// The current values.
    current: &'a Value,
    leaves: Vec<Leaf>,
}

impl Closing<'_> {
    /// Adds a limit for each grant below `path` that the table doesn't name. `keys` are the keys of
    /// the table at `path`.
    fn close(&mut self, keys: &[(&'static str, Narrowing)], path: &mut Vec<String>) {
        for (key, rule) in keys {
            path.push((*key).to_owned());
            match rule {
                Narrowing::Table(keys) => self.close(keys, path),
                Narrowing::Named(keys) => {
                    let table = value_at(self.current, path.as_slice()).as_object();
                    for name in table.into_iter().flat_map(|table| table.keys()) {
                        path.push(name.clone());
                        self.close(keys, path);
                        path.pop();
                    }
                }
                rule => {
                    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
                    if let Some(value) = closed_value(&parts, *rule)
                        && !self.is_named(&parts)
                    {
                        self.add(&parts, value);
                    }
                }
            }
            path.pop();
        }
    }

    fn is_named(&self, path: &[&str]) -> bool {
        self.named.iter().any(|leaf| {
            leaf.path.len() >= path.len() && leaf.path.iter().zip(path).all(|(a, b)| a == b)
        })
    }

    fn add(&mut self, path: &[&str], value: toml::Value) {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        self.leaves.push(Leaf::new(path, value, self.source));
    }
}

/// Returns the value that grants nothing. Returns `None` for a key that grants nothing by itself.
fn closed_value(path: &[&str], rule: Narrowing) -> Option<toml::Value> {
    match (path, rule) {
        // These rules are about installing, which callers can't do.
        (["installing", ..], _) => None,
        // The empty list means the working directory, so a switch is used instead.
        (["tools", "file" | "shell", "allowed_paths"], _) => None,
        // With `ask`, commands reach only the hosts of the table.
        (["tools", "shell", "network"], _) => Some("ask".into()),
        (["tools", "web", "other_domains"], _) => Some("deny".into()),
        // All callers run as one system user. Only the sandbox separates their commands.
        (["tools", "shell", "sandbox"], _) => Some("strict".into()),
        (["plugins", _, "network" | "shell" | "judged_programs"], _)
        | (["mcp", "servers", _, "network"], _) => Some(false.into()),
        (_, Narrowing::Directories | Narrowing::Covered(_) | Narrowing::Subset) => {
            Some(toml::Value::Array(Vec::new()))
        }
        _ => None,
    }
}
