//! Converts bytes to hexadecimal digits and back.

use std::fmt::Write;

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits_per_byte = 2;
    let hexadecimal = 16;
    let mut bytes = Vec::new();
    for start in (0..digits.len()).step_by(digits_per_byte) {
        let pair = digits.get(start..start + digits_per_byte)?;
        bytes.push(u8::from_str_radix(pair, hexadecimal).ok()?);
    }
    Some(bytes)
}
