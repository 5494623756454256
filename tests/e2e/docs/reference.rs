//! The reference of the configuration as the page has it.

use std::fmt::Write as _;

use toolhold_core::config::presets::{PRESETS, Preset, usual};
use toolhold_core::config::{KeyDescription, TableDescription};

/// Columns of a document.
const WIDTH: usize = 100;

/// What stands before the keys.
const INTRODUCTION: &str = "\
This section is generated from `host/config/keys`. To change it, change the comments there, run
`cargo xtask test -- reference_has_every_key`, and copy the file that the test names.

";

/// Every key of the configuration, by table.
pub(super) fn reference(tables: &[TableDescription]) -> String {
    let mut text = INTRODUCTION.to_owned();
    for TableDescription { path, description, keys } in tables {
        let _ = writeln!(text, "### `[{path}]`\n\n{}\n", wrapped(description, ""));
        for KeyDescription { name, takes, default, description, .. } in keys {
            let default = default.as_ref().map_or_else(
                || "absent by default".to_owned(),
                |default| format!("by default `{default}`"),
            );
            let _ = writeln!(
                text,
                "{}",
                wrapped(&format!("* **`{name}`**: {takes}; {default}. {description}"), "  ")
            );
        }
        if !keys.is_empty() {
            text.push('\n');
        }
    }
    text
}

/// What each preset grants.
pub(super) fn presets() -> String {
    let mut text =
        "| preset | read and written | read | variables |\n|---|---|---|---|\n".to_owned();
    for preset @ Preset { name, with, caches, writes, reads, variables } in &PRESETS {
        let with = if with.is_empty() {
            String::new()
        } else {
            format!(", with {}", code(with.iter().copied()))
        };
        let written = code(caches.iter().chain(*writes).map(|place| usual(place)));
        let read = code(reads.iter().map(|place| usual(place)));
        let variables = code(
            preset.variables().filter(|name| variables.contains(name) || !name.starts_with("XDG_")),
        );
        let _ = writeln!(text, "| `{name}`{with} | {written} | {read} | {variables} |");
    }
    text
}

fn code<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    let mut seen = Vec::new();
    for item in items.map(|item| format!("`{item}`")) {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen.join(", ")
}

/// A paragraph in lines, those after the first behind `indentation`.
fn wrapped(text: &str, indentation: &str) -> String {
    wrapped_behind("", text, indentation)
}

/// A paragraph in lines, the first behind `first`, which is white space.
pub(super) fn wrapped_behind(first: &str, text: &str, indentation: &str) -> String {
    let mut lines = vec![first.to_owned()];
    for word in text.split_whitespace() {
        let full =
            lines.last().is_some_and(|line| line.chars().count() + word.chars().count() >= WIDTH);
        match lines.last_mut() {
            Some(line) if !full => {
                line.extend([if line.trim().is_empty() { "" } else { " " }, word]);
            }
            _ => lines.push(format!("{indentation}{word}")),
        }
    }
    lines.join("\n")
}
