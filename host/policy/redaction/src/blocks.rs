//! Finds private keys as blocks of lines: PEM, OpenSSH, PGP.

use std::ops::Range;

use super::found::{Found, count_examined};
use super::mark;
use super::shapes::may_begin;

/// Base64 characters of the shortest private key.
pub(super) const MIN_KEY: usize = 40;

/// Bytes of the longest first line of a block.
const MAX_FIRST_LINE: usize = 128;

/// Base64 characters of the shortest full line of a key. A shorter sequence may be an ordinary
/// word, so it is accepted only in the last line.
const MIN_KEY_LINE: usize = 16;

/// Bytes after the first line of a key that may be quotes and operators.
const MAX_LINE_REST: usize = 16;

/// Bytes of the longest line of a key. The limit keeps the time linear in a text without line ends,
/// because the line is read again for each key in it.
const MAX_LINE: usize = 16 * 1024;

/// Bytes of the longest label of a key, without its dashes.
const MAX_LABEL: usize = 48;

/// Quotes and operators at the end of a line.
const MAX_QUOTES: usize = 8;

/// A block ends after this number of consecutive lines that are neither a header nor part of a key.
const MAX_OTHER_LINES: usize = 3;

/// Returns the key whose block starts with the `-BE` at `begin`. The end of the block may be
/// missing.
pub(super) fn block_from_begin(text: &[u8], begin: usize) -> Option<Found> {
    let after_dash = begin + 1;
    let start = after_dash - dashes_before(text, after_dash);
    let label = text[after_dash..].strip_prefix(b"BEGIN")?;
    let label_end = begin + b"-BEGIN".len() + key_label_length(label)?;
    // A block ends before the next block, so no byte is examined twice.
    let next_begin = match position(&text[label_end..], b"-BEGIN") {
        Some(offset) => label_end + offset,
        None => text.len(),
    };
    let dashes_of_next = dashes_before(text, next_begin).min(next_begin - label_end);
    let text = &text[..next_begin - dashes_of_next];
    count_examined(text.len() - label_end);

    let mut at = label_end;
    let mut end = label_end;
    let mut key_length = 0;
    let mut other_lines = 0;
    while at < text.len() && other_lines < MAX_OTHER_LINES {
        let (current, next_line) = line(text, at);
        if let Some(dashes) = position(current, b"-----END") {
            key_length += base64_at_end(&current[..dashes]);
            let end_label = at + dashes + b"-----END".len();
            // A label that is cut off isn't part of the key.
            end = end_label + key_label_length(&text[end_label..]).unwrap_or(0);
            break;
        }
        let length = base64_at_end(current);
        // The last line of a key may be short.
        let is_last = length > 0 && key_length > 0 && other_lines == 0;
        let is_key_line = length >= MIN_KEY_LINE || (is_last && only_numbered(current, length));
        if is_key_line {
            key_length += length;
            other_lines = 0;
            end = at + current.trim_ascii_end().len() - trailing_quotes(current);
        } else {
            let is_header = position(current, b": ").is_some();
            if !is_header && !current.trim_ascii().is_empty() {
                other_lines += 1;
            }
        }
        at = next_line;
    }
    if key_length < MIN_KEY {
        return None;
    }
    Some(Found { start, end, kind: mark::PRIVATE_KEY })
}

/// Returns the first line of the last block of a text, if the block contains a key without an end.
pub(super) fn open_block(text: &str) -> Option<Range<usize>> {
    let block = block_from_begin(text.as_bytes(), text.rfind("-BEGIN")?)?;
    let has_end = text[block.start..block.end].contains("-----END");
    let is_before_other_text = text[block.end..].lines().count() > MAX_OTHER_LINES;
    if has_end || is_before_other_text {
        return None;
    }
    let (first_line, next_line) = line(text.as_bytes(), block.start);
    // A longer line isn't the first line of a key.
    if first_line.len() > MAX_FIRST_LINE {
        return None;
    }
    Some(block.start..next_line)
}

