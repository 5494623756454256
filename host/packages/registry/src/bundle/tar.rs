//! Writes and checks the tar headers of a bundle. Only one form is valid: `ustar`, regular files,
//! no owner, no time.

/// The unit of a tar.
pub(crate) const BLOCK: usize = 512;

/// The bytes at the end, all zero.
pub(crate) const END: u64 = 2 * BLOCK as u64;

/// Returns the number of bytes in whole blocks for content of this length.
pub(crate) fn padded(length: u64) -> u64 {
    length.next_multiple_of(BLOCK as u64)
}

/// Returns the header of a file. `name` has at most 100 bytes. `length` is less than 8 GiB.
pub(crate) fn header(name: &str, length: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    put(&mut header, 0, name);
    put(&mut header, 100, "0000644\0");
    put(&mut header, 108, "0000000\0");
    put(&mut header, 116, "0000000\0");
    put(&mut header, 124, &format!("{length:011o}\0"));
    put(&mut header, 136, "00000000000\0");
    // The checksum is computed with spaces in its own field.
    put(&mut header, 148, "        ");
    put(&mut header, 156, "0");
    put(&mut header, 257, "ustar\0");
    put(&mut header, 263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header, 148, &format!("{sum:06o}\0 "));
    header
}

fn put(header: &mut [u8; BLOCK], offset: usize, text: &str) {
    header[offset..offset + text.len()].copy_from_slice(text.as_bytes());
}

/// Returns the length in a header, or `None` if the length isn't a number. The caller compares the
/// whole header with the [`header`] for this length.
pub(crate) fn stated_length(header: &[u8; BLOCK]) -> Option<u64> {
    let digits = std::str::from_utf8(&header[124..135]).ok()?;
    u64::from_str_radix(digits, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_padded_to_whole_blocks() {
        let cases = [(0, 0), (1, 512), (511, 512), (512, 512), (513, 1024)];
        cases.iter().for_each(|(length, expected)| assert_eq!(padded(*length), *expected));
    }
}
