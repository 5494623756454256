//! The hash chain of the audit log. The keyed hash of an entry covers its own bytes and the
//! previous hash.

use std::io::Write;

use sha2::{Digest, Sha256};

pub(super) type Hash = [u8; 32];

const HASH_DIGITS: usize = 64;

/// Length of `,"hash":"…"}` at the end of each line.
const SEAL_BYTES: usize = ",\"hash\":\"".len() + HASH_DIGITS + "\"}".len();

/// Number of bytes before the kind of an entry.
pub(super) const BEFORE_KIND: usize = r#"{"ts":"2026-03-01T12:00:00.000001Z","#.len();

/// Prefix of an argument text before hashing. Entries never start with this prefix, so a chosen
/// text can't have the hash of an entry.
const TEXT: &Hash = b"toolhold: text of the arguments:";

/// The number and the hash of an entry. The first entry follows [`Link::START`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) hash: Hash,
}

impl Link {
    pub(super) const START: Self = Self { seq: 0, hash: [0; 32] };
}

/// The key of the chain for HMAC-SHA256 (RFC 2104), with the first block of both hashes already
/// processed.
///
/// The HMAC crate isn't used, because its feature of `digest` recompiles half of the engine.
#[derive(Clone)]
pub(super) struct Key {
    inner: Sha256,
    outer: Sha256,
}

impl Key {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self { inner: padded(secret, 0x36), outer: padded(secret, 0x5c) }
    }

    /// Returns the hash of an entry. `signed` are the entry's bytes before its hash.
    pub(super) fn hash(&self, previous: &Hash, signed: &[u8]) -> Hash {
        let mut hash = self.after(previous);
        hash.update(signed);
        hash.finish()
    }

    /// Returns the keyed hash of a text that the log doesn't contain.
    pub(super) fn of_text(&self) -> HashedRecord {
        self.after(TEXT)
    }

    fn after(&self, previous: &Hash) -> HashedRecord {
        HashedRecord { inner: self.inner.clone().chain_update(previous), outer: self.outer.clone() }
    }
}

fn padded(secret: &[u8], pad: u8) -> Sha256 {
    let mut block = [pad; 64];
    block.iter_mut().zip(secret).for_each(|(byte, secret)| *byte ^= secret);
    Sha256::new_with_prefix(block)
}

pub(super) struct HashedRecord {
    inner: Sha256,
    outer: Sha256,
}

impl HashedRecord {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    pub(super) fn finish(self) -> Hash {
        self.outer.chain_update(self.inner.finalize()).finalize().into()
    }
}

/// Adds the number and the hash to the entry that starts at `from` in `line`. Returns both as the
/// entry's link. `previous` is the link of the previous entry.
pub(super) fn seal(key: &Key, previous: &Link, line: &mut Vec<u8>, from: usize) -> Link {
    let seq = previous.seq + 1;
    let _ = write!(line, ",\"seq\":{seq}");
    let hash = key.hash(&previous.hash, &line[from..]);
    line.extend_from_slice(b",\"hash\":\"");
    line.extend_from_slice(&hex(&hash));
    line.extend_from_slice(b"\"}\n");
    Link { seq, hash }
}

/// A line in the form of an entry, with an unchecked hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealedRecord<'a> {
    pub(super) signed: &'a [u8],
    /// The number and the hash that the entry states.
    pub(super) link: Link,
}

impl<'a> SealedRecord<'a> {
    /// Splits a line into its signed bytes and its link. Returns `None` if the line isn't an entry.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let signed_length = line.len().checked_sub(SEAL_BYTES)?;
        let (signed, seal) = line.split_at(signed_length);
        let hash_digits = seal.strip_prefix(b",\"hash\":\"")?.strip_suffix(b"\"}")?;
        let hash = from_hex(hash_digits)?;
        let (fields, seq) = split_number(signed)?;
        if !fields.starts_with(b"{") || !fields.ends_with(b",\"seq\":") {
            return None;
        }
        Some(Self { signed, link: Link { seq, hash } })
    }

    /// Returns the recorded length and hash of an incomplete entry directly before this entry.
    /// Returns `None` if there was no incomplete entry.
    pub(super) fn incomplete_before(&self) -> Option<(u64, Hash)> {
        // The signed bytes end with `,"torn":LENGTH,"torn_sha256":"HASH","seq":`. Strings can't
        // contain these characters, because JSON escapes quotes.
        let seq_start = self.signed.iter().rposition(|byte| *byte == b',')?;
        let before_seq = self.signed[..seq_start].strip_suffix(b"\"")?;
        let (before_hash, hash_digits) = before_seq.split_last_chunk::<HASH_DIGITS>()?;
        let before_key = before_hash.strip_suffix(b",\"torn_sha256\":\"")?;
        let (fields, length) = split_number(before_key)?;
        if !fields.ends_with(b",\"torn\":") {
            return None;
        }
        Some((length, from_hex(hash_digits)?))
    }

    /// Checks the hash of this entry. `previous` is the hash of the entry before it.
    pub(super) fn follows(&self, key: &Key, previous: &Hash) -> bool {
        key.hash(previous, self.signed) == self.link.hash
    }
}

