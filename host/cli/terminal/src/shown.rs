//! Formats paths, durations and descriptions for people.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use toolhold_core::Definition;
pub use toolhold_core::config::inline as toml;
pub use toolhold_core::text::shell_word;
use toolhold_core::text::{cut, neutral_line};

/// The most bytes of a description in a list.
pub const SUMMARY: usize = 96;

/// Returns the first sentence of the description, cut to [`SUMMARY`] bytes.
pub fn summary(tool: &Definition) -> String {
    let line = neutral_line(&tool.description);
    let sentence = match line.split_once(". ") {
        Some((first, _)) => first.trim(),
        None => line.trim_end_matches('.').trim(),
    };
    let short = cut(sentence, SUMMARY);
    if short.len() < sentence.len() { format!("{}…", short.trim_end()) } else { short.to_owned() }
}

/// Returns the width of the terminal. Returns `None` if stdout isn't a terminal, because programs
/// read whole lines.
pub fn columns() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    match rustix::termios::tcgetwinsize(&stdout).ok()?.ws_col {
        // A serial terminal has no known size.
        0 => None,
        columns => Some(columns.into()),
    }
}

/// The fewest columns to which a text is wrapped.
pub const MIN_COLUMNS: usize = 24;

/// Wraps `text` between words for a terminal with `columns`. Lines after the first line are
/// indented by `indent` spaces. Without `columns`, the lines are only indented.
pub fn wrap(text: &str, indent: usize, columns: Option<usize>) -> String {
    let width = match columns {
        Some(columns) => columns.saturating_sub(indent).max(MIN_COLUMNS),
        None => usize::MAX,
    };
    let mut lines = Vec::new();
    for original in text.lines() {
        let mut line = String::new();
        for word in original.split_inclusive(' ') {
            let length = line.chars().count() + word.trim_end().chars().count();
            // A word longer than a line stays whole.
            if length > width && !line.trim().is_empty() {
                lines.push(line.trim_end().to_owned());
                line.clear();
            }
            line += word;
        }
        lines.push(line.trim_end().to_owned());
    }
    let line_end = format!("\n{:indent$}", "");
    lines.join(line_end.as_str())
}

/// Removes the parts of an error that are only for models.
pub fn error_for_person(text: &str) -> String {
    // Lines before the error are also only for models.
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

/// Removes the lines with tags around untrusted text. These tags are only for models.
pub fn without_marks(text: &str) -> String {
    let mut shown = String::new();
    for line in text.split_inclusive('\n') {
        if !is_tag(line.trim_end()) {
            shown.push_str(line);
        }
    }
    shown
}

fn is_tag(line: &str) -> bool {
    let is_start =
        line.starts_with("<external-data tool=\"") || line.starts_with("</external-data key=\"");
    let is_complete = line.contains(" key=\"") && line.ends_with("\">");
    is_start && is_complete
}

/// Formats a path on one line, without control characters.
pub fn path(path: &Path) -> String {
    neutral_line(&path.display().to_string())
}

/// Formats a duration.
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
    fn marks_of_untrusted_text_are_hidden() {
        let text = "Exit code: 0\n<external-data tool=\"bash\" key=\"3f9a2c41d07b5e88\">\nout\n\
                    </external-data key=\"3f9a2c41d07b5e88\">\n";
        assert_eq!(without_marks(text), "Exit code: 0\nout\n");
        let other = "an <external-data tool=\"x\"> in a line\n\u{2039}/external-data\nend";
        assert_eq!(without_marks(other), other);
    }

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
