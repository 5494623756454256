//! Formats paths, durations and descriptions for people, and wraps them to the width of the
//! terminal.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use toolhold_core::Definition;
pub use toolhold_core::config::inline as toml;
pub use toolhold_core::text::shell_word;
use toolhold_core::text::{cut, neutral_line};

/// Bytes of a description in the list.
pub const SUMMARY: usize = 96;

/// Returns the first sentence of the description, in at most [`SUMMARY`] bytes and an ellipsis.
pub fn summary(tool: &Definition) -> String {
    let line = neutral_line(&tool.description);
    let sentence = match line.split_once(". ") {
        Some((first, _)) => first.trim(),
        None => line.trim_end_matches('.').trim(),
    };
    let short = cut(sentence, SUMMARY);
    if short.len() < sentence.len() { format!("{}…", short.trim_end()) } else { short.to_owned() }
}

/// Returns the width of the terminal in columns. Returns `None` if stdout isn't a terminal, because
/// a program reads whole lines.
pub fn columns() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    match rustix::termios::tcgetwinsize(&stdout).ok()?.ws_col {
        0 => None,
        columns => Some(columns.into()),
    }
}

/// The fewest columns that a text is broken to.
pub const LEAST: usize = 24;

/// Breaks a text between words to fit a terminal with `columns`. All lines begin in the column
/// `indent`.
pub fn wrap(text: &str, indent: usize, columns: Option<usize>) -> String {
    let room = match columns {
        Some(columns) => columns.saturating_sub(indent).max(LEAST),
        None => usize::MAX,
    };
    let mut lines = Vec::new();
    for original in text.lines() {
        let mut line = String::new();
        for word in original.split_inclusive(' ') {
            let length = line.chars().count() + word.trim_end().chars().count();
            if length > room && !line.trim().is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            line += word;
        }
        lines.push(line);
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join(&format!("\n{:indent$}", ""))
}

/// Returns the error of a failed call, without the parts that are for the model alone.
pub fn error_for_person(text: &str) -> String {
    let error = text.split_once("error: ").map_or(text, |(_, error)| error);
    let mut lines = Vec::new();
    for line in error.lines() {
        if line.starts_with("suggestion: ") || line.starts_with("retryable: ") {
            break;
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// Formats a path on one line, without terminal control characters.
pub fn path(path: &Path) -> String {
    neutral_line(&path.display().to_string())
}

/// Formats a duration for people.
pub fn time(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..1000 => format!("{micros} µs"),
        micros @ 1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        micros => format!("{:.1} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_only_for_a_terminal() {
        let text = "one two three four five six seven eight";
        assert_eq!(wrap(text, 4, None), text);
        assert_eq!(wrap(text, 4, Some(34)), "one two three four five six\n    seven eight");
        assert_eq!(wrap(text, 90, Some(80)).lines().next(), Some("one two three four five"));
        let long = "x".repeat(60);
        assert_eq!(wrap(&format!("a {long} b"), 0, Some(40)), format!("a\n{long}\nb"));
        assert_eq!(wrap("a\n  b", 2, Some(40)), "a\n    b");
    }
}
