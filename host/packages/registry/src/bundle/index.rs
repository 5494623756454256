//! The index of a bundle, which its signature is over: the name, length and digest of each file.

use serde::{Deserialize, Serialize};
use toolhold_contract::text::{cut, neutral_line};

use crate::bundle::name::is_bundled_name;
use crate::bundle::tar::{BLOCK, END, padded};
use crate::bundle::{BundleError, MAX_BUNDLE, MAX_ENTRIES, MAX_ENTRY};

/// The format that this host writes and reads.
const FORMAT: u32 = 1;

/// What a bundle holds.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// The format: 1.
    pub(crate) bundle: u32,
    /// The files, by name.
    pub files: Vec<IndexEntry>,
}

/// One file of a bundle.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IndexEntry {
    /// Its name; see [`is_bundled_name`].
    pub name: String,
    /// Its bytes.
    pub length: u64,
    /// Their SHA-256, in hexadecimal.
    pub sha256: String,
}

impl Index {
    pub(crate) fn new(files: Vec<IndexEntry>) -> Result<Self, BundleError> {
        Self { bundle: FORMAT, files }.check().map_err(BundleError::Refused)
    }

    /// Reads the index, whose signature was verified.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let index: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("its index isn't valid: {error}"))?;
        index.check()
    }

    fn check(self) -> Result<Self, String> {
        if self.bundle != FORMAT {
            return Err(format!("it has format {}; this host reads format {FORMAT}", self.bundle));
        }
        if self.files.len() > MAX_ENTRIES {
            return Err(format!("it has {} files; the limit is {MAX_ENTRIES}", self.files.len()));
        }
        for file in &self.files {
            let shown = || neutral_line(cut(&file.name, 80));
            if !is_bundled_name(&file.name) {
                return Err(format!("`{}` isn't a file that a bundle may have", shown()));
            }
            if file.length > MAX_ENTRY {
                return Err(format!(
                    "`{}` is {} bytes; the limit is {MAX_ENTRY}",
                    shown(),
                    file.length
                ));
            }
            let is_digest = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
            if file.sha256.len() != 64 || !file.sha256.bytes().all(is_digest) {
                return Err(format!("the SHA-256 of `{}` isn't valid", shown()));
            }
        }
        if let Some(pair) = self.files.windows(2).find(|pair| pair[0].name >= pair[1].name) {
            return Err(format!(
                "its index isn't in order, or has a name twice: `{}` stands before `{}`",
                pair[0].name, pair[1].name
            ));
        }
        let length = self.length();
        if length > MAX_BUNDLE {
            return Err(format!("it is {length} bytes; the limit is {MAX_BUNDLE}"));
        }
        Ok(self)
    }

    /// The bytes that the files take in the bundle, with their headers and the end.
    pub(crate) fn length(&self) -> u64 {
        let each = self.files.iter().map(|file| BLOCK as u64 + padded(file.length));
        each.sum::<u64>() + END
    }
}
