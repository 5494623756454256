//! Finds private keys as text blocks: PEM, OpenSSH, PGP.

use std::ops::Range;

use super::found::{Found, count_examined};
use super::mark;
use super::shapes::begins;

/// Base64 characters that a private key has at least.
pub(super) const MIN_KEY: usize = 40;

/// Most bytes of the first line of a block.
const MAX_FIRST_LINE: usize = 128;

/// Number of consecutive lines after which a block ends if they are neither a header nor part of a
/// key.
const MAX_OTHER_LINES: usize = 3;

/// Returns the key whose block starts at the `-BE` at `at`. The key goes up to the end of its block
/// or of the text.
pub(super) fn block_from_begin(text: &[u8], at: usize) -> Option<Found> {
    let start = at + 1 - dashes_before(text, at + 1);
    let label = text[at + 1..].strip_prefix(b"BEGIN")?;
    let mut at = at + 6 + key_label_length(label)?;
    // This block ends at the start of the next block, so that no byte is examined for both blocks.
    let next = position(&text[at..], b"-BEGIN").map_or(text.len(), |next| at + next);
    let text = &text[..next - dashes_before(text, next).min(next - at)];
    count_examined(text.len() - at);
    let mut end = at;
    let mut key_length = 0;
    let mut other_lines = 0;
    while at < text.len() && other_lines < MAX_OTHER_LINES {
        let (line, next) = line(text, at);
        if let Some(dashes) = position(line, b"-----END") {
            key_length += run(&line[..dashes]);
            let label = at + dashes + 8;
            end = label + key_label_length(&text[label..]).unwrap_or(0);
            break;
        }
        let length = run(line);
        // The last line of a key may be short.
        let is_last = length > 0 && key_length > 0 && other_lines == 0;
        let is_key_line = length >= 16 || (is_last && only_numbered(line, length));
        if is_key_line {
            key_length += length;
            other_lines = 0;
            end = at + line.trim_ascii_end().len() - trailing(line);
        } else if !line.trim_ascii().is_empty() && position(line, b": ").is_none() {
            other_lines += 1;
        }
        at = next;
    }
    (key_length >= MIN_KEY).then_some(Found { start, end, kind: mark::PRIVATE_KEY })
}

/// Returns the first line of the last block of a text, if the block contains a key and continues
/// after the end of the text.
pub(super) fn open_block(text: &str) -> Option<Range<usize>> {
    let block = block_from_begin(text.as_bytes(), text.rfind("-BEGIN")?)?;
    let has_end = text[block.start..block.end].contains("-----END");
    let lines_after = text[block.end..].lines().count();
    if has_end || lines_after > MAX_OTHER_LINES {
        return None;
    }
    let (first_line, next) = line(text.as_bytes(), block.start);
    // The line of a key that begins elsewhere isn't longer.
    (first_line.len() <= MAX_FIRST_LINE).then_some(block.start..next)
}

/// Returns the key whose block ends with the `-EN` at `at` and starts before the text. The text
/// before `from` was already examined.
pub(super) fn block_from_end(text: &[u8], at: usize, from: usize) -> Option<Found> {
    let label = text[at + 1..].strip_prefix(b"END")?;
    let end = at + 4 + key_label_length(label)?;
    let dashes = at + 1 - dashes_before(text, at + 1);
    // The text before the end of another block was examined for that block.
    let from = text[from..dashes.max(from)]
        .windows(4)
        .rposition(|window| window == b"-END")
        .map_or(from, |other| from + other + 4);
    count_examined(dashes.saturating_sub(from));
    let mut line_start = text[from..dashes.max(from)]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(from, |at| from + at + 1);
    let mut start = None;
    let mut key_length = 0;
    while line_start > from {
        let before = &text[from..line_start - 1];
        let line_offset = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = &before[line_offset..];
        let length = run(line);
        // The last line of a key may be short. The lines are read backwards.
        let is_last = key_length == 0 && length > 0;
        let is_key_line = length >= 16 || (is_last && only_numbered(line, length));
        if !is_key_line {
            break;
        }
        key_length += length;
        line_start = from + line_offset;
        start = Some(line_start + line.trim_ascii_end().len() - trailing(line) - length);
    }
    if key_length < MIN_KEY {
        return None;
    }
    Some(Found { start: start?, end, kind: mark::PRIVATE_KEY })
}

/// The first characters of private keys in base64 without a header: OpenSSH keys, elliptic curve
/// keys (RFC 5915, and RFC 5208 with prime256v1, secp384r1, secp521r1 and Ed25519), and RSA keys.
/// [`is_rsa`] checks RSA keys further.
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

