//! Finds the lines that belong to a failure: its place, expected values and stack trace.

use super::Level;
use crate::text::{indent, is_blank, parse_mark};

/// The greatest number of lines that belong to one error.
const MOST: usize = 40;
/// The greatest number of stack frames that belong to one error.
const MOST_FRAMES: usize = 24;
/// The number of last lines that stay of a longer stack.
const LAST_FRAMES: usize = 4;

/// Raises the levels of lines that belong to a line with a level.
pub(super) fn add(lines: &[&str], levels: &mut [Level], failed: bool) {
    let mut at = 0;
    while at < lines.len() {
        match levels[at] {
            Level::Error => {
                before(lines, levels, at);
                after(lines, levels, at, failed);
            }
            Level::Warning => place_of_warning(lines, levels, at),
            Level::Nothing | Level::WarningContext | Level::ErrorContext => {}
        }
        at += 1;
    }
}

fn raise(levels: &mut [Level], at: usize, level: Level) {
    levels[at] = levels[at].max(level);
}

/// Keeps the line below a warning that has its place: ` --> src/a.rs:3:4`, `└─ lib/a.ex:3:9`.
fn place_of_warning(lines: &[&str], levels: &mut [Level], warning: usize) {
    for at in warning + 1..lines.len().min(warning + 7) {
        let trimmed = lines[at].trim_start();
        if !(is_annotation(lines[at]) || indent(lines[at]) > indent(lines[warning])) {
            break;
        }
        if ["--> ", "└─ ", "╰─", "╭─", "at ", "lib/", "test/", "src/"]
            .iter()
            .any(|start| trimmed.starts_with(start))
        {
            raise(levels, at, Level::WarningContext);
            break;
        }
    }
}

/// Keeps lines before an error in which compilers name its function or include.
fn before(lines: &[&str], levels: &mut [Level], error: usize) {
    for at in (error.saturating_sub(3)..error).rev() {
        let line = lines[at];
        let leads = line.starts_with("In file included from")
            || line.trim_start().starts_with("from ") && line.ends_with([',', ':'])
            || line.ends_with(':') && (line.contains(": In ") || line.contains(": in "))
            || line.starts_with("> ") && lines[error].starts_with('E');
        if !leads {
            break;
        }
        raise(levels, at, Level::ErrorContext);
    }
}

fn after(lines: &[&str], levels: &mut [Level], error: usize, failed: bool) {
    let line = body(lines[error]);
    let depth = indent(line);
    let traceback = line.contains("Traceback (most");
    let panic = line.contains("panicked at") || line.starts_with("panic:");
    let mut frames = 0;
    let mut blanks = 0;
    for at in error + 1..lines.len().min(error + 1 + MOST) {
        let next = body(lines[at]);
        if is_blank(next) {
            blanks += 1;
            // Go prints a blank line between a panic and its stack. Any other blank line ends the
            // context.
            if panic
                && blanks == 1
                && lines.get(at + 1).is_some_and(|line| {
                    line.starts_with("goroutine ") || line.starts_with("[signal")
                })
            {
                continue;
            }
            break;
        }
        // Another step left out frames here. What follows still belongs to the error.
        if parse_mark(next).is_some() {
            continue;
        }
        // The next error has its own context.
        if levels[at] == Level::Error && !traceback {
            break;
        }
        if is_frame(next) {
            frames += 1;
            if frames > MOST_FRAMES {
                // The last frames show where the stack starts, so they are kept too.
                let end = at + lines[at..].iter().take_while(|line| is_frame(body(line))).count();
                (at.max(end.saturating_sub(LAST_FRAMES))..end)
                    .for_each(|at| raise(levels, at, Level::ErrorContext));
                break;
            }
            raise(levels, at, Level::ErrorContext);
            continue;
        }
        let deeper = indent(next) > depth;
        if traceback && !deeper {
            // The exception comes last, at the depth of the first line.
            raise(levels, at, Level::Error);
            break;
        }
        let close = at == error + 1 && failed;
        if !(deeper || is_annotation(next) || panic && at <= error + 12 || close || blanks > 0)
            || super::is_passing(next)
        {
            break;
        }
        raise(levels, at, Level::ErrorContext);
    }
}

/// The line without the name of the service that `docker compose` puts before it: `web-1 |
/// Traceback`.
pub(crate) fn body(line: &str) -> &str {
    let Some((name, body)) = line.split_once(" | ") else { return line };
    let name = name.trim_end();
    let is_name = !name.is_empty()
        && !name.starts_with(' ')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if is_name && !name.bytes().all(|byte| byte.is_ascii_digit()) { body } else { line }
}

/// Whether a line is an annotation: ` --> file`, ` |`, `12 | code`, `= note: …`, `note: …`, `^~~~`.
fn is_annotation(line: &str) -> bool {
    let trimmed = line.trim_start();
    if [
        "-->",
        "|",
        "= ",
        "...",
        ":::",
        "^",
        "~",
        "note:",
        "help:",
        "hint:",
        "Hint:",
        "Caused by",
        "╭",
        "│",
        "╰",
        "┌",
        "└",
        "├",
        "❯",
    ]
    .iter()
    .any(|start| trimmed.starts_with(start))
    {
        return true;
    }
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &trimmed[digits..];
    // `2026-01-02 …` is the next entry of a log.
    let is_date =
        rest.starts_with('-') && rest[1..].starts_with(|next: char| next.is_ascii_digit());
    digits > 0
        && !is_date
        && matches!(rest.trim_start().as_bytes().first(), Some(b'|' | b'+' | b'-'))
}

/// Whether a line is a stack frame: ` at Object.<anonymous> (file.js:1:2)`, `\tat java.…`, ` 12:
/// core::panicking`, ` File "x.py", line 3`.
fn is_frame(line: &str) -> bool {
    let trimmed = line.trim_start();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    trimmed.len() < line.len()
        && (trimmed.starts_with("at ")
            || trimmed.starts_with("File \"")
            || digits > 0
                && trimmed[digits..].starts_with(": ")
                && !trimmed[digits..].contains("error"))
}
