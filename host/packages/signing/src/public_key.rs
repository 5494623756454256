//! Public keys in minisign's format. A public key checks a signature by its secret key.

use std::fmt;
use std::str::FromStr;

use ring::signature::{ED25519, UnparsedPublicKey};

use crate::encoded::{self, EncodingError};

/// The algorithm of a key: Ed25519.
pub(crate) const ALGORITHM: [u8; 2] = *b"Ed";

/// The ID of a key in its files and in signatures. The ID isn't a proof of the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(pub(crate) [u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", u64::from_le_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A public key. The text form is the base64 line for minisign's option `-P`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub(crate) id: KeyId,
    pub(crate) key: [u8; 32],
}

impl PublicKey {
    /// Returns the name of the key.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Returns the content of the key's file, for minisign's option `-p`.
    pub fn to_file(&self) -> String {
        format!("{}minisign public key {}\n{self}\n", encoded::UNTRUSTED, self.id)
    }

    /// Checks whether the secret key of this public key made the signature of these bytes.
    pub(crate) fn has_signed(&self, bytes: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.key).verify(bytes, signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&ALGORITHM[..], &self.id.0, &self.key].concat();
        f.write_str(&encoded::encode(&bytes))
    }
}

/// A reason why a text isn't a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// The key isn't in the form of minisign's files.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// The key is for another algorithm.
    #[error("the public key isn't a minisign key: its algorithm differs")]
    Algorithm,
    /// The key has another length.
    #[error("the public key has a wrong length")]
    Length,
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    /// Reads the line of base64, or the whole file.
    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let text = text.trim_end_matches(['\r', '\n']);
        let line = if text.starts_with(encoded::UNTRUSTED) {
            encoded::lines::<2>(text, "the file of the public key")?[1]
        } else {
            text
        };
        let bytes: [u8; 42] = encoded::decode(line, "the public key")?;
        let (algorithm, id_and_key) = bytes.split_at(2);
        if algorithm != ALGORITHM {
            return Err(PublicKeyError::Algorithm);
        }
        let (id, key) = id_and_key.split_at(8);
        let (Ok(id), Ok(key)) = (id.try_into(), key.try_into()) else {
            return Err(PublicKeyError::Length);
        };
        Ok(Self { id: KeyId(id), key })
    }
}
