//! Makes and recognises the names of files and directories that aren't complete yet.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

/// A name that no other entry is likely to have.
pub(crate) fn random_name() -> String {
    format!(".toolhold-{:016x}.tmp", RandomState::new().build_hasher().finish())
}

/// Whether a name has the form of a temporary name. An entry with such a name belongs to another
/// call, which is going to rename or remove it.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b".toolhold-").and_then(|rest| rest.strip_suffix(b".tmp"));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}
