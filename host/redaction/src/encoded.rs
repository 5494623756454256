//! Secrets in another writing: base64, and percent signs.

use super::blocks;
use super::found::{Found, looked_at};
use super::keys::Keys;
use super::mark;

/// The search for what is encoded: it comes from above, since it also finds what is encoded again.
type Find = fn(&str, &dyn Fn(usize) -> Keys, u8) -> Vec<Found>;

/// Characters of base64 that can hide something: a short password with its key takes as many.
const LEAST: usize = 24;

/// Characters of it without those that only fill it up.
const LEAST_UNFILLED: usize = LEAST - 2;

/// Places in a run from which on it is decoded: a path that stands before base64 is of the same
/// characters.
const STARTS: usize = 4;

/// Bytes of one text that are decoded. What is longer holds no key and value by themselves, and its
/// parts are looked at nevertheless.
const MAX_DECODED: usize = 64 * 1024;

/// Bytes of a word with percent signs that are decoded at once.
const MAX_WORD: usize = 8192;

/// How often something may be encoded again.
const DEPTH: u8 = 2;

/// The runs of base64 in `text` that hold secrets when they are decoded, or that are lines of a
/// private key, since they stand in its file. Nothing within `taken` (in order) is looked at.
pub(super) fn base64(
    text: &[u8],
    taken: &[Found],
    find: Find,
    keys: &dyn Fn(usize) -> Keys,
    depth: u8,
) -> Vec<Found> {
    let mut found = Vec::new();
    if depth >= DEPTH {
        return found;
    }
    let mut taken = taken.iter().peekable();
    // A run of so many characters has one at every place that is a multiple of their number.
    let mut at = LEAST_UNFILLED - 1;
    while at < text.len() {
        if !is_base64(text[at]) {
            at += LEAST_UNFILLED;
            continue;
        }
        let back = text[..at]
            .iter()
            .rev()
            .take(LEAST_UNFILLED)
            .take_while(|byte| is_base64(**byte))
            .count();
        let start = at - back;
        let end = at + text[at..].iter().take_while(|byte| is_base64(**byte)).count();
        at = end + LEAST_UNFILLED;
        // A sign of equality fills a run up, or stands before one: `DATA=…`.
        let end = end + text[end..].iter().take(2).take_while(|byte| **byte == b'=').count();
        if end - start < LEAST {
            continue;
        }
        while taken.next_if(|found| found.end <= start).is_some() {}
        if taken.peek().is_some_and(|found| found.start < end) {
            continue;
        }
        let of_key = end - start >= blocks::LEAST && keys(start) == Keys::PrivateKey;
        let secret = of_key.then_some((start, mark::PRIVATE_KEY)).or_else(|| {
            let behind = text[start..end]
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'/')
                .map(|(at, _)| start + at + 1);
            let starts = std::iter::once(start)
                .chain(behind)
                .filter(|start| tells(&text[*start..end]))
                .take(STARTS);
            starts
                .map(|start| Some((start, hidden(&text[start..end], find, depth)?)))
                .find_map(|secret| secret)
        });
        if let Some((start, kind)) = secret {
            found.push(Found { start, end, kind });
        }
    }
    found
}

/// The kind of the first secret that a run holds.
fn hidden(run: &[u8], find: Find, depth: u8) -> Option<&'static str> {
    let mut rest = run;
    while rest.len() >= LEAST {
        let (now, later) = rest.split_at(rest.len().min(MAX_DECODED));
        rest = later;
        let Some(plain) = decoded(now) else { continue };
        if let Some(found) = find(&plain, &|_| Keys::Text, depth + 1).first() {
            return Some(found.kind);
        }
    }
    None
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Whether what begins so may be text in base64. Names and hashes are base64 too, and decode to
/// anything: the first bytes tell.
fn tells(run: &[u8]) -> bool {
    let Some(first) = run.first_chunk::<8>() else { return false };
    let mut bytes = Vec::new();
    decode(first, &mut bytes);
    bytes.len() >= 6 && bytes.iter().all(is_text)
}

/// What base64 of either alphabet says, where that is text.
pub(super) fn decoded(run: &[u8]) -> Option<String> {
    if !tells(run) {
        return None;
    }
    let mut bytes = Vec::with_capacity(run.len() / 4 * 3 + 3);
    decode(run, &mut bytes);
    // A block may end within a character.
    let valid = match std::str::from_utf8(&bytes) {
        Ok(text) => text.len(),
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => return None,
    };
    bytes.truncate(valid);
    String::from_utf8(bytes).ok()
}

fn is_text(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')
}

/// Decodes up to the first character that is not base64.
fn decode(run: &[u8], into: &mut Vec<u8>) {
    let (mut bits, mut held) = (0u32, 0);
    for byte in run {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            into.push((bits >> held) as u8);
        }
    }
}

/// The secrets in a word that is written with percent signs, one of which is at `at`, and where the
/// word ends. What lies before `from` was dealt with.
pub(super) fn percent(
    text: &str,
    at: usize,
    from: usize,
    find: Find,
    keys: &dyn Fn(usize) -> Keys,
    depth: u8,
) -> Option<(Vec<Found>, usize)> {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    if depth >= DEPTH || hex(at + 2).is_none() {
        return None;
    }
    let part = |byte: &&u8| {
        !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>')
    };
    let start = at - bytes[from..at].iter().rev().take(256).take_while(part).count();
    let start = text.ceil_char_boundary(start);
    // A mark is none of it, though its first part has no white space in it.
    let ends = |offset: usize, byte: u8| byte == b'[' && mark::length(&bytes[at + offset..]) > 0;
    let length = bytes[at..]
        .iter()
        .enumerate()
        .take(MAX_WORD)
        .take_while(|(offset, byte)| part(byte) && !ends(*offset, **byte))
        .count();
    let end = text.floor_char_boundary(at + length);
    let mut plain = Vec::with_capacity(end - start);
    let mut places = Vec::with_capacity(end - start + 1);
    let mut raw = start;
    while raw < end {
        places.push(raw);
        match (bytes[raw], hex(raw + 1), hex(raw + 2)) {
            (b'%', Some(high), Some(low)) if raw + 2 < end => {
                plain.push((high * 16 + low) as u8);
                raw += 3;
            }
            (byte, ..) => {
                plain.push(byte);
                raw += 1;
            }
        }
    }
    places.push(end);
    looked_at(end - start);
    // What is no text is no secret, and hides none: every byte keeps its place.
    let plain = String::from_utf8(plain).unwrap_or_else(|error| {
        let shown = |byte: u8| if byte.is_ascii() { char::from(byte) } else { '?' };
        error.into_bytes().into_iter().map(shown).collect()
    });
    let place = keys(start);
    let found = find(&plain, &|_| place, depth + 1);
    let found = found.into_iter().map(|found| Found {
        start: places[found.start],
        end: places[found.end],
        ..found
    });
    Some((found.collect(), end))
}
