//! The lines that no rule may leave out: failures and warnings, with what belongs to them.
//!
//! Deciding is by line. Words such as `error` are looked for in the whole line at once, and each
//! that is found is judged by what is around it: `error: no such column` reports a failure,
//! `src/error.rs`, `0 errors` and `test error_handling ... ok` don't. Where a command failed, more
//! lines count, since the reason may have any form.

mod context;
mod passing;
mod words;

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

pub use passing::is_passing;

use words::{Hit, WORDS};

/// How much a line matters. The greater matters more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A rule decides.
    #[default]
    Nothing,
    /// Says where the warning before it is.
    WarningContext,
    /// A compiler's or linter's warning.
    Warning,
    /// Belongs to an error.
    ErrorContext,
    /// Reports a failure.
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
    // What passed may be called anything. Most lines have no word in question, so that this is
    // rarely looked at.
    if level > Level::Nothing && is_passing(line) { Level::Nothing } else { level }
}

/// Judges the first characters: the marks that test runners put before a failure, and the lines
/// that pytest prints for an exception.
fn by_start(line: &str, failed: bool) -> Level {
    let trimmed = line.trim_start_matches([' ', '\t']);
    let Some(&first) = trimmed.as_bytes().first() else { return Level::Nothing };
    let is_error = match first {
        // ✕ ✖ ✗ ✘ ❌ ⨯ ×, and jest's ● where a test failed.
        0xc2..=0xef => {
            let mut characters = trimmed.chars();
            let (mark, next) = (characters.next(), characters.next());
            matches!(mark, Some('✕' | '✖' | '✗' | '✘' | '❌' | '⨯' | '×'))
                && next.is_none_or(|next| !next.is_alphanumeric())
                || failed && mark == Some('●') && next == Some(' ')
        }
        // pytest's, then Kubernetes' `E0131 10:11:12.131415`.
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
        // What an assertion compared.
        b'l' | b'r' => {
            failed
                && (trimmed.starts_with("left: ")
                    || trimmed.starts_with("right: ")
                    || compares(trimmed))
        }
        b'A' | b'G' | b'R' | b'a' | b'e' | b'g' => failed && compares(trimmed),
        // mocha and rspec number what failed.
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
