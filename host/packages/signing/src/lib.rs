//! Keys and signatures of plugins, in the files of minisign, so that its program verifies what
//! Toolhold signed, and Toolhold what it signed.
//!
//! A signature is a `.minisig` beside the component. Its trusted comment names the plugin, its
//! version and the digest of its manifest ([`Statement`]). A [`TrustedKey`] counts for the plugins
//! and sources of its scope only, until it expires or is revoked. [`verify_plugin`] brings all that
//! together.

mod encoded;
mod files;
mod key_folder;
mod password;
mod public_key;
mod secret_key;
mod signature;
mod statement;
mod trusted_key;
mod verify;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use files::{
    join_signatures, read_component, read_signatures_beside, sign_ceiling, sign_file,
    signature_path,
};
pub use key_folder::{KEY_FOLDER, KeyFiles, KeyFolder, read_secret_key};
pub use password::PasswordSource;
pub use public_key::{KeyId, PublicKey};
pub use secret_key::SecretKey;
pub use signature::{MAX_SIGNATURE, Signature};
pub use statement::Statement;
pub use trusted_key::{PluginPattern, SourcePattern, TrustedKey};
pub use verify::{
    SignatureRefusal, SignedPlugin, Signer, today, verify_bundle, verify_ceiling, verify_plugin,
};

/// What ends the name of a signature's file, after the name of the signed file.
pub const EXTENSION: &str = ".minisig";

/// Why a key or a signature can't be used, or made.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// What was given is wrong, and what to do about it.
    #[error("{0}")]
    Invalid(String),
    /// A file can't be read or written.
    #[error("{path}: {error}")]
    File {
        /// Its path.
        path: String,
        /// The reason.
        error: std::io::Error,
    },
}

impl SigningError {
    fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into())
    }

    fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}
