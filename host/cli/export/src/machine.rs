//! The name of this machine, and short hashes.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The length of the longest host name in Linux (`HOST_NAME_MAX`), with its line end.
const MAX_NAME: usize = 65;

/// The bytes of a short hash.
const SHORT_HASH: usize = 16;

pub(crate) fn host_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let line = text.get(..MAX_NAME).unwrap_or(&text).trim_end();
    let name = toolhold_core::text::neutral_line(line);
    let is_set = !name.is_empty() && name != "(none)";
    is_set.then_some(name)
}

/// Returns the start of the text's SHA-256 in hexadecimal digits, for a file name.
pub(crate) fn short_hash(text: &str) -> String {
    let mut digits = String::new();
    for byte in Sha256::digest(text).iter().take(SHORT_HASH) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
