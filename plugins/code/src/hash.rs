//! Hashes paths and contents to short names.

/// A hash of 64 bits (FNV-1a over words of eight bytes). It tells contents apart that differ by
/// accident. A user who builds two contents with one hash only misleads searches in his own files.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        state = (state ^ word).wrapping_mul(PRIME);
        state ^= state >> 29;
    }
    for byte in words.remainder() {
        state = (state ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    (state ^ state >> 32).wrapping_mul(PRIME)
}

/// The hash as text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("{:016x}", hash(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ() {
        let texts = ["", "a", "b", "ab", "ba", "abcdefgh", "abcdefgi", "abcdefgh\0", "\0", "\0\0"];
        for (index, one) in texts.iter().enumerate() {
            for other in &texts[..index] {
                assert_ne!(hash(one.as_bytes()), hash(other.as_bytes()), "{one:?} {other:?}");
            }
        }
    }
}
