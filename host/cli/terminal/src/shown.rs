//! Formats paths, durations and descriptions for people.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use toolhold_core::Definition;
pub use toolhold_core::config::inline as toml;
pub use toolhold_core::text::shell_word;
use toolhold_core::text::{counted, cut, neutral_line};

/// The most bytes of a description in a list.
pub const SUMMARY: usize = 96;

/// The most lines of a failed call's output.
const MAX_OUTPUT_LINES: usize = 8;

/// The most bytes of a line of a failed call's output.
const MAX_OUTPUT_LINE: usize = 400;

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

/// Returns the error of a failed call and the end of the call's output, without the parts that are
/// only for models.
pub fn error_for_person(text: &str) -> String {
    // Lines before the error are also only for models.
    let error = text.split_once("error: ").map_or(text, |(_, error)| error);
    // The line `retryable` is the last one about the failure. Lines of the error don't start with
    // this word, because they are indented.
    let (message, rest) = error.split_once("\nretryable: ").unwrap_or((error, ""));
    let output = rest.split_once('\n').map_or("", |(_, output)| output);
    let message = message.split_once("\nsuggestion: ").map_or(message, |(message, _)| message);
    let mut shown = message.trim_end().to_owned();
    // Programs write their errors last.
    let lines: Vec<&str> = output.trim_matches('\n').lines().collect();
    let left_out = lines.len().saturating_sub(MAX_OUTPUT_LINES);
    if left_out > 0 {
        shown += &format!("\n… {}", counted(left_out, "earlier line"));
    }
    for line in &lines[left_out..] {
        let start = cut(line, MAX_OUTPUT_LINE);
        let more = if start.len() < line.len() { " …" } else { "" };
        shown += &format!("\n{start}{more}");
    }
    shown
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
    fn error_is_shown_with_the_end_of_the_output_and_without_advice_for_models() {
        let block = "[tool_error]\ncategory: permanent_failure\nerror: Exit code: 7\n  twice\n\
                     suggestion: Look.\n  Again.\nretryable: false\n";
        assert_eq!(error_for_person(block), "Exit code: 7\n  twice");
        let whole = format!("{block}\n  no such file\nretryable: true\n");
        let expected = "Exit code: 7\n  twice\n  no such file\nretryable: true";
        assert_eq!(error_for_person(&whole), expected);
        let long = format!("{block}\n{}last\n", "line\n".repeat(9));
        let shown = error_for_person(&long);
        assert!(shown.contains("\n… 2 earlier lines\nline\n"), "{shown}");
        assert!(shown.ends_with("\nlast"), "{shown}");
        let wide = format!("{block}\n{}", "x".repeat(100_000));
        assert!(error_for_person(&wide).len() < 500);
        assert_eq!(error_for_person("(no output)"), "(no output)");
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
