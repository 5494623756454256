//! The name of this machine for exports, and short hashes as names of files.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Bytes of a host's name (`HOST_NAME_MAX`), and its line end.
const MAX_NAME: usize = 65;

/// Returns the name of this machine. `None`: there is no name, or it isn't readable.
pub(crate) fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = toolhold_core::text::neutral_line(name.get(..MAX_NAME).unwrap_or(&name).trim_end());
    (!name.is_empty() && name != "(none)").then_some(name)
}

/// Returns the beginning of a text's SHA-256 in hexadecimal: a name for a file.
pub(crate) fn short_hash(text: &str) -> String {
    Sha256::digest(text).iter().take(16).fold(String::new(), |mut name, byte| {
        // Writing to a string never fails.
        let _ = write!(name, "{byte:02x}");
        name
    })
}
