//! Bundles: plugins with their signatures, the lock, the ceiling and filters as one file, for
//! machines without a network. One signature is over all of it.
//!
//! A bundle is an ordinary tar that `tar` lists and unpacks. Its first file, `index.json`, has the
//! name, length and digest of each other one; the second, `index.json.minisig`, signs the index.
//! Everything else about the file follows from the index: the headers, their order, the padding,
//! the length of the whole. So the reader parses no tar: it makes the headers that have to be there
//! and compares. A link, a device, a path that leads out, a second file of a name or a byte at the
//! end is a header or a length that differs, and so is a single changed byte anywhere.

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
