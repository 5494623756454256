//! `toolhold config init`: a `toolhold.toml` with every key, all commented out.

use std::fmt::Write as _;

use serde_json::Value;
use toolhold_core::config::{KeyDescription, TableDescription, describe};

use crate::shown::toml;

/// Columns of a comment.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Toolhold's configuration, with every key.
#
# Lines that begin with `# ` describe the line below them. Lines that begin with `#` and no space
# are keys with their defaults: to change a key, remove the `#` from it and from the line of its
# table.
# `toolhold config check` finds errors in this file, and `toolhold config show` prints the current
# values.
";

/// The path of a table with an example's name. A server and a plugin can't have the same one.
fn with_name(path: &str) -> String {
    let name = if path.starts_with("mcp.") { "my-server" } else { "my-plugin" };
    path.replace("NAME", name)
}

/// The text, generated from the definition of the configuration.
pub(super) fn template() -> String {
    let tables = describe();
    let mut text = HEAD.to_owned();
    for TableDescription { path, description, keys } in &tables {
        comment(&mut text, description);
        let _ = writeln!(text, "#[{}]", with_name(path));
        for key in keys {
            comment(&mut text, format!("{} Value: {}.", key.description, key.takes).trim_start());
            if key.default.is_none() {
                let said = if key.entries.is_empty() {
                    "Absent by default. An example:"
                } else {
                    "The default entries, or an example:"
                };
                comment_line(&mut text, said);
            }
            if key.entries.is_empty() {
                let _ = writeln!(text, "#{} = {}", key.name, toml(&value(key, &tables)));
            }
            for (name, value) in &key.entries {
                let _ = writeln!(text, "#{name} = {}", toml(value));
            }
        }
    }
    text
}

/// The default, or the key's own template if it has one.
fn value(key: &KeyDescription, tables: &[TableDescription]) -> Value {
    let same = tables.iter().flat_map(|table| &table.keys).filter(|other| other.name == key.name);
    key.default
        .clone()
        .or_else(|| key.example.clone())
        .or_else(|| same.filter_map(|other| other.default.clone()).next())
        .unwrap_or_default()
}

fn comment(text: &mut String, paragraph: &str) {
    text.push('\n');
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() >= WIDTH {
            comment_line(text, &line);
            line.clear();
        }
        line.extend([if line.is_empty() { "" } else { " " }, word]);
    }
    comment_line(text, &line);
}

fn comment_line(text: &mut String, line: &str) {
    let _ = writeln!(text, "# {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_has_every_key_with_a_value() {
        let text = template();
        for table in describe() {
            assert!(text.contains(&format!("\n#[{}]\n", with_name(&table.path))), "{text}");
            let lines: Vec<&str> = text.lines().collect();
            for key in table.keys {
                let mut names: Vec<String> =
                    key.entries.into_iter().map(|(name, _)| name).collect();
                if names.is_empty() {
                    names.push(key.name);
                }
                for name in names {
                    let begin = format!("#{name} = ");
                    let is_it = |line: &&str| line.starts_with(&begin) && !line.ends_with("null");
                    assert!(lines.iter().any(is_it), "{name} in {}", table.path);
                }
            }
        }
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
    }
}
