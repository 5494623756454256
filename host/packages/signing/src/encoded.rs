//! Reads and writes the text format of minisign's files: comments, and base64 of a fixed length.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolhold_contract::text::{cut, neutral_line};

/// Most bytes of a trusted comment. A longer comment is refused. minisign reads up to 8,192 bytes.
pub(crate) const MAX_COMMENT: usize = 4096;

/// Most bytes of a comment in an error. Longer comments are cut.
const SHOWN_COMMENT: usize = 80;

/// A reason why a text isn't in the format of minisign's files. `what` names the faulty part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    /// A line of base64 has a wrong length.
    #[error("{what} is {length} characters; the valid length is {expected}")]
    Length {
        /// The name of the line.
        what: &'static str,
        /// The number of characters in the line.
        length: usize,
        /// The expected number of characters.
        expected: usize,
    },
    /// A line isn't base64.
    #[error("{0} isn't valid base64")]
    Base64(&'static str),
    /// A trusted comment is too long. Contains its size in bytes.
    #[error("the trusted comment is {0} bytes; the limit is {MAX_COMMENT}")]
    LongComment(usize),
    /// A trusted comment has invisible characters. Contains the comment, cut and neutralised.
    #[error("the trusted comment contains invisible characters: `{0}`")]
    HiddenCharacters(String),
    /// A file has too few lines.
    #[error("{what} has {count} lines; the valid number is {expected}")]
    TooFewLines {
        /// The name of the file.
        what: &'static str,
        /// The number of lines in the file.
        count: usize,
        /// The expected number of lines.
        expected: usize,
    },
    /// A file has too many lines.
    #[error("{what} has too many lines; the valid number is {expected}")]
    TooManyLines {
        /// The name of the file.
        what: &'static str,
        /// The expected number of lines.
        expected: usize,
    },
}

pub(crate) const UNTRUSTED: &str = "untrusted comment: ";

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a line of base64 with exactly `N` bytes.
pub(crate) fn decode<const N: usize>(
    line: &str,
    what: &'static str,
) -> Result<[u8; N], EncodingError> {
    let length = line.len();
    // Base64 has four characters for three bytes.
    let expected = N.div_ceil(3) * 4;
    if length != expected {
        return Err(EncodingError::Length { what, length, expected });
    }
    let Ok(bytes) = STANDARD.decode(line) else { return Err(EncodingError::Base64(what)) };
    bytes.try_into().map_err(|_| EncodingError::Base64(what))
}

/// Refuses a trusted comment that is too long, or has characters that could control a terminal.
/// Tabs are allowed, because minisign writes them.
pub(crate) fn check_comment(comment: &str) -> Result<(), EncodingError> {
    if comment.len() > MAX_COMMENT {
        return Err(EncodingError::LongComment(comment.len()));
    }
    // `neutral_line` changes a text only if it has such characters.
    let without_tabs = comment.replace('\t', " ");
    if neutral_line(&without_tabs) != without_tabs {
        return Err(EncodingError::HiddenCharacters(neutral_line(cut(comment, SHOWN_COMMENT))));
    }
    Ok(())
}

/// Splits a file into exactly `N` lines, which end with LF or CRLF.
pub(crate) fn lines<'t, const N: usize>(
    text: &'t str,
    what: &'static str,
) -> Result<[&'t str; N], EncodingError> {
    // One line above the limit shows that there are too many lines.
    let lines: Vec<&str> = text.lines().take(N + 1).collect();
    lines.try_into().map_err(|lines: Vec<&str>| {
        let count = lines.len();
        if count > N {
            EncodingError::TooManyLines { what, expected: N }
        } else {
            EncodingError::TooFewLines { what, count, expected: N }
        }
    })
}
