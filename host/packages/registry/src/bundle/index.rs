//! The index of a bundle: the name, length and digest of each file. The index is signed.

use serde::{Deserialize, Serialize};
use toolhold_component::file::is_sha256;
use toolhold_contract::text::{cut, neutral_line};

use crate::bundle::name::is_bundled_name;
use crate::bundle::tar::{BLOCK, END, padded};
use crate::bundle::{MAX_BUNDLE, MAX_ENTRIES, MAX_ENTRY};

/// The format that this host writes and reads.
const FORMAT: u32 = 1;

/// The list of the files of a bundle.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// The version of the format, which is 1.
    pub(crate) bundle: u32,
    /// The files, by name.
    pub files: Vec<IndexEntry>,
}

/// A file of a bundle.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IndexEntry {
    /// The name of the file. See [`is_bundled_name`].
    pub name: String,
    /// The size of the file in bytes.
    pub length: u64,
    /// The SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
}

impl IndexEntry {
    fn shown_name(&self) -> String {
        neutral_line(cut(&self.name, 80))
    }
}

/// A reason why an index is refused. Names are cut and neutralised.
#[derive(Debug, thiserror::Error)]
pub enum BundleIndexError {
    /// The parser's error.
    #[error("its index isn't valid: {0}")]
    NotJson(#[from] serde_json::Error),
    /// Another format.
    #[error("it has format {0}; this host reads format {FORMAT}")]
    Format(u32),
    /// There are too many files. Contains their number.
    #[error("it has {0} files; the limit is {MAX_ENTRIES}")]
    TooManyFiles(usize),
    /// A name isn't allowed in a bundle.
    #[error("`{0}` isn't a file that a bundle may have")]
    Name(String),
    /// A file is too large.
    #[error("`{name}` is {length} bytes; the limit is {MAX_ENTRY}")]
    FileTooLarge {
        /// The name of the file.
        name: String,
        /// The size of the file in bytes.
        length: u64,
    },
    /// A digest isn't valid. Contains the name of the file.
    #[error("the SHA-256 of `{0}` isn't valid")]
    Digest(String),
    /// Two consecutive names aren't in order.
    #[error("its index isn't sorted, or has a name twice: `{0}` is before `{1}`")]
    Order(String, String),
    /// The bytes of the whole bundle.
    #[error("it is {0} bytes; the limit is {MAX_BUNDLE}")]
    TooLarge(u64),
}

impl Index {
    pub(crate) fn new(files: Vec<IndexEntry>) -> Result<Self, BundleIndexError> {
        Self { bundle: FORMAT, files }.check()
    }

    /// Reads the index. Its signature must be verified before.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BundleIndexError> {
        serde_json::from_slice::<Self>(bytes)?.check()
    }

    fn check(self) -> Result<Self, BundleIndexError> {
        if self.bundle != FORMAT {
            return Err(BundleIndexError::Format(self.bundle));
        }
        if self.files.len() > MAX_ENTRIES {
            return Err(BundleIndexError::TooManyFiles(self.files.len()));
        }
        for file in &self.files {
            if !is_bundled_name(&file.name) {
                return Err(BundleIndexError::Name(file.shown_name()));
            }
            if file.length > MAX_ENTRY {
                return Err(BundleIndexError::FileTooLarge {
                    name: file.shown_name(),
                    length: file.length,
                });
            }
            if !is_sha256(&file.sha256) {
                return Err(BundleIndexError::Digest(file.shown_name()));
            }
        }
        for (file, next) in self.files.iter().zip(self.files.iter().skip(1)) {
            if file.name >= next.name {
                return Err(BundleIndexError::Order(file.name.clone(), next.name.clone()));
            }
        }
        let length = self.length();
        if length > MAX_BUNDLE {
            return Err(BundleIndexError::TooLarge(length));
        }
        Ok(self)
    }

    /// Returns the size of the files in the bundle, including their headers and the end of the
    /// bundle.
    pub(crate) fn length(&self) -> u64 {
        let entries: u64 = self.files.iter().map(|file| BLOCK as u64 + padded(file.length)).sum();
        entries + END
    }
}
