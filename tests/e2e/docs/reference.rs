//! The reference of the configuration as the page has it.

use std::fmt::Write as _;

use berth_host::config::{KeyDescription, TableDescription};

/// Columns of a document.
const WIDTH: usize = 140;

/// Every key of the configuration, by table.
pub(super) fn reference(tables: &[TableDescription]) -> String {
    let mut text = String::new();
    for TableDescription { path, description, keys } in tables {
        let _ = writeln!(text, "### `[{path}]`\n\n{}\n", wrapped(description, ""));
        for KeyDescription { name, takes, default, description, .. } in keys {
            let default = default.as_ref().map_or_else(|| "absent by default".to_owned(), |default| format!("by default `{default}`"));
            let _ = writeln!(text, "{}", wrapped(&format!("* **`{name}`**: {takes}; {default}. {description}"), "  "));
        }
        if !keys.is_empty() {
            text.push('\n');
        }
    }
    text
}

/// A paragraph in lines, those after the first behind `indentation`.
fn wrapped(text: &str, indentation: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let full = lines.last().is_some_and(|line| line.chars().count() + word.chars().count() >= WIDTH);
        match lines.last_mut() {
            Some(line) if !full => line.extend([if line.trim().is_empty() { "" } else { " " }, word]),
            _ => lines.push(format!("{indentation}{word}")),
        }
    }
    lines.join("\n")
}
