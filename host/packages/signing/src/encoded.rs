//! Reads and writes the text format of minisign's files: comments, and base64 of a fixed length.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolhold_contract::text::{cut, neutral_line};

/// Most bytes of a comment. minisign reads up to 8,192 bytes of a trusted comment, and less of
/// other comments.
pub(crate) const MAX_COMMENT: usize = 4096;

/// A reason why a text isn't in the form of minisign's files. `what` is the part with the fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    /// A line of base64 has another length.
    #[error("{what} is {length} characters; the valid length is {expected}")]
    Length {
        /// The line.
        what: &'static str,
        /// The number of characters in the line.
        length: usize,
        /// The expected number of characters.
        expected: usize,
    },
    /// A line isn't base64.
    #[error("{0} isn't valid base64")]
    Base64(&'static str),
    /// The bytes of a trusted comment.
    #[error("the trusted comment is {0} bytes; the limit is {MAX_COMMENT}")]
    LongComment(usize),
    /// A trusted comment, cut and neutralised.
    #[error("the trusted comment has invisible characters: `{0}`")]
    HiddenCharacters(String),
    /// A file has too few lines.
    #[error("{what} has {count} lines; the valid number is {expected}")]
    TooFewLines {
        /// The file.
        what: &'static str,
        /// The number of lines in the file.
        count: usize,
        /// The expected number of lines.
        expected: usize,
    },
    /// A file has too many lines.
    #[error("{what} has too many lines; the valid number is {expected}")]
    TooManyLines {
        /// The file.
        what: &'static str,
        /// The expected number of lines.
        expected: usize,
    },
}

pub(crate) const UNTRUSTED: &str = "untrusted comment: ";

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a line of base64 that has to contain exactly `N` bytes.
pub(crate) fn decode<const N: usize>(
    line: &str,
    what: &'static str,
) -> Result<[u8; N], EncodingError> {
    let length = line.len();
    // Base64 has four characters for three bytes. A longer line isn't decoded at all.
    let expected = N.div_ceil(3) * 4;
    if length != expected {
        return Err(EncodingError::Length { what, length, expected });
    }
    let Ok(bytes) = STANDARD.decode(line) else { return Err(EncodingError::Base64(what)) };
    bytes.try_into().map_err(|_| EncodingError::Base64(what))
}

/// Checks that a trusted comment is short enough and has no characters that steer a terminal.
/// minisign's own comments have tabs.
pub(crate) fn check_comment(comment: &str) -> Result<(), EncodingError> {
    if comment.len() > MAX_COMMENT {
        return Err(EncodingError::LongComment(comment.len()));
    }
    let plain = comment.replace('\t', " ");
    if neutral_line(&plain) != plain {
        return Err(EncodingError::HiddenCharacters(neutral_line(cut(comment, 80))));
    }
    Ok(())
}

/// Splits a file into exactly `N` lines without line ends. minisign writes different line ends on
/// different systems.
pub(crate) fn lines<'t, const N: usize>(
    text: &'t str,
    what: &'static str,
) -> Result<[&'t str; N], EncodingError> {
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
