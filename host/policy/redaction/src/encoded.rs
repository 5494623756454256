//! Finds secrets that are encoded as base64 or by percent-encoding.

use super::blocks;
use super::found::{Found, count_examined};
use super::keys::Keys;
use super::mark;

/// The search function for decoded text. The caller passes it in, because decoded text may be
/// encoded again.
type Find = fn(&str, &dyn Fn(usize) -> Keys, u8) -> Vec<Found>;

/// Shortest run of base64 that is decoded. This is the length of a short password with its key.
const MIN_RUN: usize = 24;

/// Characters of the shortest run without padding.
const MIN_UNPADDED: usize = MIN_RUN - 2;

/// Number of places in a run at which decoding is tried. Base64 may start later in a run, because a
/// path before it has the same characters.
const MAX_STARTS: usize = 4;

/// Bytes that are decoded as one text. A longer run is decoded in parts.
const MAX_DECODED: usize = 64 * 1024;

/// Bytes of a percent-encoded word that are decoded at once.
const MAX_WORD: usize = 8192;

/// Number of nested encodings that are decoded.
const DEPTH: u8 = 2;

/// Returns the runs of base64 in `text` that contain secrets after decoding. Also returns lines of
/// a private key in the file of the key. `taken` are the secrets that were found before, in order.
/// The function skips these secrets.
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
    let mut at = 0;
    while let Some((start, end)) = next_run(text, at) {
        at = end;
        // `=` is the padding of a run, or comes before a run: `DATA=…`.
        let end = end + text[end..].iter().take(2).take_while(|byte| **byte == b'=').count();
        if end - start < MIN_RUN {
            continue;
        }
        while taken.next_if(|found| found.end <= start).is_some() {}
        if taken.peek().is_some_and(|found| found.start < end) {
            continue;
        }
        let is_key_line = end - start >= blocks::MIN_KEY && keys(start) == Keys::PrivateKey;
        if is_key_line {
            found.push(Found { start, end, kind: mark::PRIVATE_KEY });
        } else if let Some(secret) = secret_in_run(text, start, end, find, depth) {
            found.push(secret);
        }
    }
    found
}

/// Returns the part of a run of base64 that contains a secret after decoding. The part goes up to
/// the end of the run.
fn secret_in_run(text: &[u8], start: usize, end: usize, find: Find, depth: u8) -> Option<Found> {
    // A `str` is searched many bytes at a time. The run is ASCII.
    let run = std::str::from_utf8(&text[start..end]).unwrap_or_default();
    let after_slashes = run.match_indices('/').map(|(slash, _)| start + slash + 1);
    let starts = std::iter::once(start)
        .chain(after_slashes)
        .filter(|start| decodes_to_text(&text[*start..end]))
        .take(MAX_STARTS);
    for start in starts {
        if let Some(kind) = kind_in_base64(&text[start..end], find, depth) {
            return Some(Found { start, end, kind });
        }
    }
    None
}

/// Returns the kind of the first secret in a run of base64.
fn kind_in_base64(run: &[u8], find: Find, depth: u8) -> Option<&'static str> {
    for chunk in run.chunks(MAX_DECODED) {
        if chunk.len() < MIN_RUN {
            return None;
        }
        let Some(plain) = decoded(chunk) else { continue };
        if let Some(found) = find(&plain, &|_| Keys::Text, depth + 1).first() {
            return Some(found.kind);
        }
    }
    None
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Returns the first run of at least [`MIN_UNPADDED`] characters of base64 from `at` on.
pub(super) fn next_run(text: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut bits_before = 0;
    while at < text.len() {
        let bits = base64_bits(text, at);
        // After each step, a bit remains only where at least 2, 4, 8, 16 or 22 ones start.
        let mut starts = u128::from(bits) << 64 | u128::from(bits_before);
        for shift in [1, 2, 4, 8, MIN_UNPADDED - 16] {
            starts &= starts >> shift;
        }
        if starts != 0 {
            // The lowest bit is 64 bytes before `at`.
            let start = at + starts.trailing_zeros() as usize - 64;
            let mut end = start + MIN_UNPADDED;
            loop {
                let more = base64_bits(text, end).trailing_ones() as usize;
                end += more;
                if more < 64 {
                    return Some((start, end));
                }
            }
        }
        bits_before = bits;
        at += 64;
    }
    None
}

/// Returns one bit for each of the 64 bytes from `at` on: 1 if the byte is base64. The first byte
/// has the lowest bit. The loop has no branch for each byte, so the processor handles many bytes at
/// a time.
fn base64_bits(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    let mut padded = [0; 64];
    let bytes = rest.first_chunk::<64>().unwrap_or_else(|| {
        padded[..rest.len()].copy_from_slice(rest);
        &padded
    });
    let ones = bytes.map(|byte| u8::from(is_base64(byte)));
    let (eights, _) = ones.as_chunks::<8>();
    eights.iter().rev().fold(0, |all, eight| all << 8 | bits_of(*eight))
}

/// Packs eight ones or zeros into one byte. The highest byte of the product contains them.
fn bits_of(eight: [u8; 8]) -> u64 {
    u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Checks whether the first bytes of a run decode to text. Names and hashes are also base64, but
/// don't decode to text.
fn decodes_to_text(run: &[u8]) -> bool {
    let Some(first) = run.first_chunk::<8>() else { return false };
    let mut plain = [0; 6];
    let mut length = 0;
    decode(first, |byte| {
        plain[length] = byte;
        length += 1;
    });
    length == 6 && plain.iter().all(is_text)
}

/// Decodes a run of base64 in either alphabet. Returns `None` if the result isn't text.
pub(super) fn decoded(run: &[u8]) -> Option<String> {
    if !decodes_to_text(run) {
        return None;
    }
    let mut bytes = Vec::with_capacity(run.len() / 4 * 3 + 3);
    decode(run, |byte| bytes.push(byte));
    // The last character may be incomplete.
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

/// Decodes up to the first character that isn't base64.
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
        bits = bits << 6 | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            put((bits >> bit_count) as u8);
        }
    }
}

/// Returns the secrets in the percent-encoded word around `at`, and the end of the word. The text
/// before `from` is already examined.
pub(super) fn percent(
    text: &str,
    at: usize,
    from: usize,
    find: Find,
    keys: &dyn Fn(usize) -> Keys,
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
            // A mark ends the word, even without white space before it.
            let is_mark = **byte == b'[' && mark::length(&bytes[at + offset..]) > 0;
            is_word_byte(**byte) && !is_mark
        })
        .count();
    let end = text.floor_char_boundary(at + length);

    let mut decoded_bytes = Vec::with_capacity(end - start);
    // The offset in `text` of each decoded byte, and of the end.
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

    // Bytes that aren't text become `?`, so that the offsets of all bytes stay the same.
    let word = String::from_utf8(decoded_bytes).unwrap_or_else(|error| {
        let bytes = error.into_bytes().into_iter();
        bytes.map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect()
    });
    let place = keys(start);
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
