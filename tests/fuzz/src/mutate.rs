//! Changes an input in small ways.

use std::ops::Range;

use crate::json::value_at;
use crate::random::Random;

/// Most bytes of an input.
const MAX_INPUT: usize = 64 << 10;

/// Numbers at the borders of types.
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "127",
    "255",
    "256",
    "65536",
    "2147483647",
    "-2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551616",
    "1e999",
    "-0.0",
    "1.5",
];

/// Characters that texts have to be neutralised of, or that take several bytes.
const CHARACTERS: [&str; 10] = [
    "\0",
    "\u{1b}[2J",
    "\r\n",
    "\u{feff}",
    "\u{202e}",
    "\u{2028}",
    "é",
    "\u{1f600}",
    "\\ud800",
    "\u{7f}",
];

/// Changes an input a few times. `other`: an input that parts may come from.
pub(crate) fn mutate(input: &mut Vec<u8>, other: &[u8], tokens: &[&str], random: &mut Random) {
    for _ in 0..random.few(8) {
        change(input, other, tokens, random);
    }
    input.truncate(MAX_INPUT);
}

fn change(input: &mut Vec<u8>, other: &[u8], tokens: &[&str], random: &mut Random) {
    let length = input.len();
    let at = random.below(length + 1);
    match random.below(16) {
        0 if length > 0 => input[at.min(length - 1)] ^= 1 << random.below(8),
        1 if length > 0 => input[at.min(length - 1)] = random.next() as u8,
        2 => drop(input.drain(random.range(length, length))),
        3 => input.truncate(at),
        4 => {
            let part = input[random.range(length, 256)].to_vec();
            insert(input, at, &part, 1);
        }
        5 => {
            let part = &other[random.range(other.len(), 1024)];
            insert(input, at, part, 1);
        }
        6 => {
            let part = other[random.range(other.len(), 1024)].to_vec();
            input.splice(random.range(length, 64), part);
        }
        7 => {
            let part = random.bytes(1 + at % 4);
            insert(input, at, &part, 1);
        }
        8 => insert(input, at, random.one(&CHARACTERS).as_bytes(), 1),
        9 => {
            if let Some(number) = number_at(input, at) {
                input.splice(number, random.one(&NUMBERS).bytes());
            }
        }
        // Deep, or many.
        10 if random.below(8) == 0 => {
            let times = random.few(MAX_INPUT);
            let part = match random.below(2) {
                0 => random.one(tokens).as_bytes().to_vec(),
                _ => input[random.range(length, 32)].to_vec(),
            };
            insert(input, at, &part, times);
        }
        11 | 12 => {
            if let (Some(own), Some(value)) = (value_at(input, at), any_value(other, random)) {
                let value = other[value].to_vec();
                input.splice(own, value);
            }
        }
        13 => {
            if let (Some(own), Some(value)) = (value_at(input, at), any_value(input, random)) {
                let value = input[value].to_vec();
                input.splice(own, value);
            }
        }
        _ => {
            let token = random.one(tokens).as_bytes();
            match random.below(4) {
                0 => drop(input.splice(random.range(length, 16), token.iter().copied())),
                _ => insert(input, at, token, random.few(3)),
            }
        }
    }
}

fn insert(input: &mut Vec<u8>, at: usize, part: &[u8], times: usize) {
    let room = MAX_INPUT.saturating_sub(input.len()) / part.len().max(1);
    let part = part.repeat(times.min(room));
    input.splice(at..at, part);
}

fn any_value(text: &[u8], random: &mut Random) -> Option<Range<usize>> {
    value_at(text, random.below(text.len() + 1))
}

/// The next number behind a place.
fn number_at(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + text[at..].iter().position(u8::is_ascii_digit)?;
    let end = text[start..].iter().position(|byte| !byte.is_ascii_digit());
    Some(start..end.map_or(text.len(), |end| start + end))
}
