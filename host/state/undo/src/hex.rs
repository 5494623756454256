//! Converts bytes to hexadecimal digits and back.

use std::fmt::Write;

/// Returns two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns the bytes of hexadecimal digits. Returns `None` if the text has other characters.
pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let starts = (0..digits.len()).step_by(2);
    starts.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}
