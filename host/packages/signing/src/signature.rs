//! Makes, reads and checks signatures: the content of a `.minisig` file.

use std::fmt;

use blake2::{Blake2b512, Digest};

use crate::SigningError;
use crate::encoded::{self, EncodingError, UNTRUSTED, check_comment};
use crate::public_key::{ID_BYTES, KeyId, PublicKey};
use crate::secret_key::SecretKey;

/// Most bytes of a signature's file. A larger file is refused.
pub const MAX_SIGNATURE: usize = 8 << 10;

/// Most signatures of one item that are checked. Further signatures are ignored.
pub(crate) const MAX_SIGNATURES: usize = 16;

/// The algorithm of a signature over the BLAKE2b hash of the bytes.
const PREHASHED: [u8; 2] = *b"ED";

/// The algorithm of a signature of the bytes themselves. minisign used it before version 0.8.
const LEGACY: [u8; 2] = *b"Ed";

/// Bytes of an Ed25519 signature.
const SIGNATURE_BYTES: usize = 64;

/// Bytes in the second line: the algorithm, the key's ID and the signature.
const ENCODED_BYTES: usize = PREHASHED.len() + ID_BYTES + SIGNATURE_BYTES;

const TRUSTED: &str = "trusted comment: ";

/// A signature. Reading a signature doesn't verify it.
#[derive(Clone, Debug)]
pub struct Signature {
    id: KeyId,
    signature: [u8; SIGNATURE_BYTES],
    comment: String,
    /// The signature over `signature` and `comment`.
    comment_signature: [u8; SIGNATURE_BYTES],
}

/// A reason why a file isn't a signature. The message has no characters that could control a
/// terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The signature is too large. The number is its size in bytes.
    #[error("the signature is {0} bytes; the limit is {MAX_SIGNATURE}")]
    TooLarge(usize),
    /// The signature isn't UTF-8.
    #[error("the signature isn't UTF-8")]
    NotText,
    /// The signature isn't in the format of minisign's files.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// The first line is wrong.
    #[error("the signature must start with `{}`", UNTRUSTED.trim_end())]
    FirstLine,
    /// The signature has no trusted comment.
    #[error("line 3 of the signature must start with `{TRUSTED}`")]
    ThirdLine,
    /// The signature is over the bytes themselves, not over their hash.
    #[error(
        "the signature has minisign's old format without prehashing; sign again with minisign 0.10 \
         or later"
    )]
    NotPrehashed,
    /// The signature has another algorithm.
    #[error("the signature isn't a minisign signature: the algorithm is unknown")]
    Algorithm,
    /// The signature has a wrong length.
    #[error("the signature has a wrong length")]
    Length,
}

impl Signature {
    /// Signs bytes and a comment.
    ///
    /// # Errors
    ///
    /// Fails if the comment is too long or has invisible characters.
    pub fn sign(bytes: &[u8], comment: &str, key: &SecretKey) -> Result<Self, SigningError> {
        check_comment(comment)?;
        let signature = key.sign(&prehash(bytes));
        let signature_and_comment = [&signature[..], comment.as_bytes()].concat();
        let comment_signature = key.sign(&signature_and_comment);
        Ok(Self { id: key.public().id(), signature, comment: comment.into(), comment_signature })
    }

    /// Reads the content of a `.minisig` file.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes aren't a signature, or are in minisign's old format.
    pub fn read(file: &[u8]) -> Result<Self, SignatureError> {
        if file.len() > MAX_SIGNATURE {
            return Err(SignatureError::TooLarge(file.len()));
        }
        let text = std::str::from_utf8(file).map_err(|_| SignatureError::NotText)?;
        let [line_1, line_2, line_3, line_4] = encoded::lines(text, "the signature")?;
        // An empty comment may have no space after the colon.
        if !line_1.starts_with(UNTRUSTED.trim_end()) {
            return Err(SignatureError::FirstLine);
        }
        let comment = line_3.strip_prefix(TRUSTED).ok_or(SignatureError::ThirdLine)?;
        check_comment(comment)?;
        let bytes: [u8; ENCODED_BYTES] = encoded::decode(line_2, "line 2 of the signature")?;
        let comment_signature = encoded::decode(line_4, "line 4 of the signature")?;

        let (algorithm, id_and_signature) = bytes.split_at(PREHASHED.len());
        if algorithm == LEGACY {
            return Err(SignatureError::NotPrehashed);
        }
        if algorithm != PREHASHED {
            return Err(SignatureError::Algorithm);
        }
        let (id, signature) = id_and_signature.split_at(ID_BYTES);
        let (Ok(id), Ok(signature)) = (id.try_into(), signature.try_into()) else {
            return Err(SignatureError::Length);
        };
        Ok(Self { id: KeyId(id), signature, comment: comment.into(), comment_signature })
    }

    /// Returns the ID of the key in the signature. The ID isn't verified.
    pub fn key_id(&self) -> KeyId {
        self.id
    }

    /// Returns the trusted comment. It may be used only after the signature was verified.
    pub fn comment(&self) -> &str {
        &self.comment
    }

    /// Checks whether `key` signed the bytes and the comment. `hash` is the [`prehash`] of the
    /// bytes.
    pub(crate) fn is_of(&self, key: &PublicKey, hash: &[u8; 64]) -> bool {
        if self.id != key.id() || !key.has_signed(hash, &self.signature) {
            return false;
        }
        let signature_and_comment = [&self.signature[..], self.comment.as_bytes()].concat();
        key.has_signed(&signature_and_comment, &self.comment_signature)
    }
}

/// Returns the hash that is signed instead of the bytes.
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