fn split_number(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = bytes.split_at(bytes.len() - digits);
    Some((before, std::str::from_utf8(number).ok()?.parse().ok()?))
}

/// Returns the kind of an entry, such as `outcome`. Returns an empty result for other bytes.
pub(super) fn kind(record: &[u8]) -> &[u8] {
    let after_time = record.get(BEFORE_KIND..).unwrap_or_default();
    let kind = after_time.strip_prefix(b"\"kind\":\"").unwrap_or_default();
    kind.split(|byte| *byte == b'"').next().unwrap_or_default()
}

pub(super) fn hex(hash: &Hash) -> [u8; HASH_DIGITS] {
    let mut text = [0; HASH_DIGITS];
    for (pair, byte) in text.chunks_exact_mut(2).zip(hash) {
        pair[0] = digit(byte >> 4);
        pair[1] = digit(byte & 0x0f);
    }
    text
}

fn digit(value: u8) -> u8 {
    // Computed without a table, so that the compiler can use vector instructions.
    value + if value < 10 { b'0' } else { b'a' - 10 }
}

pub(super) fn to_hex(hash: &Hash) -> String {
    hex(hash).iter().map(|&digit| char::from(digit)).collect()
}

pub(super) fn from_hex(text: &[u8]) -> Option<Hash> {
    let mut hash = Hash::default();
    if text.len() != HASH_DIGITS {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        let high_bits = digit_value(pair[0])?;
        let low_bits = digit_value(pair[1])?;
        *byte = (high_bits << 4) | low_bits;
    }
    Some(hash)
}

fn digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test cases 1, 2 and 3. A hash of the chain begins with 32 bytes of its own, so the
    /// data of the cases is split after them.
    #[test]
    fn keyed_hash_is_hmac_sha256() {
        let check = |key: &[u8], data: &[u8], expected: &str| {
            let key = Key::new(key);
            let inner = key.inner.clone().chain_update(data).finalize();
            let hash: Hash = key.outer.clone().chain_update(inner).finalize().into();
            assert_eq!(to_hex(&hash), expected);
            if let Some((previous, rest)) = data.split_first_chunk::<32>() {
                assert_eq!(key.hash(previous, rest), hash);
            }
        };
        check(
            &[0x0b; 20],
            b"Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        );
        check(
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
        check(
            &[0xaa; 20],
            &[0xdd; 50],
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
        );
    }

    #[test]
    fn record_follows_only_the_record_before_it() {
        let key = Key::new(&[7; 32]);
        let mut line = b"{\"a\":1".to_vec();
        let first = seal(&key, &Link::START, &mut line, 0);
        let line = line.strip_suffix(b"\n").expect("it is a line");
        let sealed = SealedRecord::parse(line).expect("it is a record");
        assert_eq!((sealed.link, first.seq), (first, 1));
        assert!(serde_json::from_slice::<serde_json::Value>(line).is_ok());
        assert!(sealed.follows(&key, &Link::START.hash));
        assert!(!sealed.follows(&key, &first.hash));
        assert!(!sealed.follows(&Key::new(&[8; 32]), &Link::START.hash));
    }

    #[test]
    fn record_states_its_kind_and_the_incomplete_bytes_before_it() {
        let start = b"{\"ts\":\"2026-03-01T12:00:00.000001Z\",\"kind\":\"end\"";
        assert_eq!(kind(start), b"end");
        assert_eq!(kind(b"{}"), b"");
        let seq = ",\"seq\":12";
        let torn = |fields: &str| {
            let signed = format!("{fields}{seq}");
            SealedRecord { signed: signed.as_bytes(), link: Link::START }.incomplete_before()
        };
        let hash = "ab".repeat(32);
        assert_eq!(
            torn(&format!("{{\"a\":1,\"torn\":57,\"torn_sha256\":\"{hash}\"")),
            Some((57, [0xab; 32]))
        );
        assert_eq!(torn("{\"a\":1"), None);
        assert_eq!(
            torn(&format!("{{\"a\":\"x,\\\"torn\\\":57,\\\"torn_sha256\\\":\\\"{hash}\"")),
            None
        );
    }

    #[test]
    fn line_without_a_hash_is_not_a_record() {
        let hash = "0".repeat(64);
        for line in [
            "",
            "{}",
            "{\"seq\":1}",
            &format!("{{\"a\":1,\"seq\":,\"hash\":\"{hash}\"}}"),
            &format!(",\"hash\":\"{hash}\"}}"),
        ] {
            assert!(SealedRecord::parse(line.as_bytes()).is_none(), "{line}");
        }
        assert!(
            SealedRecord::parse(
                format!("{{\"a\":1,\"seq\":1,\"hash\":\"{}\"}}", "A".repeat(64)).as_bytes()
            )
            .is_none()
        );
    }
}
