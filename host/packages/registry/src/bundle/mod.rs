//! Bundles for machines without a network. A bundle is one file with plugins and their signatures,
//! the lock, the ceiling and filters. One signature covers all of them.
//!
//! A bundle is an ordinary tar that `tar` can list and unpack. The first file, `index.json`,
//! contains the name, length and digest of each other file. The second file, `index.json.minisig`,
//! is the signature of the index. The index determines all other bytes of the tar: the headers,
//! their order, the padding and the total length. The reader therefore doesn't parse the tar, but
//! compares it with the expected headers. In this way, the reader detects each link, device, path
//! outside of the bundle, duplicate file, trailing byte and changed byte.

mod create;
mod files;
mod index;
mod name;
mod open;
mod tar;

#[cfg(test)]
mod tests;

use std::path::Path;

use toolhold_signing::{SignatureRefusal, SigningError};

pub use create::{EntryContent, NewEntry, create};
pub use index::{BundleIndexError, Index, IndexEntry};
pub use name::is_bundled_name;
pub use open::{Bundle, open};

/// Most files in a bundle. A bundle with more files is refused.
pub const MAX_ENTRIES: usize = 2_000;

/// Most bytes of one file, which may be a component. A larger file is refused.
pub const MAX_ENTRY: u64 = toolhold_component::file::MAX_COMPONENT as u64;

/// Most bytes of a bundle. A larger bundle is refused.
pub const MAX_BUNDLE: u64 = 4 << 30;

/// Most bytes of the index. A larger index is refused.
const MAX_INDEX: u64 = 1 << 20;

/// A reason why a bundle wasn't made, or is refused.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bundle has a fault. No part of it is used.
    #[error("the bundle is refused: {0}")]
    Refused(String),
    /// The bundle's index isn't valid.
    #[error("the bundle is refused: {0}")]
    Index(#[from] BundleIndexError),
    /// No key that is trusted for bundles signed the bundle.
    #[error("the bundle is refused: {0}")]
    Signature(#[from] SignatureRefusal),
    /// The bundle can't be signed.
    #[error(transparent)]
    Signing(#[from] SigningError),
    /// The path of the new bundle exists already, and isn't overwritten.
    #[error("the file exists already; give another path, or remove the file first")]
    Exists,
    /// A file can't be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path of the file.
        path: String,
        /// The reason.
        error: std::io::Error,
    },
}

impl BundleError {
    fn refused(reason: impl Into<String>) -> Self {
        Self::Refused(reason.into())
    }

    fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}
