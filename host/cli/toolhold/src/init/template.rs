//! `toolhold init --print`: a `toolhold.toml` with every key, all commented out.

use std::fmt::Write as _;

use serde_json::Value;
use toolhold_core::config::{KeyDescription, TableDescription, describe};

use crate::shown::toml;

/// The most columns of a comment line.
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

/// Replaces `NAME` in a table's path by an example. The examples differ, because a server and a
/// plugin can't have the same name.
fn with_name(path: &str) -> String {
    let name = if path.starts_with("mcp.") { "my-server" } else { "my-plugin" };
    path.replace("NAME", name)
}

/// Returns a configuration file with all keys as comments. Writing to a string never fails, so the
/// results of `writeln!` are ignored.
pub(super) fn template() -> String {
    let tables = describe();
    let mut text = HEAD.to_owned();
    for TableDescription { path, description, keys } in &tables {
        comment(&mut text, description);
        let _ = writeln!(text, "#[{}]", with_name(path));
        for key in keys {
            comment(&mut text, format!("{} Value: {}.", key.description, key.takes).trim_start());
            if key.default.is_none() {
                let heading = if key.entries.is_empty() {
                    "Absent by default. An example:"
                } else {
                    "The default entries, or an example:"
                };
                comment_line(&mut text, heading);
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

/// Returns the value to show for `key`: its default, its example, or the default of a key with the
/// same name in another table.
fn value(key: &KeyDescription, tables: &[TableDescription]) -> Value {
    if let Some(value) = key.default.as_ref().or(key.example.as_ref()) {
        return value.clone();
    }
    let all_keys = tables.iter().flat_map(|table| &table.keys);
    let mut same_name = all_keys.filter(|other| other.name == key.name);
    same_name.find_map(|other| other.default.clone()).unwrap_or_default()
}

/// Adds an empty line, and a paragraph in comment lines.
fn comment(text: &mut String, paragraph: &str) {
    text.push('\n');
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() >= WIDTH {
            comment_line(text, &line);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
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
