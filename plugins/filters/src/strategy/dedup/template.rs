//! Splits a line into what stays the same and what often changes: times, addresses, identifiers
//! and numbers.

use std::ops::Range;

use crate::guard::{Level, body};

/// The length of a line, in bytes, up to which parts of it may differ.
const MAX_LINE: usize = 4000;
/// The smallest number of letters of a line whose numbers may differ. A line of figures alone is
/// data.
const MIN_LETTERS: usize = 8;

/// A part of a line that may differ from the lines like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) place: Range<usize>,
    /// Whether it is the time of an entry of a log, which says when and not what.
    pub(super) is_time: bool,
}

/// Splits a line. `same` gets what lines have in common, with a mark for each part that may differ.
pub(super) fn split(line: &str, level: Level, same: &mut Vec<u8>) -> Vec<Slot> {
    same.clear();
    let mut slots = Vec::new();
    if line.len() <= MAX_LINE {
        scan(line, level, same, &mut slots);
    }
    let letters = same.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    if letters < MIN_LETTERS || time_length(line) == 0 && is_row(line) {
        slots.clear();
        same.clear();
        same.extend_from_slice(line.as_bytes());
    }
    slots
}

/// Of a line that reports a failure, only the time at its start and counts of tries may differ,
/// since other numbers are its place or reason.
fn scan(line: &str, level: Level, same: &mut Vec<u8>, slots: &mut Vec<Slot>) {
    let bytes = line.as_bytes();
    let stamp = stamp_length(bytes);
    let is_exact = level >= Level::ErrorContext || level > Level::Nothing && stamp == 0;
    let mut at = time_length(line);
    if at > 0 {
        same.push(0);
        slots.push(Slot { place: 0..at, is_time: true });
    }
    let loose = if is_exact { stamp } else { bytes.len() };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let between = rest.iter().position(u8::is_ascii_alphanumeric).unwrap_or(rest.len());
        if between > 0 {
            same.extend_from_slice(&rest[..between]);
            at += between;
            continue;
        }
        let length =
            rest.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let word = &rest[..length];
        let whole = uuid_length(rest).or_else(|| date_length(rest));
        if at < loose
            && let Some(length) = whole
        {
            push_slot(at, length, same, slots);
            let is_first = slots.iter().all(|slot| !slot.is_time);
            slots.last_mut().into_iter().for_each(|slot| slot.is_time = is_first && length != 36);
            at += length;
            continue;
        }
        if !word.iter().any(u8::is_ascii_digit) {
            same.extend_from_slice(word);
            at += length;
            continue;
        }
        let is_loose = at < loose || is_counter(&bytes[..at], word);
        if !is_loose || is_status(&bytes[..at], word) {
            same.extend_from_slice(word);
            at += length;
            continue;
        }
        at = scan_word(bytes, at, at + length, same, slots);
    }
}

fn push_slot(at: usize, length: usize, same: &mut Vec<u8>, slots: &mut Vec<Slot>) {
    same.push(0);
    slots.push(Slot { place: at..at + length, is_time: false });
}

/// Splits a word with digits: each number in it may differ. A hexadecimal number may differ as a
/// whole. Returns the end, which is after the word if its number has a fraction.
fn scan_word(
    bytes: &[u8],
    start: usize,
    end: usize,
    same: &mut Vec<u8>,
    slots: &mut Vec<Slot>,
) -> usize {
    let word = &bytes[start..end];
    let is_decimal = word.iter().all(u8::is_ascii_digit);
    let is_hex = word.len() >= 6 && word.iter().all(u8::is_ascii_hexdigit);
    if !is_decimal && is_hex || word.starts_with(b"0x") {
        push_slot(start, word.len(), same, slots);
        return end;
    }
    let mut at = start;
    while at < end {
        if !bytes[at].is_ascii_digit() {
            same.push(bytes[at]);
            at += 1;
            continue;
        }
        let length = number_length(&bytes[at..]);
        push_slot(at, length, same, slots);
        at += length;
    }
    at
}

/// The length of a number with its fraction: `12`, `12.5`, `1,234`. Of an address or a version,
/// such as `10.0.0.1`, all of it counts.
fn number_length(bytes: &[u8]) -> usize {
    let mut length = count_digits(bytes);
    while bytes.get(length) == Some(&b',') && count_digits(&bytes[length + 1..]) == 3 {
        length += 4;
    }
    while bytes.get(length) == Some(&b'.') {
        let more = count_digits(&bytes[length + 1..]);
        if more == 0 {
            break;
        }
        length += 1 + more;
    }
    length
}

/// The number of digits at the start of a text.
fn count_digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Whether a line without a time is a row of a table, which the caller asked for: columns between
/// bars, tabs, commas or wide gaps, or an item of JSON or XML.
pub(in super::super) fn is_row(line: &str) -> bool {
    line.starts_with('|')
        || line.trim_start().starts_with(['"', '<'])
        || count(line, " | ") >= 2
        || count(line, "\t") >= 2
        || count_gaps(line) >= 3
        || !line.starts_with('{') && count(line, ",") >= 3 && count(line, ", ") == 0
}

fn count(line: &str, sign: &str) -> usize {
    memchr::memmem::find_iter(line.as_bytes(), sign).count()
}

fn count_gaps(line: &str) -> usize {
    line.trim()
        .as_bytes()
        .windows(3)
        .filter(|bytes| bytes[0] != b' ' && bytes[1..] == *b"  ")
        .count()
}