/// Returns the key that starts at `at` without a header line. Such keys are in the output of a
/// search, or in a part of a file.
pub(super) fn headless(text: &[u8], at: usize) -> Option<Found> {
    let known = BEGINNINGS.iter().find(|known| text[at..].starts_with(known.as_bytes()))?;
    if !begins(text, at) {
        return None;
    }
    if *known == "MII" && !is_rsa(&text[at..]) {
        return None;
    }
    let length = text[at..].iter().take_while(|byte| is_base64(**byte)).count();
    count_examined(length);
    if length < MIN_KEY {
        return None;
    }
    // If no text follows the key in its line, full lines after it are also part of the key. Its
    // last line may be shorter.
    let mut end = at + length;
    let (line_rest, mut next) = line(&text[..text.len().min(end + 16)], end);
    let mut goes_on = trailing(line_rest) == line_rest.trim_ascii_end().len();
    while goes_on && next < text.len() {
        let (line, after) = line(text, next);
        count_examined(after - next);
        let length = run(line);
        let is_full = length >= MIN_KEY;
        let is_last = line.trim_ascii_end().ends_with(b"=") && only_numbered(line, length);
        if is_full || is_last {
            end = next + line.trim_ascii_end().len() - trailing(line);
        }
        // A line with a mark doesn't end the key.
        goes_on = is_full || mark::around(line, 0, line.len()).count() > 1;
        next = after;
    }
    Some(Found { start: at, end, kind: mark::PRIVATE_KEY })
}

/// Checks whether a text that starts with `MII` is an RSA key (PKCS #1 or #8, in DER). Such a key
/// is a sequence with its length, the version 0, and then a number of more than 127 bytes, or the
/// algorithm. Certificates and public keys start differently.
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

/// Returns the length of the label of a private key, including its closing dashes: ` RSA PRIVATE
/// KEY-----`. Returns `None` for other labels.
fn key_label_length(label: &[u8]) -> Option<usize> {
    let words = label
        .iter()
        .take(48)
        .take_while(|byte| {
            byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b' ' | b'+' | b'_')
        })
        .count();
    let is_private = label[..words]
        .windows(11)
        .any(|window| window.starts_with(b"PRIVATE") && window.ends_with(b"KEY"));
    let dashes = label[words..].iter().take(5).take_while(|byte| **byte == b'-').count();
    (is_private && dashes >= 4).then_some(words + dashes)
}

/// Returns the line that starts at `at`, and the start of the next line. An escaped line end `\n`
/// also ends a line.
fn line(text: &[u8], at: usize) -> (&[u8], usize) {
    // No key has a longer line. The bound keeps the time linear for a text without line ends.
    let rest = &text[at..text.len().min(at + 16 * 1024)];
    for (offset, byte) in rest.iter().enumerate() {
        match byte {
            b'\n' => return (&rest[..offset], at + offset + 1),
            b'\\' if rest.get(offset + 1) == Some(&b'n') => {
                return (&rest[..offset], at + offset + 2);
            }
            _ => {}
        }
    }
    (rest, at + rest.len())
}

/// Returns the number of base64 characters at the end of a line, without trailing quotes and signs
/// of a programming language.
fn run(line: &[u8]) -> usize {
    let line = &line[..line.trim_ascii_end().len() - trailing(line)];
    line.iter().rev().take_while(|byte| is_base64(**byte)).count()
}

/// Returns the number of bytes of quotes and operators of a programming language at the end of a
/// line, before its white space.
fn trailing(line: &[u8]) -> usize {
    let line = line.trim_ascii_end();
    let quotes = line
        .iter()
        .rev()
        .take(8)
        .take_while(|byte| matches!(byte, b'"' | b'\'' | b',' | b'\\' | b' ' | b';' | b'`'))
        .count();
    let before_quotes = &line[..line.len() - quotes];
    let has_plus = before_quotes.ends_with(b"\" +") || before_quotes.ends_with(b"' +");
    if has_plus { quotes + 3 } else { quotes }
}

/// Checks whether only a line number, a file name or a sign comes before the last `run` characters
/// of a line.
fn only_numbered(line: &[u8], run: usize) -> bool {
    let line = &line[..line.trim_ascii_end().len() - trailing(line)];
    let before = &line[..line.len() - run];
    before.ends_with(b" ") || before.iter().all(|byte| !byte.is_ascii_alphabetic())
}

fn position(text: &[u8], searched: &[u8]) -> Option<usize> {
    text.windows(searched.len()).position(|window| window == searched)
}
