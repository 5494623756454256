//! Reads and writes the text of minisign's files: comments, and base64 of a fixed length.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toolhold_contract::text::{cut, neutral_line};

/// Most bytes of a comment. minisign itself reads 8,192 of a trusted one, and less of others.
pub(crate) const MAX_COMMENT: usize = 4096;

pub(crate) const UNTRUSTED: &str = "untrusted comment: ";

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a line of base64 that has to stand for exactly `N` bytes.
pub(crate) fn decode<const N: usize>(line: &str, what: &str) -> Result<[u8; N], String> {
    // More than that isn't decoded at all.
    if line.len() != N.div_ceil(3) * 4 {
        return Err(format!(
            "{what} is {} characters; it has to be {}",
            line.len(),
            N.div_ceil(3) * 4
        ));
    }
    STANDARD
        .decode(line)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("{what} isn't valid base64"))
}

/// Whether a comment is short enough and has no characters that steer a terminal. minisign's own
/// comments have tabs.
pub(crate) fn check_comment(comment: &str, what: &str) -> Result<(), String> {
    if comment.len() > MAX_COMMENT {
        return Err(format!("{what} is {} bytes; the limit is {MAX_COMMENT}", comment.len()));
    }
    let plain = comment.replace('\t', " ");
    if neutral_line(&plain) != plain {
        return Err(format!(
            "{what} has characters that don't show: `{}`",
            neutral_line(cut(comment, 80))
        ));
    }
    Ok(())
}

/// The lines of a file, without the ends that minisign itself writes on other systems.
pub(crate) fn lines<'t, const N: usize>(text: &'t str, what: &str) -> Result<[&'t str; N], String> {
    let lines: Vec<&str> = text.lines().take(N + 1).collect();
    let count = lines.len();
    lines.try_into().map_err(|_| {
        let count = if count > N { "more".into() } else { count.to_string() };
        format!("{what} has {count} lines; it has to have {N}")
    })
}
