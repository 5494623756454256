//! Makes, reads and checks signatures: the content of a `.minisig`.

use std::fmt;

use blake2::{Blake2b512, Digest};

use crate::SigningError;
use crate::encoded::{self, EncodingError, UNTRUSTED, check_comment};
use crate::public_key::{KeyId, PublicKey};
use crate::secret_key::SecretKey;

/// Largest file of a signature, in bytes.
pub const MAX_SIGNATURE: usize = 8 << 10;

/// The algorithm of a signature of the bytes' BLAKE2b.
const PREHASHED: [u8; 2] = *b"ED";

/// The algorithm of a signature over the bytes themselves. minisign used it before version 0.8.
const LEGACY: [u8; 2] = *b"Ed";

const TRUSTED: &str = "trusted comment: ";

/// A signature that was read or made. It isn't verified yet.
#[derive(Clone, Debug)]
pub struct Signature {
    id: KeyId,
    signature: [u8; 64],
    comment: String,
    /// The second signature, of the first signature and the trusted comment.
    comment_signature: [u8; 64],
}

/// A reason why a file isn't a signature. The message has nothing that steers a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The signature is too large. Contains its size in bytes.
    #[error("the signature is {0} bytes; the limit is {MAX_SIGNATURE}")]
    TooLarge(usize),
    /// The signature isn't UTF-8.
    #[error("the signature isn't text")]
    NotText,
    /// The signature isn't in the form of minisign's files.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// The signature has another first line.
    #[error("the signature must begin with `{}`", UNTRUSTED.trim_end())]
    FirstLine,
    /// The signature has no trusted comment.
    #[error("line 3 of the signature must begin with `{TRUSTED}`")]
    ThirdLine,
    /// The bytes themselves are signed.
    #[error(
        "the signature has minisign's old format without prehashing; sign again with minisign 0.10 \
         or later"
    )]
    NotPrehashed,
    /// The signature is of another algorithm.
    #[error("the signature isn't a minisign signature: its algorithm differs")]
    Algorithm,
    /// The signature has another length.
    #[error("the signature has a wrong length")]
    Length,
}

impl Signature {
    /// Signs bytes and a comment.
    ///
    /// # Errors
    ///
    /// Returns an error if the comment is too long, or has characters that aren't visible.
    pub fn sign(bytes: &[u8], comment: &str, key: &SecretKey) -> Result<Self, SigningError> {
        check_comment(comment)?;
        let signature = key.sign(&prehash(bytes));
        let comment_signature = key.sign(&[&signature[..], comment.as_bytes()].concat());
        Ok(Self { id: key.public().id(), signature, comment: comment.into(), comment_signature })
    }

    /// Reads the content of a `.minisig`.
    ///
    /// # Errors
    ///
    /// The bytes aren't a signature, or are in minisign's old form.
    pub fn read(file: &[u8]) -> Result<Self, SignatureError> {
        if file.len() > MAX_SIGNATURE {
            return Err(SignatureError::TooLarge(file.len()));
        }
        let text = std::str::from_utf8(file).map_err(|_| SignatureError::NotText)?;
        let [line_1, line_2, line_3, line_4] = encoded::lines(text, "the signature")?;
        if !line_1.starts_with(UNTRUSTED.trim_end()) {
            return Err(SignatureError::FirstLine);
        }
        let comment = line_3.strip_prefix(TRUSTED).ok_or(SignatureError::ThirdLine)?;
        check_comment(comment)?;
        let bytes: [u8; 74] = encoded::decode(line_2, "line 2 of the signature")?;
        let comment_signature = encoded::decode(line_4, "line 4 of the signature")?;

        let (algorithm, id_and_signature) = bytes.split_at(2);
        if algorithm == LEGACY {
            return Err(SignatureError::NotPrehashed);
        }
        if algorithm != PREHASHED {
            return Err(SignatureError::Algorithm);
        }
        let (id, signature) = id_and_signature.split_at(8);
        let (Ok(id), Ok(signature)) = (id.try_into(), signature.try_into()) else {
            return Err(SignatureError::Length);
        };
        Ok(Self { id: KeyId(id), signature, comment: comment.into(), comment_signature })
    }

    /// Returns the name of the key that the signature claims to be of.
    pub fn key_id(&self) -> KeyId {
        self.id
    }

    /// Returns the trusted comment. Use it only after the signature was verified.
    pub fn comment(&self) -> &str {
        &self.comment
    }

    /// Checks whether the key signed the bytes and the comment. `hash` is the [`prehash`] of the
    /// bytes.
    pub(crate) fn is_of(&self, key: &PublicKey, hash: &[u8; 64]) -> bool {
        if self.id != key.id() || !key.has_signed(hash, &self.signature) {
            return false;
        }
        let signature_and_comment = [&self.signature[..], self.comment.as_bytes()].concat();
        key.has_signed(&signature_and_comment, &self.comment_signature)
    }
}

/// Makes the hash that is signed in place of bytes.
pub(crate) fn prehash(bytes: &[u8]) -> [u8; 64] {
    Blake2b512::digest(bytes).into()
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&PREHASHED[..], &self.id.0, &self.signature].concat();
        writeln!(f, "{UNTRUSTED}signature from toolhold secret key {}", self.id)?;
        writeln!(f, "{}", encoded::encode(&bytes))?;
        writeln!(f, "{TRUSTED}{}", self.comment)?;
        writeln!(f, "{}", encoded::encode(&self.comment_signature))
    }
}
