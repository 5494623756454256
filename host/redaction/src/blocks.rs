//! Private keys as text: PEM, OpenSSH, PGP.

use super::found::{Found, looked_at};
use super::mark;
use super::shapes::begins;

/// Base64 characters without which a block holds no key.
pub(super) const LEAST: usize = 40;

/// Lines in a row that are neither a header nor part of a key, after which the block is over.
const STRAY: usize = 3;

/// A key whose block begins at the `-BE` at `at`, to its end, or as far as it is there.
pub(super) fn begun(text: &[u8], at: usize) -> Option<Found> {
    let start = at + 1 - dashes_before(text, at + 1);
    let label = text[at + 1..].strip_prefix(b"BEGIN")?;
    let mut at = at + 6 + closing(label)?;
    // Where the next block begins, this one is over: nothing is looked at for both.
    let next = position(&text[at..], b"-BEGIN").map_or(text.len(), |next| at + next);
    let text = &text[..next - dashes_before(text, next).min(next - at)];
    looked_at(text.len() - at);
    let (mut end, mut held, mut stray) = (at, 0, 0);
    while at < text.len() && stray < STRAY {
        let (line, next) = line(text, at);
        if let Some(dashes) = position(line, b"-----END") {
            held += run(&line[..dashes]);
            let label = at + dashes + 8;
            end = label + closing(&text[label..]).unwrap_or(0);
            break;
        }
        let length = run(line);
        if length >= 16 || length > 0 && held > 0 && stray == 0 && only_numbered(line, length) {
            held += length;
            stray = 0;
            end = at + line.trim_ascii_end().len() - trailing(line);
        } else if !line.trim_ascii().is_empty() && position(line, b": ").is_none() {
            stray += 1;
        }
        at = next;
    }
    (held >= LEAST).then_some(Found { start, end, kind: mark::PRIVATE_KEY })
}

/// A key whose block ends with the `-EN` at `at`, and begins before the text. What lies before
/// `from` was dealt with.
pub(super) fn ended(text: &[u8], at: usize, from: usize) -> Option<Found> {
    let label = text[at + 1..].strip_prefix(b"END")?;
    let end = at + 4 + closing(label)?;
    let dashes = at + 1 - dashes_before(text, at + 1);
    // What lies before the end of another block was looked at for that one.
    let from = text[from..dashes.max(from)]
        .windows(4)
        .rposition(|window| window == b"-END")
        .map_or(from, |other| from + other + 4);
    looked_at(dashes.saturating_sub(from));
    let mut line_start = text[from..dashes.max(from)]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(from, |at| from + at + 1);
    let (mut start, mut held) = (None, 0);
    while line_start > from {
        let before = &text[from..line_start - 1];
        let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = &before[begin..];
        let length = run(line);
        if length < 16 && !(held == 0 && length > 0 && only_numbered(line, length)) {
            break;
        }
        held += length;
        line_start = from + begin;
        start = Some(line_start + line.trim_ascii_end().len() - trailing(line) - length);
    }
    let start = start.filter(|_| held >= LEAST)?;
    Some(Found { start, end, kind: mark::PRIVATE_KEY })
}

/// How the base64 of private keys begins, without what stands around it: OpenSSH's, elliptic
/// curves' (RFC 5915, and RFC 5208 with prime256v1, secp384r1, secp521r1 and Ed25519), and RSA's,
/// which goes on as [`is_rsa`] says.
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

/// A key that begins at `at` without a line before it that says so: what a search shows of it, or a
/// file's part.
pub(super) fn headless(text: &[u8], at: usize) -> Option<Found> {
    let known = BEGINNINGS.iter().find(|known| text[at..].starts_with(known.as_bytes()))?;
    if !begins(text, at) || *known == "MII" && !is_rsa(&text[at..]) {
        return None;
    }
    let length = text[at..].iter().take_while(|byte| is_base64(**byte)).count();
    looked_at(length);
    if length < LEAST {
        return None;
    }
    // Where nothing comes behind it in its line, the next lines are its own too, as long as they
    // are full; its last one need not be.
    let mut end = at + length;
    let (rest, mut next) = line(&text[..text.len().min(end + 16)], end);
    let mut whole = trailing(rest) == rest.trim_ascii_end().len();
    while whole && next < text.len() {
        let (line, after) = line(text, next);
        looked_at(after - next);
        let length = run(line);
        let full = length >= LEAST;
        // A mark in its place is no end.
        whole = full || mark::around(line, 0, line.len()).count() > 1;
        if full || line.trim_ascii_end().ends_with(b"=") && only_numbered(line, length) {
            end = next + line.trim_ascii_end().len() - trailing(line);
        }
        next = after;
    }
    Some(Found { start: at, end, kind: mark::PRIVATE_KEY })
}

/// Whether what begins with `MII` is an RSA key (PKCS #1 or #8, in DER): a sequence of so many
/// bytes, the version 0, and then a number of more than 127 bytes, or the algorithm. A certificate
/// and a public key begin otherwise.
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

/// How far a label reaches, its closing dashes included, where it is a private key's:
/// ` RSA PRIVATE KEY-----`.
fn closing(label: &[u8]) -> Option<usize> {
    let words = label
        .iter()
        .take(48)
        .take_while(|byte| {
            byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b' ' | b'+' | b'_')
        })
        .count();
    let private = label[..words]
        .windows(11)
        .any(|window| window.starts_with(b"PRIVATE") && window.ends_with(b"KEY"));
    let dashes = label[words..].iter().take(5).take_while(|byte| **byte == b'-').count();
    (private && dashes >= 4).then_some(words + dashes)
}

/// The line that begins at `at`, and where the next one does. A line end that is written as `\n` is
/// one too.
fn line(text: &[u8], at: usize) -> (&[u8], usize) {
    // No key has a longer line, and what has none is not searched to its end time and again.
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

/// How many base64 characters stand together at the end of a line, without what a language puts
/// behind a text.
fn run(line: &[u8]) -> usize {
    let line = &line[..line.trim_ascii_end().len() - trailing(line)];
    line.iter().rev().take_while(|byte| is_base64(**byte)).count()
}

fn trailing(line: &[u8]) -> usize {
    let line = line.trim_ascii_end();
    let junk = line
        .iter()
        .rev()
        .take(8)
        .take_while(|byte| matches!(byte, b'"' | b'\'' | b',' | b'\\' | b' ' | b';' | b'`'))
        .count();
    let plus =
        line[..line.len() - junk].ends_with(b"\" +") || line[..line.len() - junk].ends_with(b"' +");
    if plus { junk + 3 } else { junk }
}

/// Whether nothing but a line's number, its file or a sign comes before the last characters of a
/// line.
fn only_numbered(line: &[u8], run: usize) -> bool {
    let line = &line[..line.trim_ascii_end().len() - trailing(line)];
    let before = &line[..line.len() - run];
    before.ends_with(b" ") || before.iter().all(|byte| !byte.is_ascii_alphabetic())
}

fn position(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
