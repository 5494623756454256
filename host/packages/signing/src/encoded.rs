//! Reads and writes the text of minisign's files: comments, and base64 of a fixed length.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolhold_contract::text::{cut, neutral_line};

/// Most bytes of a comment. minisign itself reads 8,192 of a trusted one, and less of others.
pub(crate) const MAX_COMMENT: usize = 4096;

/// A reason why a text isn't in the form of minisign's files. `what`: the part that isn't.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    /// A line of base64 has another length.
    #[error("{what} is {length} characters; the valid length is {expected}")]
    Length {
        /// The line.
        what: &'static str,
        /// Its characters.
        length: usize,
        /// The characters of such a line.
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
        /// Its lines.
        count: usize,
        /// The lines of such a file.
        expected: usize,
    },
    /// A file has too many lines.
    #[error("{what} has too many lines; the valid number is {expected}")]
    TooManyLines {
        /// The file.
        what: &'static str,
        /// The lines of such a file.
        expected: usize,
    },
}

pub(crate) const UNTRUSTED: &str = "untrusted comment: ";

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a line of base64 that has to stand for exactly `N` bytes.
pub(crate) fn decode<const N: usize>(
    line: &str,
    what: &'static str,
) -> Result<[u8; N], EncodingError> {
    let length = line.len();
    let expected = N.div_ceil(3) * 4;
    // More than that isn't decoded at all.
    if length != expected {
        return Err(EncodingError::Length { what, length, expected });
    }
    STANDARD
        .decode(line)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(EncodingError::Base64(what))
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

/// The lines of a file, without the ends that minisign itself writes on other systems.
pub(crate) fn lines<'t, const N: usize>(
    text: &'t str,
    what: &'static str,
) -> Result<[&'t str; N], EncodingError> {
    let lines: Vec<&str> = text.lines().take(N + 1).collect();
    lines.try_into().map_err(|lines: Vec<&str>| match lines.len() {
        count if count > N => EncodingError::TooManyLines { what, expected: N },
        count => EncodingError::TooFewLines { what, count, expected: N },
    })
}
