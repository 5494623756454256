//! Finds the secrets in a text in one pass. The scan stops at three bytes that may start a secret
//! or its key ([`Triggers`]). The slower checks run only there.

use super::found::Found;
use super::keys::{self, Keys};
use super::{blocks, encoded, mark, multiline, places, shapes};

/// Returns the secrets in `text`, in order and without overlap. `keys_at` returns the kind of
/// text at an offset. `depth` is how often the text was decoded.
pub(super) fn find(text: &str, keys_at: &dyn Fn(usize) -> Keys, depth: u8) -> Vec<Found> {
    let mut secrets = scan(text, keys_at, depth, next_trigger);
    let encoded_secrets = encoded::base64(text.as_bytes(), &secrets, find, keys_at, depth);
    if !encoded_secrets.is_empty() {
        secrets.extend(encoded_secrets);
        secrets.sort_unstable_by_key(|secret| secret.start);
    }
    secrets
}

/// Finds the secrets that aren't in base64. `next` returns the next offset at which a secret may
/// start. `next` may return an offset without a secret, but must not skip a secret.
pub(super) fn scan(
    text: &str,
    keys_at: &dyn Fn(usize) -> Keys,
    depth: u8,
    next: impl Fn(&[u8], usize) -> Option<usize>,
) -> Vec<Found> {
    let bytes = text.as_bytes();
    let mut secrets: Vec<Found> = Vec::new();
    // The text before `from` was already examined, and isn't decoded again.
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
            && let Some((word_secrets, end)) =
                encoded::percent(text, at, from, find, keys_at, depth)
        {
            secrets.extend(word_secrets);
            from = end;
            at = end;
            continue;
        }

        match secret_at(text, at, from, keys_at) {
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

/// Adds a secret. If the secret contains marks of redacted secrets, adds the parts between these
/// marks.
fn add_without_marks(bytes: &[u8], secret: Found, secrets: &mut Vec<Found>) {
    for (part_start, part_end) in mark::unmarked_ranges(bytes, secret.start, secret.end) {
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

/// Returns the secret that the three bytes at `at` belong to. The text before `examined` was
/// already examined.
fn secret_at(
    text: &str,
    at: usize,
    examined: usize,
    keys_at: &dyn Fn(usize) -> Keys,
) -> Option<Found> {
    let bytes = text.as_bytes();
    let three = [bytes[at], bytes[at + 1], bytes[at + 2]];
    match &three {
        b"://" => places::url(bytes, at),
        b"-BE" => blocks::block_from_begin(bytes, at),
        b"-EN" => blocks::block_from_end(bytes, at, examined),
        b":AA" => shapes::telegram(bytes, at),
        b"1//" => shapes::google_refresh(bytes, at),
        b"\\u0" => keys::secret_of_escaped_key(text, at, keys_at),
        b"-us" => shapes::mailchimp(bytes, at),
        b"eyJ" => shapes::jwt(bytes, at),
        b"b3B" | b"MHc" | b"MIG" | b"MIH" | b"MC4" | b"MII" => blocks::headless(bytes, at),
        _ => prefix_or_key(text, at, three, keys_at),
    }
}

/// Returns the secret at `at` with a known prefix, or the secret whose key is at `at`. `three` are
/// the first three bytes.
fn prefix_or_key(
    text: &str,
    at: usize,
    three: [u8; 3],
    keys_at: &dyn Fn(usize) -> Keys,
) -> Option<Found> {
    let bytes = text.as_bytes();
    if let Some(secret) = shapes::with_known_prefix(bytes, at) {
        return Some(secret);
    }
    if shapes::begins_discord(three)
        && let Some(secret) = shapes::discord(bytes, at)
    {
        return Some(secret);
    }

    let lower = three.map(|byte| byte.to_ascii_lowercase());
    // `Bearer` or `Basic`.
    if lower == *b"bea" || lower == *b"bas" {
        return places::scheme(bytes, at).or_else(|| keys::secret_of_key(text, at, keys_at));
    }
    if KEYS.contains(&lower) {
        return keys::secret_of_key(text, at, keys_at).or_else(|| places::netrc(bytes, at));
    }
    None
}

/// The first three letters of the words in keys.
const KEYS: [[u8; 3]; keys::WORDS.len()] = {
    let mut threes = [[0; 3]; keys::WORDS.len()];
    let mut index = 0;
    while index < threes.len() {
        threes[index] = three(keys::WORDS[index].as_bytes());
        index += 1;
    }
    threes
};

/// Percent-encoded characters that make the scanner decode their word.
const PERCENT: [&[u8; 3]; 9] =
    [b"%3D", b"%3d", b"%3A", b"%3a", b"%20", b"%2F", b"%2f", b"%22", b"%40"];

/// Other bytes in or before a secret.
const OTHERS: [&[u8; 3]; 9] =
    [b"\\u0", b"://", b"-BE", b"-EN", b":AA", b"1//", b"-us", b"eyJ", b"[RE"];

/// The groups of three bytes at which the scanner stops. A few other groups also match.
///
/// The groups are divided into sets, with one bit for each set. For each byte, the table has three
/// fields: the sets in which the byte is the first, the second and the third byte of a group. The
/// check has no branch for each byte, so the compiler can use vector instructions.
struct Triggers([u64; 256]);

impl Triggers {
    const SETS: u32 = 21;
    const MASK: u64 = (1 << Self::SETS) - 1;

    const fn put(&mut self, bytes: [u8; 3]) {
        // All groups with the same first letter are in one set, so that the scanner stops at few
        // other groups.
        let lower_case = bytes[0] | 0x20;
        let set = lower_case as u32 % Self::SETS;
        // The table has a field of `SETS` bits for each position in a group.
        let mut position = 0;
        while position < bytes.len() {
            let field_start = Self::SETS * position as u32;
            self.0[bytes[position] as usize] |= 1 << (field_start + set);
            position += 1;
        }
    }

    /// Adds the first three letters of a word, in any case.
    const fn put_any_case(&mut self, word: &str) {
        let lower = three(word.as_bytes());
        self.put(lower);
        // Words in mixed case then match too, because each letter is checked separately.
        self.put([
            lower[0].to_ascii_uppercase(),
            lower[1].to_ascii_uppercase(),
            lower[2].to_ascii_uppercase(),
        ]);
    }

    /// Checks whether one of the groups may be in a part of the text.
    fn may_begin(&self, part: &[u8]) -> bool {
        let mut matching_sets = 0;
        for three in part.windows(3) {
            // The shifts move the field for the position of the byte to the lowest bits.
            let first = self.fields(three[0]);
            let second = self.fields(three[1]) >> Self::SETS;
            let third = self.fields(three[2]) >> (2 * Self::SETS);
            matching_sets |= first & second & third;
        }
        // The bits above the mask belong to other fields.
        matching_sets & Self::MASK != 0
    }

    fn fields(&self, byte: u8) -> u64 {
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
            // A prefix of two bytes, such as `SK`, is followed by a hexadecimal digit.
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

/// Returns the next offset from `at` at which a secret may start. Skips no secret.
pub(super) fn next_trigger(bytes: &[u8], mut at: usize) -> Option<usize> {
    // Eight offsets are checked at once, which is faster. A group that starts at the last offset
    // ends two bytes later.
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
