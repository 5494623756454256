use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher;

use berth_sdk::filter::Confidence;
use regex::{NoExpand, Regex};
use serde::Deserialize;

use super::{Outcome, Part, Run, compile};
use crate::guard::Level;
use crate::text::{is_blank, push_line};

/// The greatest number of lines of a block whose repetition is found.
const LONGEST_BLOCK: usize = 6;

/// Parameters of `dedup`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dedup {
    /// Further parts of lines that are ignored in comparisons.
    #[serde(default)]
    normalize: Vec<Normalize>,
}

/// A part of a line, and its placeholder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Normalize {
    pattern: String,
    replacement: String,
}

impl Dedup {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        let custom = self.normalize.iter().map(|Normalize { pattern, replacement }| {
            if replacement.contains('$') {
                return Err(format!("`replacement`: {replacement:?} has a `$`, but groups are not supported: remove the `$`"));
            }
            Ok((compile(pattern).map_err(|what| format!("`pattern`: {what}"))?, replacement.clone()))
        });
        Ok(Box::new(Deduplicator { custom: custom.collect::<Result<_, _>>()? }))
    }
}

struct Deduplicator {
    custom: Vec<(Regex, String)>,
}

impl Run for Deduplicator {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let lines = part.lines;
        if lines.len() < 3 {
            return Outcome::Unchanged;
        }
        // The keys are random, so that a program can't print different lines that count as equal.
        let hasher = RandomState::new();
        let mut same = Vec::new();
        let hashes: Vec<u64> = lines
            .iter()
            .zip(&part.levels)
            .map(|(line, level)| {
                same.clear();
                self.normalize(line, *level, &mut same);
                hasher.hash_one(&same)
            })
            .collect();
        let mut out = String::new();
        let mut at = 0;
        let mut repeats = false;
        while at < lines.len() {
            let (length, times) = repetition(&hashes[at..]);
            if times < 2 || lines[at..at + length].iter().all(|line| is_blank(line)) {
                let end = at + length * times;
                lines[at..end].iter().for_each(|line| push_line(&mut out, line));
                at = end;
                continue;
            }
            let end = at + length * times;
            push_repeated(&mut out, &lines[at..at + length], lines[end - 1], times);
            repeats = true;
            at = end;
        }
        if repeats { Outcome::Text(out, Confidence::Full) } else { Outcome::Unchanged }
    }
}

/// The length of the repeated block at the start of `hashes`, and the number of repetitions. It is
/// the shortest block that saves a line.
fn repetition(hashes: &[u64]) -> (usize, usize) {
    for length in 1..=LONGEST_BLOCK.min(hashes.len() / 2) {
        let block = &hashes[..length];
        if hashes[length] != block[0] {
            continue;
        }
        let times = hashes.chunks_exact(length).take_while(|chunk| *chunk == block).count();
        // The mark needs a line too.
        if times >= 2 && (length == 1 || length * (times - 1) > 2) {
            return (length, times);
        }
    }
    (1, 1)
}

/// The smallest number of letters of a line whose numbers are ignored. A line of figures alone is
/// data.
const MIN_LETTERS: usize = 8;

/// The greatest number of bytes that are shown of the difference between the last and the first
/// line.
const MAX_DIFFERENCE: usize = 160;

fn push_repeated(out: &mut String, block: &[&str], last: &str, times: usize) {
    for (at, line) in block.iter().enumerate() {
        out.push_str(line);
        if block.len() == 1 {
            // The last line shows how far something came.
            let _ = match different(line, last) {
                "" => write!(out, " (x{times})"),
                different => write!(out, " (x{times}; the last: {different})"),
            };
        } else if at + 1 == block.len() {
            let _ = write!(out, "\n... (these {} lines, x{times}) ...", block.len());
        }
        out.push('\n');
    }
}

/// The part of a line from the first word that differs from the first line. Times at the start
/// don't count.
fn different<'a>(first: &str, line: &'a str) -> &'a str {
    let (first, line) =
        (&first[stamp_length(first.as_bytes())..], &line[stamp_length(line.as_bytes())..]);
    let same = first.bytes().zip(line.bytes()).take_while(|(a, b)| a == b).count();
    if same == line.len() && same == first.len() {
        return "";
    }
    let word =
        line.as_bytes()[..same].iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1);
    let end = line.floor_char_boundary((word + MAX_DIFFERENCE).min(line.len()));
    line[line.floor_char_boundary(word)..end].trim_end()
}

impl Deduplicator {
    /// Writes the part of a line that is compared.
    fn normalize(&self, line: &str, level: Level, same: &mut Vec<u8>) {
        // No pattern makes two failures the same.
        if self.custom.is_empty() || level > Level::Nothing {
            normalize(line, level, same);
            if same.iter().filter(|byte| byte.is_ascii_alphabetic()).count() < MIN_LETTERS {
                same.clear();
                same.extend_from_slice(line.as_bytes());
            }
            return;
        }
        let mut text = std::borrow::Cow::Borrowed(line);
        for (pattern, replacement) in &self.custom {
            text = pattern.replace_all(&text, NoExpand(replacement)).into_owned().into();
        }
        normalize(&text, level, same);
    }
}

