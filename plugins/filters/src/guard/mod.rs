//! Finds the lines that no rule may leave out: failures and warnings, with the lines that belong to
//! them.
//!
//! Each line is judged by its words, such as `error`, and by the text around each word. `error: no
//! such column` reports a failure. `src/error.rs`, `0 errors` and `test error_handling ... ok`
//! don't. If a command failed, more lines count, since the reason may have any form.

mod context;
mod passing;
mod words;

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

pub(crate) use context::body;
pub use passing::is_passing;

use words::{Hit, WORDS};

/// The importance of a line. A greater level is more important.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Rules may leave the line out.
    #[default]
    Nothing,
    /// The line has the place of the warning before it.
    WarningContext,
    /// The line is a warning of a compiler or linter.
    Warning,
    /// The line belongs to an error.
    ErrorContext,
    /// The line reports a failure.
    Error,
}

/// The level of each line.
pub fn levels(lines: &[&str], failed: bool) -> Vec<Level> {
    let finder = finder();
    let mut levels: Vec<Level> = lines.iter().map(|line| level_by(finder, line, failed)).collect();
    context::add(lines, &mut levels, failed);
    levels
}

/// The level of one line by itself.
pub fn level(line: &str, failed: bool) -> Level {
    level_by(finder(), line, failed)
}

fn level_by(finder: &AhoCorasick, line: &str, failed: bool) -> Level {
    let mut level = by_start(line, failed);
    if level == Level::Error {
        return level;
    }
    for found in finder.find_iter(line) {
        let hit = words::judge(found.pattern().as_usize(), line, found.start(), found.end());
        level = level.max(match hit {
            Hit::Strong => Level::Error,
            Hit::Weak if failed => Level::Error,
            Hit::Warning => Level::Warning,
            Hit::Weak | Hit::Nothing => Level::Nothing,
        });
        if level == Level::Error {
            break;
        }
    }
    // A test that passed may have any name. This is checked last, since most lines have none of the
    // words.
    if level > Level::Nothing && is_passing(line) { Level::Nothing } else { level }
}

/// Judges the first characters: the marks that test runners put before a failure, and the lines
/// that pytest prints for an exception.
fn by_start(line: &str, failed: bool) -> Level {
    let trimmed = line.trim_start_matches([' ', '\t']);
    let Some(&first) = trimmed.as_bytes().first() else { return Level::Nothing };
    let is_error = match first {
        // ✕ ✖ ✗ ✘ ❌ ⨯ ×, and jest's ● if a test failed.
        0xc2..=0xef => {
            let mut characters = trimmed.chars();
            let mark = characters.next();
            let next = characters.next();
            matches!(mark, Some('✕' | '✖' | '✗' | '✘' | '❌' | '⨯' | '×'))
                && next.is_none_or(|next| !next.is_alphanumeric())
                || failed && mark == Some('●') && next == Some(' ')
        }
        // Kubernetes writes `E0131 10:11:12.131415`.
        b'E' | b'F'
            if trimmed.get(1..6).is_some_and(|rest| {
                rest.ends_with(' ') && rest[..4].bytes().all(|byte| byte.is_ascii_digit())
            }) =>
        {
            true
        }
        b'E' => {
            line.starts_with("E  ") && !line.trim_end().ends_with(" ok")
                || failed && compares(trimmed)
        }
        b'n' => trimmed.starts_with("not ok "),
        b'-' => trimmed.starts_with("--- FAIL"),
        // Values that an assertion compared.
        b'l' | b'r' => {
            failed
                && (trimmed.starts_with("left: ")
                    || trimmed.starts_with("right: ")
                    || compares(trimmed))
        }
        b'A' | b'G' | b'R' | b'a' | b'e' | b'g' => failed && compares(trimmed),
        // mocha and rspec number the failures.
        b'0'..=b'9' => {
            failed
                && trimmed
                    .find(") ")
                    .is_some_and(|at| trimmed[..at].bytes().all(|byte| byte.is_ascii_digit()))
        }
        _ => false,
    };
    if is_error { Level::Error } else { Level::Nothing }
}

fn compares(trimmed: &str) -> bool {
    ["Expected", "Received", "Actual", "expected", "received", "actual", "got", "Got"]
        .iter()
        .filter_map(|word| trimmed.strip_prefix(word))
        .any(|rest| rest.starts_with(':') || rest.starts_with(" value:"))
}

fn finder() -> &'static AhoCorasick {
    static FINDER: OnceLock<AhoCorasick> = OnceLock::new();
    FINDER.get_or_init(|| {
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(WORDS.iter().map(|(word, _)| word))
            .expect("a few short words make a small automaton")
    })
}

#[cfg(test)]
mod tests;
