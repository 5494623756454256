//! Public keys in minisign's format.

use std::fmt;
use std::str::FromStr;

use ring::signature::{ED25519, UnparsedPublicKey};

use crate::encoded::{self, EncodingError};

/// Ed25519.
pub(crate) const ALGORITHM: [u8; 2] = *b"Ed";

/// The number of bytes of a key's ID and of a public key.
pub(crate) const ID_BYTES: usize = 8;
pub(crate) const KEY_BYTES: usize = 32;

/// The number of bytes in the base64 line of a public key.
const ENCODED_BYTES: usize = ALGORITHM.len() + ID_BYTES + KEY_BYTES;

/// The ID of a key in its files and in signatures. Anybody can make a key with the same ID.
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

/// A public key. Its text form is the base64 line for minisign's option `-P`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub(crate) id: KeyId,
    pub(crate) key: [u8; 32],
}

impl PublicKey {
    /// Returns the ID of the key.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Returns the content of the key's file for minisign's option `-p`.
    pub fn to_file(&self) -> String {
        format!("{}minisign public key {}\n{self}\n", encoded::UNTRUSTED, self.id)
    }

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

/// The reason why a text isn't a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// The key isn't in the format of minisign's files.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// The key is for another algorithm.
    #[error("the public key isn't a minisign key: the algorithm is unknown")]
    Algorithm,
    /// The key has a wrong length.
    #[error("the public key has a wrong length")]
    Length,
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    /// Parses the base64 line, or the whole file.
    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let trimmed = text.trim_end_matches(['\r', '\n']);
        let line = if trimmed.starts_with(encoded::UNTRUSTED) {
            let [_comment, line] = encoded::lines(trimmed, "the file of the public key")?;
            line
        } else {
            trimmed
        };
        let bytes: [u8; ENCODED_BYTES] = encoded::decode(line, "the public key")?;
        let (algorithm, id_and_key) = bytes.split_at(ALGORITHM.len());
        if algorithm != ALGORITHM {
            return Err(PublicKeyError::Algorithm);
        }
        let (id, key) = id_and_key.split_at(ID_BYTES);
        let (Ok(id), Ok(key)) = (id.try_into(), key.try_into()) else {
            return Err(PublicKeyError::Length);
        };
        Ok(Self { id: KeyId(id), key })
    }
}