/// Returns the key whose block ends with the `-EN` at `at`, in a text without the start of the
/// block. The text before `examined` was already examined.
pub(super) fn block_from_end(text: &[u8], at: usize, examined: usize) -> Option<Found> {
    let after_dash = at + 1;
    let label = text[after_dash..].strip_prefix(b"END")?;
    let end = at + b"-END".len() + key_label_length(label)?;
    let dashes = after_dash - dashes_before(text, after_dash);
    let before_dashes = &text[examined..dashes.max(examined)];
    // The text before another `-END` was already examined for that block.
    let other_end = before_dashes.windows(b"-END".len()).rposition(|window| window == b"-END");
    let from = match other_end {
        Some(offset) => examined + offset + b"-END".len(),
        None => examined,
    };
    count_examined(dashes.saturating_sub(from));
    let start = first_key_line(text, from, dashes.max(from))?;
    Some(Found { start, end, kind: mark::PRIVATE_KEY })
}

/// Returns the start of the lines of a key that end at `end`. The lines are read backwards, at most
/// to `from`. Returns `None` if the lines are too short for a key.
fn first_key_line(text: &[u8], from: usize, end: usize) -> Option<usize> {
    let mut line_start = from + last_line_start(&text[from..end]);
    let mut start = None;
    let mut key_length = 0;
    while line_start > from {
        let line_end = line_start - 1;
        let before = &text[from..line_end];
        let line_offset = last_line_start(before);
        let line = &before[line_offset..];
        let length = base64_at_end(line);
        // The lines are read backwards, so the last line of the key is first. It may be short.
        let is_last = key_length == 0 && length > 0;
        let is_key_line = length >= MIN_KEY_LINE || (is_last && only_numbered(line, length));
        if !is_key_line {
            break;
        }
        key_length += length;
        line_start = from + line_offset;
        let base64_end = line.trim_ascii_end().len() - trailing_quotes(line);
        start = Some(line_start + base64_end - length);
    }
    if key_length < MIN_KEY { None } else { start }
}

fn last_line_start(text: &[u8]) -> usize {
    match text.iter().rposition(|byte| *byte == b'\n') {
        Some(line_end) => line_end + 1,
        None => 0,
    }
}

/// The first characters of private keys in base64: OpenSSH keys, elliptic curve keys (RFC 5915, and
/// RFC 5208 with prime256v1, secp384r1, secp521r1 and Ed25519), and RSA keys. [`is_rsa`] checks RSA
/// keys further.
pub(super) const BEGINNINGS: [&str; 9] = [
    "b3BlbnNzaC1rZXktdjE",
    "MHcCAQEEI",
    "MIGkAgEBBD",
    "MIHcAgEBBE",
    "MIGHAgEAMBMGByqGSM49",
    "MIG2AgEAMBAGByqGSM49",
    "MIHuAgEAMBAGByqGSM49",
    "MC4CAQAwBQYDK2VwBCIE",
    "MII",
];

/// Returns the key that starts at `at` without a header line. The output of a search, or a part of
/// a file, can contain such a key.
pub(super) fn headless(text: &[u8], at: usize) -> Option<Found> {
    let beginning =
        BEGINNINGS.iter().find(|beginning| text[at..].starts_with(beginning.as_bytes()))?;
    if !may_begin(text, at) {
        return None;
    }
    if *beginning == "MII" && !is_rsa(&text[at..]) {
        return None;
    }
    let length = text[at..].iter().take_while(|byte| is_base64(**byte)).count();
    count_examined(length);
    if length < MIN_KEY {
        return None;
    }
    let end = end_over_lines(text, at + length);
    Some(Found { start: at, end, kind: mark::PRIVATE_KEY })
}

/// Returns the end of a key whose first line ends at `end`. If only quotes or operators come after
/// the first line, the key goes on with the next full lines, and with one shorter line after them.
fn end_over_lines(text: &[u8], mut end: usize) -> usize {
    let near_end = text.len().min(end + MAX_LINE_REST);
    let (line_rest, mut next_line) = line(&text[..near_end], end);
    let mut goes_on = trailing_quotes(line_rest) == line_rest.trim_ascii_end().len();
    while goes_on && next_line < text.len() {
        let (current, after) = line(text, next_line);
        count_examined(after - next_line);
        let length = base64_at_end(current);
        let is_full = length >= MIN_KEY;
        let is_last = current.trim_ascii_end().ends_with(b"=") && only_numbered(current, length);
        if is_full || is_last {
            end = next_line + current.trim_ascii_end().len() - trailing_quotes(current);
        }
        // A line with the mark of a redacted secret belongs to the key.
        let has_mark = mark::unmarked_ranges(current, 0, current.len()).count() > 1;
        goes_on = is_full || has_mark;
        next_line = after;
    }
    end
}

