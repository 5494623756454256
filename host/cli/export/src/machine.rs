//! The name of this machine for exports, and short hashes as names of files.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The bytes of a host name (`HOST_NAME_MAX`) and its line end.
const MAX_NAME: usize = 65;

/// Returns the name of this machine. Returns `None` if there is no name, or it isn't readable.
pub(crate) fn host_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let line = text.get(..MAX_NAME).unwrap_or(&text).trim_end();
    let name = toolhold_core::text::neutral_line(line);
    let is_set = !name.is_empty() && name != "(none)";
    is_set.then_some(name)
}

/// Returns the first digits of a text's SHA-256 in hexadecimal. They are used as a file name.
pub(crate) fn short_hash(text: &str) -> String {
    let mut name = String::new();
    for byte in Sha256::digest(text).iter().take(16) {
        // Writing to a string never fails.
        let _ = write!(name, "{byte:02x}");
    }
    name
}
