//! Finds the secrets in a text in one pass. The scan stops where three bytes may start a secret or
//! its key ([`Triggers`]), and each kind of search then checks the text at this place.

use super::found::Found;
use super::keys::{self, Keys};
use super::{blocks, encoded, mark, multiline, places, shapes};

/// Returns the secrets in `text`, in order and without overlap. `keys` returns the kind of the
/// place at the offset of a key. `depth` is the number of times that the text was decoded.
pub(super) fn find(text: &str, keys: &dyn Fn(usize) -> Keys, depth: u8) -> Vec<Found> {
    let mut secrets = scan(text, keys, depth, next_trigger);
    let encoded_secrets = encoded::base64(text.as_bytes(), &secrets, find, keys, depth);
    if !encoded_secrets.is_empty() {
        secrets.extend(encoded_secrets);
        secrets.sort_unstable_by_key(|secret| secret.start);
    }
    secrets
}

/// Finds the secrets that are not in base64. `next` returns the next offset at which a secret may
/// start. It may return other offsets too, but must not skip an offset at which a secret starts.
pub(super) fn scan(
    text: &str,
    keys: &dyn Fn(usize) -> Keys,
    depth: u8,
    next: impl Fn(&[u8], usize) -> Option<usize>,
) -> Vec<Found> {
    let bytes = text.as_bytes();
    let mut secrets: Vec<Found> = Vec::new();
    // The text before `from` was already examined, so that a percent-encoded word is decoded once.
    let mut from = 0;
    let mut at = 0;

    while let Some(trigger) = next(bytes, at) {
        at = trigger;

        if bytes[at] == b'[' {
            let mark_length = mark::length(&bytes[at..]);
            at += mark_length.max(1);
            if mark_length > 0 {
                from = at;
            }
            continue;
        }

        let is_percent_sign = PERCENT.iter().any(|sign| bytes[at..].starts_with(*sign));
        if is_percent_sign
            && let Some((word_secrets, end)) = encoded::percent(text, at, from, find, keys, depth)
        {
            secrets.extend(word_secrets);
            from = end;
            at = end;
            continue;
        }

        match secret_at(text, at, from, keys) {
            Some(secret) if secret.start >= from => {
                from = secret.end;
                at = secret.end;
                add_without_marks(bytes, secret, &mut secrets);
            }
            _ => at += 1,
        }
    }
    secrets
}

/// Adds a secret. If the secret contains marks, adds only the parts before, between and after them.
fn add_without_marks(bytes: &[u8], secret: Found, secrets: &mut Vec<Found>) {
    for (part_start, part_end) in mark::around(bytes, secret.start, secret.end) {
        let has_no_mark = part_start == secret.start && part_end == secret.end;
        if has_no_mark {
            secrets.push(secret);
            continue;
        }
        let (start, end) = multiline::trimmed(bytes, part_start, part_end);
        let is_punctuation = bytes[start..end].iter().all(u8::is_ascii_punctuation);
        if !is_punctuation {
            secrets.push(Found { start, end, kind: secret.kind });
        }
    }
}

/// Returns the secret whose trigger is at `at`. The text before `from` was already examined.
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
        _ => prefix_or_key(text, at, three, keys),
    }
}

/// Returns the secret whose prefix, scheme or key starts at `at` with these `three` bytes.
fn prefix_or_key(
    text: &str,
    at: usize,
    three: [u8; 3],
    keys: &dyn Fn(usize) -> Keys,
) -> Option<Found> {
    let bytes = text.as_bytes();
    if let Some(secret) = shapes::at(bytes, at) {
        return Some(secret);
    }
    if shapes::begins_discord(three)
        && let Some(secret) = shapes::discord(bytes, at)
    {
        return Some(secret);
    }

    let lower = three.map(|byte| byte.to_ascii_lowercase());
    if lower == *b"bea" || lower == *b"bas" {
        return places::scheme(bytes, at).or_else(|| keys::pair(text, at, keys));
    }
    if KEYS.contains(&lower) {
        return keys::pair(text, at, keys).or_else(|| places::netrc(bytes, at));
    }
    None
}

/// The first three letters of the words of keys, in lower case.
const KEYS: [[u8; 3]; keys::WORDS.len()] = {
    let mut threes = [[0; 3]; keys::WORDS.len()];
    let mut index = 0;
    while index < threes.len() {
        threes[index] = three(keys::WORDS[index].as_bytes());
        index += 1;
    }
    threes
};

