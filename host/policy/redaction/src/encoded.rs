//! Finds secrets in base64 and in percent-encoded words.

use super::blocks;
use super::found::{Found, count_examined};
use super::keys::Keys;
use super::mark;

/// Searches decoded text. The text may contain more encoded text.
type Find = fn(&str, &dyn Fn(usize) -> Keys, u8) -> Vec<Found>;

/// Characters of the shortest run that is decoded, such as the run of a short password with its
/// key.
const MIN_RUN: usize = 24;

/// Padding characters at the end of a run.
const MAX_PADDING: usize = 2;

/// Characters of the shortest run without its padding.
const MIN_UNPADDED: usize = MIN_RUN - MAX_PADDING;

/// Most offsets in a run at which decoding is tried. A path has base64 characters too, so base64
/// after a path may start in the middle of a run.
const MAX_STARTS: usize = 4;

/// Bytes that are decoded at once. A longer run is decoded in parts.
const MAX_DECODED: usize = 64 * 1024;

/// Bytes of a percent-encoded word that are decoded. The rest of a longer word isn't decoded.
const MAX_WORD: usize = 8192;

/// How often a text is decoded at most.
const DEPTH: u8 = 2;

/// Bytes that [`base64_bits`] examines at once, with one bit for each byte.
const BITS: usize = u64::BITS as usize;

/// Returns the runs of base64 that contain secrets, and the lines of a private key in a key file.
/// Skips the runs that overlap with `taken`, the ordered list of secrets that were found before.
/// `keys_at` returns the kind of text at an offset. `depth` is how often the text was already
/// decoded.
pub(super) fn base64(
    text: &[u8],
    taken: &[Found],
    find: Find,
    keys_at: &dyn Fn(usize) -> Keys,
    depth: u8,
) -> Vec<Found> {
    let mut found = Vec::new();
    if depth >= DEPTH {
        return found;
    }
    let mut remaining = taken.iter().peekable();
    let mut at = 0;
    while let Some((start, unpadded_end)) = next_run(text, at) {
        at = unpadded_end;
        let end = unpadded_end + padding_length(&text[unpadded_end..]);
        if end - start < MIN_RUN {
            continue;
        }
        while remaining.next_if(|found| found.end <= start).is_some() {}
        let overlaps = remaining.peek().is_some_and(|found| found.start < end);
        if overlaps {
            continue;
        }
        let is_key_line = end - start >= blocks::MIN_KEY && keys_at(start) == Keys::PrivateKey;
        if is_key_line {
            found.push(Found { start, end, kind: mark::PRIVATE_KEY });
        } else if let Some(secret) = secret_in_run(text, start, end, find, depth) {
            found.push(secret);
        }
    }
    found
}

fn padding_length(text: &[u8]) -> usize {
    text.iter().take(MAX_PADDING).take_while(|byte| **byte == b'=').count()
}

/// Returns the part of a run of base64 that contains a secret. The part goes to the end of the run.
/// Decoding is tried at the start of the run, and after each slash, because the run may start with
/// a path.
fn secret_in_run(text: &[u8], start: usize, end: usize, find: Find, depth: u8) -> Option<Found> {
    // Searching a `str` is faster than searching bytes. The run is ASCII, so the conversion can't
    // fail.
    let run = std::str::from_utf8(&text[start..end]).unwrap_or_default();
    let after_slashes = run.match_indices('/').map(|(slash, _)| start + slash + 1);
    let mut tried = 0;
    for part_start in std::iter::once(start).chain(after_slashes) {
        let part = &text[part_start..end];
        if tried == MAX_STARTS {
            return None;
        }
        if !decodes_to_text(part) {
            continue;
        }
        tried += 1;
        if let Some(kind) = kind_in_base64(part, find, depth) {
            return Some(Found { start: part_start, end, kind });
        }
    }
    None
}

fn kind_in_base64(run: &[u8], find: Find, depth: u8) -> Option<&'static str> {
    for chunk in run.chunks(MAX_DECODED) {
        if chunk.len() < MIN_RUN {
            return None;
        }
        let Some(plain) = decoded(chunk) else { continue };
        let secrets = find(&plain, &|_| Keys::Text, depth + 1);
        if let Some(first) = secrets.first() {
            return Some(first.kind);
        }
    }
    None
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Returns the start and end of the next run of at least [`MIN_UNPADDED`] base64 characters.
pub(super) fn next_run(text: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut bits_before = 0;
    while at < text.len() {
        let bits = base64_bits(text, at);
        // The lower half has the bits of the bytes before `at`, because a run may start there.
        let mut starts = u128::from(bits) << BITS | u128::from(bits_before);
        // After each step, a bit is 1 only if at least 2, 4, 8, 16 or `MIN_UNPADDED` ones start
        // there.
        for shift in [1, 2, 4, 8, MIN_UNPADDED - 16] {
            starts &= starts >> shift;
        }
        if starts != 0 {
            let start = at + starts.trailing_zeros() as usize - BITS;
            return Some((start, run_end(text, start + MIN_UNPADDED)));
        }
        bits_before = bits;
        at += BITS;
    }
    None
}