/// Checks whether base64 that starts with `MII` is an RSA key in DER, and not a certificate or a
/// public key. A key starts with the length of a sequence and the version 0. The algorithm follows
/// in PKCS #8, and a number of more than 127 bytes in PKCS #1.
fn is_rsa(text: &[u8]) -> bool {
    let Some([_, _, _, _, _, b'A' | b'Q' | b'g' | b'w', b'I', b'B', rest @ ..]) =
        text.first_chunk::<12>()
    else {
        return false;
    };
    matches!(rest, b"AAKC" | b"AAKB" | b"ADAN")
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

fn dashes_before(text: &[u8], at: usize) -> usize {
    text[..at].iter().rev().take(5).take_while(|byte| **byte == b'-').count()
}

/// Returns the length of a private key's label, including its closing dashes. An example is
/// ` RSA PRIVATE KEY-----`. Returns `None` for other labels.
fn key_label_length(label: &[u8]) -> Option<usize> {
    let words_length = label
        .iter()
        .take(MAX_LABEL)
        .take_while(|byte| {
            byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b' ' | b'+' | b'_')
        })
        .count();
    let (words, after_words) = label.split_at(words_length);
    // A space or an underscore is between the two words.
    let is_private = words
        .windows(b"PRIVATE KEY".len())
        .any(|window| window.starts_with(b"PRIVATE") && window.ends_with(b"KEY"));
    let dashes = after_words.iter().take(b"-----".len()).take_while(|byte| **byte == b'-').count();
    // The last dash of a label may be missing.
    if !is_private || dashes < b"----".len() {
        return None;
    }
    Some(words_length + dashes)
}

/// Returns the line that starts at `at`, and the start of the next line. An escaped line end `\n`
/// also ends a line.
fn line(text: &[u8], at: usize) -> (&[u8], usize) {
    let rest = &text[at..text.len().min(at + MAX_LINE)];
    for (offset, byte) in rest.iter().enumerate() {
        if *byte == b'\n' {
            return (&rest[..offset], at + offset + 1);
        }
        if *byte == b'\\' && rest.get(offset + 1) == Some(&b'n') {
            return (&rest[..offset], at + offset + br"\n".len());
        }
    }
    (rest, at + rest.len())
}

/// Counts the base64 characters at the end of a line, before its quotes and operators.
fn base64_at_end(line: &[u8]) -> usize {
    let line = &line[..line.trim_ascii_end().len() - trailing_quotes(line)];
    line.iter().rev().take_while(|byte| is_base64(**byte)).count()
}

/// Counts the bytes of quotes and operators at the end of a line, before its white space.
fn trailing_quotes(line: &[u8]) -> usize {
    let trimmed = line.trim_ascii_end();
    let quotes = trimmed
        .iter()
        .rev()
        .take(MAX_QUOTES)
        .take_while(|byte| matches!(byte, b'"' | b'\'' | b',' | b'\\' | b' ' | b';' | b'`'))
        .count();
    let before_quotes = &trimmed[..trimmed.len() - quotes];
    let has_plus = before_quotes.ends_with(b"\" +") || before_quotes.ends_with(b"' +");
    if has_plus { quotes + b"\" +".len() } else { quotes }
}

/// Checks whether only a line number, a file name or a sign comes before the last `run` characters
/// of a line.
fn only_numbered(line: &[u8], run: usize) -> bool {
    let line = &line[..line.trim_ascii_end().len() - trailing_quotes(line)];
    let before = &line[..line.len() - run];
    before.ends_with(b" ") || before.iter().all(|byte| !byte.is_ascii_alphabetic())
}

fn position(text: &[u8], searched: &[u8]) -> Option<usize> {
    text.windows(searched.len()).position(|window| window == searched)
}