/// Whether a line is an entry of a log: it has a time or a source, starts with a level, or is a
/// JSON object.
/// Its place among other entries doesn't matter much.
pub(super) fn is_entry(line: &str, slots: &[Slot]) -> bool {
    slots.iter().any(|slot| slot.is_time)
        // `docker compose` puts the name of the service first.
        || body(line).len() < line.len()
        || starts_with_level(line)
        || line.starts_with("{\"") && line.ends_with('}')
        || ["time=", "ts=", "level="].iter().any(|key| line.starts_with(key))
}

fn starts_with_level(line: &str) -> bool {
    const LEVELS: [&str; 9] =
        ["INFO", "DEBUG", "TRACE", "NOTICE", "info", "debug", "trace", "[INFO]", "[DEBUG]"];
    LEVELS.iter().any(|level| {
        line.strip_prefix(level).is_some_and(|rest| rest.starts_with([' ', ':', '\t', ']']))
    })
}

/// The length of the time at the start of a line, if the line starts with a time. `2048 files`
/// starts with a number.
fn time_length(line: &str) -> usize {
    let bytes = line.as_bytes();
    let length = stamp_length(bytes);
    let stamp = &bytes[..length];
    let has_clock = stamp.windows(4).any(|part| {
        part[0].is_ascii_digit()
            && part[1] == b':'
            && part[2].is_ascii_digit()
            && part[3].is_ascii_digit()
    });
    // The kernel writes `[   12.345678] `.
    let is_uptime = stamp.starts_with(b"[") && stamp.contains(&b'.') && stamp.contains(&b']');
    if !has_clock && !is_uptime {
        return 0;
    }
    // The white space after it belongs to the text.
    length - stamp.iter().rev().take_while(|byte| **byte == b' ').count()
}

/// Whether a number is the status of a request: `" 503`, `status=503`, `"status":503`.
fn is_status(before: &[u8], word: &[u8]) -> bool {
    if word.len() != 3 || !word.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let key = before.len()
        - before.iter().rev().take_while(|byte| matches!(byte, b'=' | b':' | b'"' | b' ')).count();
    before.ends_with(b"\" ")
        || before[..key].ends_with(b"status")
        || before[..key].ends_with(b"code")
}

/// Whether a number counts tries or time, which doesn't explain a failure: `attempt 3`, `in 5s`.
fn is_counter(before: &[u8], word: &[u8]) -> bool {
    if !word.first().is_some_and(u8::is_ascii_digit) {
        return false;
    }
    let unit =
        word.iter().position(|byte| !byte.is_ascii_digit()).map_or(&b""[..], |at| &word[at..]);
    let words = &before[before.len().saturating_sub(12)..];
    matches!(unit, b"s" | b"ms" | b"us" | b"ns" | b"secs" | b"min")
        || unit.is_empty()
            && [
                &b"attempt "[..],
                b"retry ",
                b"retries ",
                b"try ",
                b"attempt #",
                b"attempt=",
                b"retry=",
            ]
            .iter()
            .any(|key| words.ends_with(key))
}

/// The length of a UUID at the start of the text.
fn uuid_length(bytes: &[u8]) -> Option<usize> {
    let candidate = bytes.get(..36)?;
    let fits = candidate.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    (fits && !bytes.get(36).is_some_and(u8::is_ascii_alphanumeric)).then_some(36)
}

/// The length of a date with its time at the start of the text: `2026-01-02T10:11:12.5Z`,
/// `02/Jan/2026:10:11:12 +0000`.
fn date_length(bytes: &[u8]) -> Option<usize> {
    const FORMS: [&[u8]; 4] = [
        b"dddd-dd-ddTdd:dd:dd",
        b"dddd/dd/dd dd:dd:dd",
        b"dd/aaa/dddd:dd:dd:dd",
        b"dd aaa dddd dd:dd:dd",
    ];
    let length = FORMS.iter().find(|form| has_form(bytes, form))?.len();
    let rest = &bytes[length..];
    let fraction = rest
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'Z'))
        .count();
    let is_zone = rest[fraction..].first() == Some(&b' ')
        && matches!(rest.get(fraction + 1), Some(b'+' | b'-'));
    let zone = if is_zone {
        2 + rest[fraction + 2..].iter().take_while(|byte| byte.is_ascii_digit()).count()
    } else {
        0
    };
    Some(length + fraction + zone)
}

/// Whether a text starts with a form: `d` is a digit, `a` a letter, and `T` may be a blank.
fn has_form(bytes: &[u8], form: &[u8]) -> bool {
    bytes.get(..form.len()).is_some_and(|text| {
        text.iter().zip(form).all(|(byte, kind)| match kind {
            b'd' => byte.is_ascii_digit(),
            b'a' => byte.is_ascii_alphabetic(),
            b'T' => matches!(byte, b'T' | b' '),
            sign => byte == sign,
        })
    })
}

/// The number of bytes of the time at the start of a line: digits and signs between them, perhaps
/// after a bracket, a quote or the name of a month.
fn stamp_length(bytes: &[u8]) -> usize {
    const MONTHS: [&[u8; 3]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let start = bytes.iter().take_while(|byte| matches!(byte, b'[' | b'(' | b'"' | b' ')).count();
    let month = MONTHS.iter().any(|month| bytes[start..].starts_with(*month))
        && bytes.get(start + 3) == Some(&b' ');
    let digits = start + if month { 4 } else { 0 };
    let length = bytes[digits..].iter().take_while(|byte| is_of_time(**byte)).count();
    // A time has at least four digits. `3:5` is a place.
    let many = bytes[digits..digits + length].iter().filter(|byte| byte.is_ascii_digit()).count();
    if many >= 4 { digits + length } else { 0 }
}

fn is_of_time(byte: u8) -> bool {
    byte.is_ascii_digit()
        || matches!(
            byte,
            b'-' | b':' | b'.' | b',' | b'/' | b'T' | b'Z' | b'+' | b' ' | b']' | b')'
        )
}
