//! The signed index of a bundle: the name, length and digest of each file.

use serde::{Deserialize, Serialize};
use toolhold_component::file::is_sha256;
use toolhold_contract::text::{cut, neutral_line};

use crate::bundle::name::is_bundled_name;
use crate::bundle::tar::{BLOCK, END, padded};
use crate::bundle::{MAX_BUNDLE, MAX_ENTRIES, MAX_ENTRY};

const FORMAT: u32 = 1;

/// The list of the files of a bundle.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// The version of the format: 1.
    pub(crate) bundle: u32,
    /// The files, sorted by name.
    pub files: Vec<IndexEntry>,
}

/// A file of a bundle.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IndexEntry {
    /// The name of the file, as for [`is_bundled_name`].
    pub name: String,
    /// The size of the file in bytes.
    pub length: u64,
    /// The SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
}

impl IndexEntry {
    fn check(&self) -> Result<(), BundleIndexError> {
        if !is_bundled_name(&self.name) {
            return Err(BundleIndexError::Name(self.shown_name()));
        }
        if self.length > MAX_ENTRY {
            return Err(BundleIndexError::FileTooLarge {
                name: self.shown_name(),
                length: self.length,
            });
        }
        if !is_sha256(&self.sha256) {
            return Err(BundleIndexError::Digest(self.shown_name()));
        }
        Ok(())
    }

    fn shown_name(&self) -> String {
        neutral_line(cut(&self.name, 80))
    }
}

/// The reason why an index is refused. Names are cut and neutralised.
#[derive(Debug, thiserror::Error)]
pub enum BundleIndexError {
    /// The index isn't valid JSON, or has another field.
    #[error("the bundle's index isn't valid: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The index has another format. Contains its version.
    #[error("the bundle has format {0}; this host reads format {FORMAT}")]
    Format(u32),
    /// There are too many files. The number is their count.
    #[error("the bundle has {0} files; the limit is {MAX_ENTRIES}")]
    TooManyFiles(usize),
    /// A name isn't allowed in a bundle.
    #[error("a bundle may not have the file `{0}`")]
    Name(String),
    /// A file is too large.
    #[error("`{name}` is {length} bytes; the limit is {MAX_ENTRY}")]
    FileTooLarge {
        /// The name of the file.
        name: String,
        /// The size of the file in bytes.
        length: u64,
    },
    /// A digest isn't valid. The text is the name of the file.
    #[error("the SHA-256 of `{0}` isn't valid")]
    Digest(String),
    /// Two names aren't in order, or are the same.
    #[error("the bundle's index isn't sorted, or has a name twice: `{0}` is before `{1}`")]
    Order(String, String),
    /// The bundle is too large. Contains its size in bytes.
    #[error("the bundle is {0} bytes; the limit is {MAX_BUNDLE}")]
    TooLarge(u64),
}

impl Index {
    pub(crate) fn new(files: Vec<IndexEntry>) -> Result<Self, BundleIndexError> {
        Self { bundle: FORMAT, files }.check()
    }

    /// Reads an index whose signature was verified.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BundleIndexError> {
        serde_json::from_slice::<Self>(bytes)?.check()
    }

    /// Checks the files, their order, and the length of the bundle.
    fn check(self) -> Result<Self, BundleIndexError> {
        if self.bundle != FORMAT {
            return Err(BundleIndexError::Format(self.bundle));
        }
        if self.files.len() > MAX_ENTRIES {
            return Err(BundleIndexError::TooManyFiles(self.files.len()));
        }
        for file in &self.files {
            file.check()?;
        }
        for pair in self.files.windows(2) {
            let file = &pair[0];
            let next = &pair[1];
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

    /// Returns the number of bytes of the files in the bundle, including their headers and the end
    /// of the bundle.
    pub(crate) fn length(&self) -> u64 {
        let entries: u64 = self.files.iter().map(|file| BLOCK as u64 + padded(file.length)).sum();
        entries + END
    }
}
