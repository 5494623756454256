//! Makes the tar headers of a bundle. Only one form is valid: `ustar`, regular files, no owner, no
//! time.

/// The size of a tar block. Headers and contents fill whole blocks.
pub(crate) const BLOCK: usize = 512;

/// The number of zero bytes at the end.
pub(crate) const END: u64 = 2 * BLOCK as u64;

pub(crate) fn padded(length: u64) -> u64 {
    length.next_multiple_of(BLOCK as u64)
}

/// The offsets of the fields of a header.
const NAME: usize = 0;
const MODE: usize = 100;
const OWNER: usize = 108;
const GROUP: usize = 116;
const LENGTH: usize = 124;
const LENGTH_DIGITS: usize = 11;
const MODIFIED: usize = 136;
const CHECKSUM: usize = 148;
const TYPE: usize = 156;
const MAGIC: usize = 257;
const VERSION: usize = 263;

/// The type of a file that isn't a folder or a link.
const REGULAR_FILE: &str = "0";

/// Returns the header of a file in the format `ustar`. `name` must have at most 100 bytes, and
/// `length` must be less than 8 GiB.
pub(crate) fn header(name: &str, length: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    put(&mut header, NAME, name);
    put(&mut header, MODE, "0000644\0");
    put(&mut header, OWNER, "0000000\0");
    put(&mut header, GROUP, "0000000\0");
    put(&mut header, LENGTH, &format!("{length:011o}\0"));
    put(&mut header, MODIFIED, "00000000000\0");
    // The checksum is the sum of all bytes, with spaces in its own field.
    put(&mut header, CHECKSUM, "        ");
    put(&mut header, TYPE, REGULAR_FILE);
    put(&mut header, MAGIC, "ustar\0");
    put(&mut header, VERSION, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header, CHECKSUM, &format!("{sum:06o}\0 "));
    header
}

fn put(header: &mut [u8; BLOCK], offset: usize, text: &str) {
    header[offset..offset + text.len()].copy_from_slice(text.as_bytes());
}

/// Returns the length in a header, or `None` if the length isn't a number. Other fields aren't
/// checked.
pub(crate) fn stated_length(header: &[u8; BLOCK]) -> Option<u64> {
    let digits = std::str::from_utf8(&header[LENGTH..LENGTH + LENGTH_DIGITS]).ok()?;
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
