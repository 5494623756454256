//! `json_report`: shortens reports in JSON, of test runners, of compilers and of linters. What
//! passed is left out. Every failure and every finding stays, with its place and its message.
//!
//! Two forms are known: an event in each line, and one document. Text around them stays, and so
//! does what has another form.

use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Run};
use crate::guard::{self, Level};

mod document;
mod events;

/// Parameters of `json_report`. It has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonReport {}

impl JsonReport {
    #[expect(clippy::unnecessary_wraps, reason = "as the other strategies")]
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        Ok(Box::new(ReportShortener))
    }
}

/// The number of bytes from which on a report stays as it is. A parsed document is several times as
/// large as its text.
const MAX_REPORT: usize = 4 * 1024 * 1024;

struct ReportShortener;

impl Run for ReportShortener {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let bytes: usize = part.lines.iter().map(|line| line.len() + 1).sum();
        let first = part.lines.iter().position(|line| line.starts_with(['{', '[']));
        let Some(first) = first else { return Outcome::Unchanged };
        if bytes >= MAX_REPORT {
            return Outcome::Unchanged;
        }
        let shorter = events::shorten(part.lines)
            .or_else(|| document::shorten(&part.lines[..first], &part.lines[first..]));
        shorter.map_or(Outcome::Unchanged, |text| Outcome::Text(text, Confidence::Full))
    }
}

/// Whether a text has a line that reports a failure. What a test that passed printed stays if it
/// has.
fn reports_failure(text: &str) -> bool {
    text.lines().any(|line| guard::level(line, false) == Level::Error)
}

/// A text within a report, without colours and without frames of others. `None` if it has none of
/// both.
fn shorten_text(text: &str) -> Option<String> {
    let plain = without_colours(text);
    super::frames::fold_text(plain.as_deref().unwrap_or(text)).or(plain)
}

/// A text without the sequences for colours, such as `ESC [31m`. In JSON they are escaped, so
/// nobody removed them before.
fn without_colours(text: &str) -> Option<String> {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next()?.to_owned();
    for piece in pieces {
        let parameters =
            piece.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
        match piece[parameters..].strip_prefix('m') {
            Some(rest) => plain.push_str(rest),
            None => {
                plain.push_str("\u{1b}[");
                plain.push_str(piece);
            }
        }
    }
    (plain.len() < text.len()).then_some(plain)
}

#[cfg(test)]
mod tests;
