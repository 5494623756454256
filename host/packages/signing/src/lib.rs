//! Keys and signatures of plugins in minisign's formats. minisign can verify Toolhold's signatures,
//! and Toolhold can verify minisign's signatures.
//!
//! A signature is a `.minisig` file next to the component. Only a ceiling has its signature in its
//! own file. The signature's trusted comment names the plugin, its version and the digest of its
//! manifest ([`Statement`]). A [`TrustedKey`] is
//! trusted only for its plugins and sources, until it expires or is revoked. [`verify_plugin`]
//! applies all these rules.

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

use toolhold_component::file::ComponentFileError;

pub use encoded::EncodingError;
pub use files::{
    join_signatures, read_component, read_signatures_beside, sign_ceiling, sign_file,
    signature_path,
};
pub use key_folder::{KEY_FOLDER, KeyFiles, KeyFolder, read_secret_key};
pub use password::{PasswordError, PasswordSource};
pub use public_key::{KeyId, PublicKey, PublicKeyError};
pub use secret_key::{SecretKey, SecretKeyError};
pub use signature::{MAX_SIGNATURE, Signature, SignatureError};
pub use statement::{Statement, StatementError};
pub use trusted_key::{PatternError, PluginPattern, SourcePattern, TrustedKey};
pub use verify::{
    SignatureRefusal, SignedPlugin, Signer, today, verify_bundle, verify_ceiling, verify_plugin,
};

/// The suffix of the file with the signature of another file.
pub const EXTENSION: &str = ".minisig";

/// A reason why a key or a signature can't be used or made.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The system gave no random bytes.
    #[error("the system has no random bytes")]
    NoRandomBytes,
    /// A secret key can't be made or encrypted.
    #[error(transparent)]
    SecretKey(#[from] SecretKeyError),
    /// The password can't be read.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The trusted comment can't be signed.
    #[error(transparent)]
    Comment(#[from] EncodingError),
    /// The name of a key isn't valid. The text is neutralised.
    #[error("`{0}` isn't a valid name for a key: use [a-z0-9-], the first a letter")]
    KeyName(String),
    /// A component can't be read.
    #[error("{path}: {error}")]
    Component {
        /// The path of the component.
        path: String,
        /// The reason.
        error: ComponentFileError,
    },
    /// No statement can be made about a component.
    #[error("{path}: {error}")]
    Statement {
        /// The path of the component.
        path: String,
        /// The reason.
        error: StatementError,
    },
    /// A file isn't a public key.
    #[error("{path}: {error}")]
    PublicKeyFile {
        /// The path of the file.
        path: String,
        /// The reason.
        error: PublicKeyError,
    },
    /// A file isn't a secret key, or its password is missing or wrong.
    #[error("{path}: {error}")]
    SecretKeyFile {
        /// The path of the file.
        path: String,
        /// The reason.
        error: SecretKeyError,
    },
    /// A file can't be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path of the file.
        path: String,
        /// The reason.
        error: std::io::Error,
    },
}

impl SigningError {
    fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}