/// Percent-encoded characters after which a word is decoded.
const PERCENT: [&[u8; 3]; 9] =
    [b"%3D", b"%3d", b"%3A", b"%3a", b"%20", b"%2F", b"%2f", b"%22", b"%40"];

/// Other signs of a secret.
const OTHERS: [&[u8; 3]; 9] =
    [b"\\u0", b"://", b"-BE", b"-EN", b":AA", b"1//", b"-us", b"eyJ", b"[RE"];

/// The groups of three bytes at which the scanner stops. A few other groups also match.
///
/// The groups are divided into sets, one for each bit. Each byte has three numbers: the sets in
/// which a group has this byte first, second, and third. The check uses only these three numbers
/// and no earlier result, so the processor handles many bytes at a time.
struct Triggers([u64; 256]);

impl Triggers {
    /// Number of sets.
    const SETS: u32 = 21;
    const MASK: u64 = (1 << Self::SETS) - 1;

    const fn put(&mut self, bytes: [u8; 3]) {
        // Bytes with the same first letter share a set, so that few other groups match.
        let set = (bytes[0] | 0x20) as u32 % Self::SETS;
        let mut at = 0;
        while at < 3 {
            self.0[bytes[at] as usize] |= 1 << (set + Self::SETS * at as u32);
            at += 1;
        }
    }

    /// Puts in the first three letters of a word, in upper and lower case.
    const fn put_any_case(&mut self, word: &str) {
        let lower = three(word.as_bytes());
        self.put(lower);
        // The letters are independent of each other, so this includes every combination too.
        self.put([
            lower[0].to_ascii_uppercase(),
            lower[1].to_ascii_uppercase(),
            lower[2].to_ascii_uppercase(),
        ]);
    }

    /// Checks whether one of the groups may start in a part. A group has three bytes, so no group
    /// starts at the last two bytes of the part.
    fn may_begin(&self, part: &[u8]) -> bool {
        let any = part.windows(3).fold(0, |any, three| {
            let first = self.sets(three[0]);
            let second = self.sets(three[1]) >> Self::SETS;
            let third = self.sets(three[2]) >> (2 * Self::SETS);
            any | (first & second & third)
        });
        any & Self::MASK != 0
    }

    /// Returns the sets in which a group has this byte.
    fn sets(&self, byte: u8) -> u64 {
        self.0[byte as usize]
    }
}

static TRIGGERS: Triggers = {
    let mut triggers = Triggers([0; 256]);
    let mut index = 0;
    while index < keys::WORDS.len() {
        triggers.put_any_case(keys::WORDS[index]);
        index += 1;
    }
    triggers.put_any_case("bearer");
    triggers.put_any_case("basic");
    index = 0;
    while let Some(prefix) = shapes::prefix(index) {
        if prefix.len() > 2 {
            triggers.put(three(prefix));
        } else {
            // The prefix of two bytes is followed by a hexadecimal digit.
            let mut digit = 0;
            while digit < 22 {
                triggers.put([prefix[0], prefix[1], b"0123456789abcdefABCDEF"[digit]]);
                digit += 1;
            }
        }
        index += 1;
    }
    index = 0;
    while index < OTHERS.len() {
        triggers.put(*OTHERS[index]);
        index += 1;
    }
    index = 0;
    while index < PERCENT.len() {
        triggers.put(*PERCENT[index]);
        index += 1;
    }
    index = 0;
    while index < blocks::BEGINNINGS.len() {
        triggers.put(three(blocks::BEGINNINGS[index].as_bytes()));
        index += 1;
    }
    let [first, second, third] = shapes::DISCORD;
    index = 0;
    while index < first.len() * second.len() * third.len() {
        let rest = index / first.len();
        triggers.put([
            first[index % first.len()],
            second[rest % second.len()],
            third[rest / second.len()],
        ]);
        index += 1;
    }
    triggers
};

const fn three(word: &[u8]) -> [u8; 3] {
    [word[0], word[1], word[2]]
}

/// Returns the first place from `at` on at which a trigger may start.
pub(super) fn next_trigger(bytes: &[u8], mut at: usize) -> Option<usize> {
    /// Places that are decided on together.
    const TOGETHER: usize = 8;
    while let Some(part) = bytes.get(at..).and_then(<[u8]>::first_chunk::<{ TOGETHER + 2 }>) {
        if TRIGGERS.may_begin(part) {
            break;
        }
        at += TOGETHER;
    }
    let offset = bytes.get(at..)?.windows(3).position(|three| TRIGGERS.may_begin(three))?;
    Some(at + offset)
}