fn run_end(text: &[u8], mut at: usize) -> usize {
    loop {
        let length = base64_bits(text, at).trailing_ones() as usize;
        at += length;
        let goes_on = length == BITS;
        if !goes_on {
            return at;
        }
    }
}

/// Returns one bit for each of the 64 bytes from `at`: 1 if the byte is base64. The first byte has
/// the lowest bit. The loop has no branch, so the compiler can use vector instructions.
fn base64_bits(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    let mut padded = [0; BITS];
    // Zeros after the end of the text aren't base64.
    let bytes = if let Some(bytes) = rest.first_chunk::<BITS>() {
        bytes
    } else {
        padded[..rest.len()].copy_from_slice(rest);
        &padded
    };
    let ones = bytes.map(|byte| u8::from(is_base64(byte)));
    let (groups_of_eight, _) = ones.as_chunks::<8>();
    let mut bits: u64 = 0;
    for group in groups_of_eight.iter().rev() {
        bits = bits << 8 | bits_of(*group);
    }
    bits
}

/// Packs eight bytes of 0 or 1 into one byte. The highest byte of the product is this byte.
fn bits_of(eight: [u8; 8]) -> u64 {
    u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Checks whether the first bytes of a run decode to text. Names and hashes also have base64
/// characters, but don't decode to text.
fn decodes_to_text(run: &[u8]) -> bool {
    // Eight characters are six bytes.
    let Some(first) = run.first_chunk::<8>() else { return false };
    let mut plain = [0; 6];
    let mut length = 0;
    decode(first, |byte| {
        plain[length] = byte;
        length += 1;
    });
    length == plain.len() && plain.iter().all(is_text)
}

/// Decodes base64 in either alphabet. Returns `None` if the result isn't text.
pub(super) fn decoded(run: &[u8]) -> Option<String> {
    if !decodes_to_text(run) {
        return None;
    }
    // Four characters are three bytes.
    let mut bytes = Vec::with_capacity(run.len().div_ceil(4) * 3);
    decode(run, |byte| bytes.push(byte));
    let valid_length = match std::str::from_utf8(&bytes) {
        Ok(text) => text.len(),
        // The end of the run may be in the middle of a character.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => return None,
    };
    bytes.truncate(valid_length);
    String::from_utf8(bytes).ok()
}

fn is_text(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')
}

/// Decodes base64 up to the first character that isn't base64. Passes each decoded byte to `put`.
fn decode(run: &[u8], mut put: impl FnMut(u8)) {
    let mut bits = 0u32;
    let mut bit_count = 0;
    for byte in run {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return,
        };
        // Each character has six bits. The upper bits of `bits` are already passed on.
        bits = bits << 6 | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            put((bits >> bit_count) as u8);
        }
    }
}

/// Returns the secrets in the percent-encoded word around `at`, and the end of the word. The text
/// before `from` was already examined.
pub(super) fn percent(
    text: &str,
    at: usize,
    from: usize,
    find: Find,
    keys_at: &dyn Fn(usize) -> Keys,
    depth: u8,
) -> Option<(Vec<Found>, usize)> {
    let bytes = text.as_bytes();
    if depth >= DEPTH || hex(bytes, at + 2).is_none() {
        return None;
    }
    let bytes_before = bytes[from..at].iter().rev().take(256);
    let before_length = bytes_before.take_while(|byte| is_word_byte(**byte)).count();
    let start = text.ceil_char_boundary(at - before_length);
    let length = bytes[at..]
        .iter()
        .enumerate()
        .take(MAX_WORD)
        .take_while(|(offset, byte)| {
            // A mark ends the word, even if no white space comes before the mark.
            let is_mark = **byte == b'[' && mark::length(&bytes[at + offset..]) > 0;
            is_word_byte(**byte) && !is_mark
        })
        .count();
    let end = text.floor_char_boundary(at + length);

    let mut decoded_bytes = Vec::with_capacity(end - start);
    // The offset in `text` of each decoded byte and of the end.
    let mut offsets = Vec::with_capacity(end - start + 1);
    let mut next = start;
    while next < end {
        offsets.push(next);
        match (bytes[next], hex(bytes, next + 1), hex(bytes, next + 2)) {
            (b'%', Some(high), Some(low)) if next + 2 < end => {
                decoded_bytes.push((high * 16 + low) as u8);
                next += 3;
            }
            (byte, ..) => {
                decoded_bytes.push(byte);
                next += 1;
            }
        }
    }
    offsets.push(end);
    count_examined(end - start);

    // Bytes that aren't text become `?`, so all offsets stay the same.
    let word = String::from_utf8(decoded_bytes).unwrap_or_else(|error| {
        let bytes = error.into_bytes().into_iter();
        bytes.map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect()
    });
    let place = keys_at(start);
    let mut secrets = find(&word, &|_| place, depth + 1);
    for secret in &mut secrets {
        secret.start = offsets[secret.start];
        secret.end = offsets[secret.end];
    }
    Some((secrets, end))
}

fn hex(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16))
}

fn is_word_byte(byte: u8) -> bool {
    !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>')
}
