//! One pass over a text. It stops at three bytes with which a secret or its key may begin, and
//! checks the text there.

use super::found::Found;
use super::keys::{self, Keys};
use super::{blocks, encoded, mark, multiline, places, shapes};

/// The secrets in `text`, in order and without overlap. `keys` returns the kind of the place at the
/// offset of a key. `depth`: how often the text was decoded.
pub(super) fn find(text: &str, keys: &dyn Fn(usize) -> Keys, depth: u8) -> Vec<Found> {
    let mut found = scan(text, keys, depth);
    let hidden = encoded::base64(text.as_bytes(), &found, find, keys, depth);
    if !hidden.is_empty() {
        found.extend(hidden);
        found.sort_unstable_by_key(|found| found.start);
    }
    found
}

fn scan(text: &str, keys: &dyn Fn(usize) -> Keys, depth: u8) -> Vec<Found> {
    let bytes = text.as_bytes();
    let mut found: Vec<Found> = Vec::new();
    // The text before `from` is already examined, so that a percent-encoded word is decoded once.
    let (mut from, mut at) = (0, 0);
    while let Some(next) = next_trigger(bytes, at) {
        at = next;
        match bytes[at] {
            b'[' => {
                let length = mark::length(&bytes[at..]);
                at += length.max(1);
                from = if length > 0 { at } else { from };
                continue;
            }
            b'%' => {
                if let Some((within, end)) = encoded::percent(text, at, from, find, keys, depth) {
                    found.extend(within);
                    (from, at) = (end, end);
                    continue;
                }
            }
            _ => {}
        }
        match secret_at(text, at, from, keys) {
            Some(secret) if secret.start >= from => {
                (from, at) = (secret.end, secret.end);
                add_without_marks(bytes, secret, &mut found);
            }
            _ => at += 1,
        }
    }
    found
}

/// Adds a secret, or its parts before, between and after marks.
fn add_without_marks(bytes: &[u8], secret: Found, found: &mut Vec<Found>) {
    for (start, end) in mark::around(bytes, secret.start, secret.end) {
        let whole = (start, end) == (secret.start, secret.end);
        let (start, end) = if whole { (start, end) } else { multiline::trimmed(bytes, start, end) };
        if whole || bytes[start..end].iter().any(|byte| !byte.is_ascii_punctuation()) {
            found.push(Found { start, end, ..secret });
        }
    }
}

fn secret_at(text: &str, at: usize, from: usize, keys: &dyn Fn(usize) -> Keys) -> Option<Found> {
    let bytes = text.as_bytes();
    let three = [bytes[at], bytes[at + 1], bytes[at + 2]];
    match &three {
        b"://" => places::url(bytes, at),
        b"-BE" => blocks::block_from_begin(bytes, at),
        b"-EN" => blocks::block_from_end(bytes, at, from),
        b":AA" => shapes::telegram(bytes, at),
        b"1//" => shapes::google_refresh(bytes, at),
        b"\\u0" => keys::escaped(text, at, keys),
        b"-us" => shapes::mailchimp(bytes, at),
        b"eyJ" => shapes::jwt(bytes, at),
        b"b3B" | b"MHc" | b"MIG" | b"MIH" | b"MC4" | b"MII" => blocks::headless(bytes, at),
        _ => {
            let found = shapes::at(bytes, at).or_else(|| {
                shapes::begins_discord(three).then(|| shapes::discord(bytes, at)).flatten()
            });
            found.or_else(|| match three.map(|byte| byte.to_ascii_lowercase()) {
                lower if lower == *b"bea" || lower == *b"bas" => {
                    places::scheme(bytes, at).or_else(|| keys::pair(text, at, keys))
                }
                lower if KEYS.has(lower) => {
                    keys::pair(text, at, keys).or_else(|| places::netrc(bytes, at))
                }
                _ => None,
            })
        }
    }
}

/// A set of groups of three bytes. It may also report a few groups that weren't put in.
struct Threes([u64; 1024]);

impl Threes {
    const fn has(&self, bytes: [u8; 3]) -> bool {
        let hash = Self::hash(bytes);
        self.0[hash >> 6] >> (hash & 63) & 1 == 1
    }

    const fn hash(bytes: [u8; 3]) -> usize {
        let value = bytes[0] as u32 | (bytes[1] as u32) << 8 | (bytes[2] as u32) << 16;
        (value.wrapping_mul(0x9E37_79B1) >> 16) as usize
    }

    const fn put(&mut self, bytes: [u8; 3]) {
        let hash = Self::hash(bytes);
        self.0[hash >> 6] |= 1 << (hash & 63);
    }

    /// Puts in the first three letters of a word, in upper and lower case.
    const fn put_any_case(&mut self, word: &str) {
        let word = word.as_bytes();
        let mut cases = 0;
        while cases < 8 {
            let mut bytes = [word[0], word[1], word[2]];
            let mut at = 0;
            while at < 3 {
                if cases >> at & 1 == 1 {
                    bytes[at] = bytes[at].to_ascii_uppercase();
                }
                at += 1;
            }
            self.put(bytes);
            cases += 1;
        }
    }
}

/// The first three letters of the words of keys, in lower case.
static KEYS: Threes = {
    let mut threes = Threes([0; 1024]);
    let mut index = 0;
    while index < keys::WORDS.len() {
        let word = keys::WORDS[index].as_bytes();
        threes.put([word[0], word[1], word[2]]);
        index += 1;
    }
    threes
};

/// The groups of three bytes at which the scanner stops.
static TRIGGERS: Threes = {
    let mut threes = Threes([0; 1024]);
    let mut index = 0;
    while index < keys::WORDS.len() {
        threes.put_any_case(keys::WORDS[index]);
        index += 1;
    }
    threes.put_any_case("bearer");
    threes.put_any_case("basic");
    index = 0;
    while let Some(prefix) = shapes::prefix(index) {
        if prefix.len() > 2 {
            threes.put([prefix[0], prefix[1], prefix[2]]);
        } else {
            // The prefix of two bytes is followed by a hexadecimal digit.
            let mut digit = 0;
            while digit < 22 {
                threes.put([prefix[0], prefix[1], b"0123456789abcdefABCDEF"[digit]]);
                digit += 1;
            }
        }
        index += 1;
    }
    let others: [&[u8; 3]; 18] = [
        b"\\u0", b"://", b"-BE", b"-EN", b":AA", b"1//", b"-us", b"eyJ", b"[RE", b"%3D", b"%3d",
        b"%3A", b"%3a", b"%20", b"%2F", b"%2f", b"%22", b"%40",
    ];
    index = 0;
    while index < others.len() {
        threes.put(*others[index]);
        index += 1;
    }
    index = 0;
    while index < blocks::BEGINNINGS.len() {
        let word = blocks::BEGINNINGS[index].as_bytes();
        threes.put([word[0], word[1], word[2]]);
        index += 1;
    }
    let [first, second, third] = shapes::DISCORD;
    index = 0;
    while index < first.len() * second.len() * third.len() {
        let rest = index / first.len();
        threes.put([
            first[index % first.len()],
            second[rest % second.len()],
            third[rest / second.len()],
        ]);
        index += 1;
    }
    threes
};

/// The first place from `at` on with a trigger.
fn next_trigger(bytes: &[u8], at: usize) -> Option<usize> {
    let found = bytes
        .get(at..)?
        .windows(3)
        .position(|three| TRIGGERS.has([three[0], three[1], three[2]]))?;
    Some(at + found)
}