/// Writes a line without the parts that often change: times, addresses, identifiers and numbers. Of
/// a line that reports a failure, only the time at its start is left out, since other numbers are
/// its place or reason.
fn normalize(line: &str, level: Level, same: &mut Vec<u8>) {
    let bytes = line.as_bytes();
    let stamp = stamp_length(bytes);
    let is_exact = level >= Level::ErrorContext || level > Level::Nothing && stamp == 0;
    let loose = if is_exact { stamp } else { bytes.len() };
    let mut at = 0;
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
        if length == 8
            && let Some(length) = uuid_length(rest)
        {
            same.push(0);
            at += length;
            continue;
        }
        if !word.iter().any(u8::is_ascii_digit) {
            same.extend_from_slice(word);
            at += length;
            continue;
        }
        let is_loose = at < loose || is_counter(&bytes[..at], word);
        if is_loose && !is_status(&bytes[..at], word) {
            push_word(word, same);
        } else {
            same.extend_from_slice(word);
        }
        at += length;
    }
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

/// Writes a word with one mark for each number in it. A hexadecimal number becomes a single mark.
fn push_word(word: &[u8], same: &mut Vec<u8>) {
    if word.len() >= 6 && word.iter().all(u8::is_ascii_hexdigit) || word.starts_with(b"0x") {
        return same.push(0);
    }
    let mut was_digit = false;
    for &byte in word {
        let is_digit = byte.is_ascii_digit();
        if !is_digit {
            same.push(byte);
        } else if !was_digit {
            same.push(0);
        }
        was_digit = is_digit;
    }
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
    let in_time = |byte: &u8| {
        byte.is_ascii_digit()
            || matches!(
                byte,
                b'-' | b':' | b'.' | b',' | b'/' | b'T' | b'Z' | b'+' | b' ' | b']' | b')'
            )
    };
    let length = bytes[digits..].iter().take_while(|byte| in_time(byte)).count();
    // A time has at least four digits. `3:5` is a place.
    let many = bytes[digits..digits + length].iter().filter(|byte| byte.is_ascii_digit()).count();
    if many >= 4 { digits + length } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, steps};
    use super::*;

    const DEDUP: &str = "{ type = 'dedup' }";

    #[test]
    fn lines_that_differ_only_in_times_addresses_and_numbers_merge() {
        let text = "\
2026-01-02T10:00:00.123Z INFO request 550e8400-e29b-41d4-a716-446655440000 from 10.0.0.1:5123 took 12 ms
2026-01-02T10:00:01.456Z INFO request 123e4567-e89b-12d3-a456-426614174000 from 10.0.0.27:99 took 8 ms
2026-01-02T10:00:02.456Z INFO request 123e4567-e89b-12d3-a456-426614174001 from 10.0.0.2:99 took 118 ms
2026-01-02T10:00:03Z INFO stopping
";
        let expect = "\
2026-01-02T10:00:00.123Z INFO request 550e8400-e29b-41d4-a716-446655440000 from 10.0.0.1:5123 took 12 ms (x3; the last: 123e4567-e89b-12d3-a456-426614174001 from 10.0.0.2:99 took 118 ms)
2026-01-02T10:00:03Z INFO stopping
";
        check(DEDUP, false, text, expect, Confidence::Full);
    }

    #[test]
    fn errors_merge_only_if_they_differ_in_time() {
        let text = "\
10:00:01 ERROR job 17 failed
10:00:02 ERROR job 17 failed
10:00:03 ERROR job 18 failed
src/a.c:3:4: warning: unused
src/a.c:9:4: warning: unused
";
        let expect = "\
10:00:01 ERROR job 17 failed (x2)
10:00:03 ERROR job 18 failed
src/a.c:3:4: warning: unused
src/a.c:9:4: warning: unused
";
        check(DEDUP, false, text, expect, Confidence::Full);
    }

    #[test]
    fn lines_of_figures_do_not_merge() {
        let text = "1 17.5 10.0.0.1\n2 18.5 10.0.0.2\n3 19.5 10.0.0.3\n";
        check("{ type = 'dedup' }", false, text, "", Confidence::Full);
    }

    #[test]
    fn separated_lines_do_not_merge() {
        check(
            DEDUP,
            false,
            "a long line that is there twice\nanother\na long line that is there twice\n",
            "",
            Confidence::Full,
        );
    }

    #[test]
    fn repeated_blocks_merge() {
        let text = "connecting to 10.0.0.1\nno answer yet\n".repeat(5) + "connected\n";
        check(
            DEDUP,
            false,
            &text,
            "connecting to 10.0.0.1\nno answer yet\n... (these 2 lines, x5) ...\nconnected\n",
            Confidence::Full,
        );
    }

    #[test]
    fn operator_can_add_patterns_to_ignore() {
        let toml =
            "{ type = 'dedup', normalize = [{ pattern = 'user=\\w+', replacement = 'user=' }] }";
        let text = "login of user=anna from here\nlogin of user=bert from here\nlogin of user=cleo from here\n";
        check(
            toml,
            false,
            text,
            "login of user=anna from here (x3; the last: user=cleo from here)\n",
            Confidence::Full,
        );
        assert!(
            steps("{ type = 'dedup', normalize = [{ pattern = 'a', replacement = '$1' }] }")
                .is_err()
        );
    }
}
