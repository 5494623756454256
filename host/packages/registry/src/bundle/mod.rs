//! Bundles for machines without a network. A bundle contains plugins with their signatures, the
//! lock, the ceiling and filters in one file. One signature covers all of them.
//!
//! A bundle is an ordinary tar that `tar` can list and unpack. The first file, `index.json`,
//! contains the name, length and digest of each other file. The second file, `index.json.minisig`,
//! is the signature of the index. The index determines all other parts of the tar: the headers,
//! their order, the padding and the total length. For this reason the reader doesn't parse the tar.
//! It makes the expected headers and compares them. A header or a length then differs for each
//! link, device, path outside of the bundle, duplicate file, or trailing byte. Each changed byte is
//! detected too.

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

/// The most files in a bundle.
pub const MAX_ENTRIES: usize = 2_000;

/// Most bytes of one file, which is that of a component.
pub const MAX_ENTRY: u64 = toolhold_component::file::MAX_COMPONENT as u64;

/// Most bytes of a bundle.
pub const MAX_BUNDLE: u64 = 4 << 30;

/// Most bytes of the index.
const MAX_INDEX: u64 = 1 << 20;

/// Why a bundle wasn't made, or is refused.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Nothing of it is used: something in it isn't as it has to be.
    #[error("the bundle is refused: {0}")]
    Refused(String),
    /// Its index isn't valid.
    #[error("the bundle is refused: {0}")]
    Index(#[from] BundleIndexError),
    /// No key that is trusted with bundles signed it.
    #[error("the bundle is refused: {0}")]
    Signature(#[from] SignatureRefusal),
    /// The bundle can't be signed.
    #[error(transparent)]
    Signing(#[from] SigningError),
    /// The new bundle has the path of a file, which isn't overwritten.
    #[error("the file exists already; give another path, or remove the file first")]
    Exists,
    /// A file can't be read or written.
    #[error("{path}: {error}")]
    File {
        /// Its path.
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
