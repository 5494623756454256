//! Keys and signatures of plugins, in the files of minisign, so that its program verifies what
//! Berth signed, and Berth what it signed.
//!
//! A signature is a `.minisig` beside the component. Its trusted comment names the plugin, its
//! version and the digest of its manifest ([`Statement`]). A [`TrustedKey`] counts for the plugins
//! and sources of its scope only, until it expires or is revoked. [`verify_plugin`] brings all that
//! together.

mod encoded;
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

use std::io::Read;
use std::path::Path;

pub use key_folder::{KeyFiles, KeyFolder, read_secret_key};
pub use password::PasswordSource;
pub use public_key::{KeyId, PublicKey};
pub use secret_key::SecretKey;
pub use signature::{MAX_SIGNATURE, Signature};
pub use statement::Statement;
pub use trusted_key::{PluginPattern, SourcePattern, TrustedKey};
pub use verify::{Plugin, Refusal, Signer, verify_bundle, verify_plugin};

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

/// Signs the component in a file. The signature is written beside it, in place of an older one.
/// Returns its path. Blocks.
///
/// `name`: the plugin's name, for a component whose manifest doesn't say it.
///
/// # Errors
///
/// The component can't be read, has no name, or another one; the signature can't be written.
pub fn sign_file(
    component: &Path,
    name: Option<&str>,
    key: &SecretKey,
) -> Result<(std::path::PathBuf, Statement), SigningError> {
    let fail = |reason| SigningError::Invalid(format!("{}: {reason}", component.display()));
    let wasm =
        berth_component::file::open(component).and_then(berth_component::file::read).map_err(fail)?;
    let statement = Statement::of_plugin(&wasm, name).map_err(fail)?;
    let signature = Signature::sign(&wasm, &statement.to_string(), key)?;
    let path = signature_path(component);
    let written = write_beside(&path, signature.to_string().as_bytes());
    written.map_err(|error| SigningError::file(&path, error))?;
    Ok((path, statement))
}

/// The path of the signature of a file.
pub fn signature_path(file: &Path) -> std::path::PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(EXTENSION);
    path.into()
}

/// Reads the signature that lies beside a file. `None`: there is none. Blocks.
///
/// # Errors
///
/// It can't be read, is no regular file, or is too large.
pub fn read_signature_beside(file: &Path) -> Result<Option<Vec<u8>>, SigningError> {
    let path = signature_path(file);
    let opened = match berth_component::file::open(&path) {
        Err(_) if !path.exists() => return Ok(None),
        opened => opened.map_err(|reason| SigningError::Invalid(format!("{}: {reason}", path.display())))?,
    };
    read_bounded(opened, MAX_SIGNATURE)
        .map(Some)
        .map_err(|error| SigningError::file(&path, error))
}

/// Reads a regular file of at most `limit` bytes.
fn read_bounded(file: std::fs::File, limit: usize) -> std::io::Result<Vec<u8>> {
    let fail = |reason: String| std::io::Error::new(std::io::ErrorKind::InvalidData, reason);
    if !file.metadata()?.is_file() {
        return Err(fail("it isn't a file".into()));
    }
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(fail(format!("it is larger than {limit} bytes, which is the limit")));
    }
    Ok(bytes)
}

/// Writes a file that others may read: to a new name, then renamed, so that nobody sees half of it.
fn write_beside(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&aside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&aside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
    written
}
