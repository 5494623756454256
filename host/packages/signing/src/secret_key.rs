//! Secret keys in minisign's format. Makes and reads keys, and encrypts them with a password.

use std::fmt;

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use zeroize::Zeroizing;

use crate::SigningError;
use crate::encoded::{self, EncodingError, UNTRUSTED};
use crate::public_key::{ALGORITHM, ID_BYTES, KEY_BYTES, KeyId, PublicKey};

/// Most bytes of a secret key's file. A larger file is refused.
pub(crate) const MAX_FILE: usize = 4 << 10;

/// The key derivations: scrypt, or zeros for a key without a password.
const SCRYPT: [u8; 2] = *b"Sc";
const WITHOUT_PASSWORD: [u8; 2] = [0; 2];

/// BLAKE2b.
const CHECKSUM: [u8; 2] = *b"B2";

/// Bytes of the seed, from which the secret key is made.
const SEED_BYTES: usize = 32;
/// Bytes of the salt of a password.
const SALT_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 32;

/// Bytes that the checksum covers: ID, seed and public key.
const CONTENT_BYTES: usize = ID_BYTES + SEED_BYTES + KEY_BYTES;

/// Bytes that a password encrypts.
const SEALED: usize = CONTENT_BYTES + CHECKSUM_BYTES;

/// The offsets of the parts of a decoded key file. The file starts with the names of the signature
/// algorithm, of the key derivation and of the checksum.
const DERIVATION_START: usize = ALGORITHM.len();
const CHECKSUM_START: usize = DERIVATION_START + SCRYPT.len();
const SALT_START: usize = CHECKSUM_START + CHECKSUM.len();
const OPERATIONS_START: usize = SALT_START + SALT_BYTES;
const MEMORY_START: usize = OPERATIONS_START + size_of::<u64>();
const SEALED_START: usize = MEMORY_START + size_of::<u64>();

/// Bytes of a decoded key file.
const FILE_BYTES: usize = SEALED_START + SEALED;

/// The cost of a password check in libsodium's terms: scrypt with N = 2^17, r = 8 and p = 1, which
/// takes 128 MiB. minisign's own keys take 1 GiB, which is too much for small machines.
const OPERATIONS: u64 = 4 << 20;
const MEMORY: u64 = 128 << 20;

/// The highest cost, which minisign's own keys have. A key with a higher cost is refused.
const MAX_OPERATIONS: u64 = 32 << 20;
const MAX_MEMORY: u64 = 1 << 30;

/// A secret key. `Debug` shows only the ID.
pub struct SecretKey {
    seed: Zeroizing<[u8; 32]>,
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKey").field(&self.public.id).finish()
    }
}

impl SecretKey {
    /// Generates a new key.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no random bytes.
    pub fn generate() -> Result<Self, SigningError> {
        let mut seed = Zeroizing::new([0; SEED_BYTES]);
        let mut id = [0; ID_BYTES];
        fill(&mut *seed)?;
        fill(&mut id)?;
        Ok(Self::from_seed(seed, KeyId(id))?)
    }

    fn from_seed(seed: Zeroizing<[u8; 32]>, id: KeyId) -> Result<Self, SecretKeyError> {
        let pair =
            Ed25519KeyPair::from_seed_unchecked(&*seed).map_err(|_| SecretKeyError::Invalid)?;
        let key =
            pair.public_key().as_ref().try_into().map_err(|_| SecretKeyError::PublicKeyLength)?;
        Ok(Self { seed, pair, public: PublicKey { id, key } })
    }

    /// Returns the public key of the secret key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(bytes).as_ref());
        signature
    }

    /// Returns the content of the key's file for minisign's option `-s`. With a password, the key
    /// is encrypted.
    ///
    /// # Errors
    ///
    /// Fails if the system has no random bytes, or if the password is empty.
    pub fn to_file(&self, password: Option<&str>) -> Result<Zeroizing<String>, SigningError> {
        let mut sealed = self.content_with_checksum();
        // Without a password, all these parts are zero.
        let mut derivation = WITHOUT_PASSWORD;
        let mut salt = [0; SALT_BYTES];
        let mut operations = 0;
        let mut memory = 0;
        if let Some(password) = password {
            derivation = SCRYPT;
            operations = OPERATIONS;
            memory = MEMORY;
            fill(&mut salt)?;
            apply_password(&mut sealed, password, &salt, operations, memory)?;
        }

        let mut file = Zeroizing::new(Vec::with_capacity(FILE_BYTES));
        for part in [&ALGORITHM[..], &derivation, &CHECKSUM, &salt] {
            file.extend_from_slice(part);
        }
        file.extend_from_slice(&operations.to_le_bytes());
        file.extend_from_slice(&memory.to_le_bytes());
        file.extend_from_slice(&sealed);
        let line = Zeroizing::new(encoded::encode(&file));
        let kind = if password.is_some() { "encrypted" } else { "unencrypted" };
        Ok(Zeroizing::new(format!("{UNTRUSTED}minisign {kind} secret key\n{}\n", *line)))
    }

    /// Returns the part of the key's file that a password encrypts: the ID, the seed and the public
    /// key, with their checksum.
    fn content_with_checksum(&self) -> Zeroizing<Vec<u8>> {
        let mut content = Zeroizing::new(Vec::with_capacity(SEALED));
        content.extend_from_slice(&self.public.id.0);
        content.extend_from_slice(&*self.seed);
        content.extend_from_slice(&self.public.key);
        let content_checksum = checksum(&content);
        content.extend_from_slice(&content_checksum);
        content
    }

    /// Checks whether the file of a secret key needs a password.
    ///
    /// # Errors
    ///
    /// Fails if the text isn't the file of a secret key.
    pub fn needs_password(file: &str) -> Result<bool, SecretKeyError> {
        Ok(Parts::read(file)?.derivation == SCRYPT)
    }

    /// Reads the content of a key's file. Blocks while the password is checked.
    ///
    /// # Errors
    ///
    /// Fails if the text isn't the file of a secret key, or if the password is missing or wrong.
    pub fn from_file(file: &str, password: Option<&str>) -> Result<Self, SecretKeyError> {
        let mut parts = Parts::read(file)?;
        let is_encrypted = parts.derivation == SCRYPT;
        if is_encrypted {
            let password = password.ok_or(SecretKeyError::NeedsPassword)?;
            let Parts { sealed, salt, operations, memory, .. } = &mut parts;
            apply_password(sealed, password, salt, *operations, *memory)?;
        }

        let (content, stored_checksum) = parts.sealed.split_at(CONTENT_BYTES);
        let is_checksum_right = checksum(content) == stored_checksum;
        if is_encrypted && !is_checksum_right {
            return Err(SecretKeyError::WrongPassword);
        }
        // minisign writes zeros instead of a checksum for a key without a password.
        let has_checksum = stored_checksum != [0; CHECKSUM_BYTES];
        if has_checksum && !is_checksum_right {
            return Err(SecretKeyError::Damaged);
        }

        let (id, seed_and_public_key) = content.split_at(ID_BYTES);
        let (seed, public_key) = seed_and_public_key.split_at(SEED_BYTES);
        let mut id_bytes = [0; ID_BYTES];
        id_bytes.copy_from_slice(id);
        let mut seed_bytes = Zeroizing::new([0; SEED_BYTES]);
        seed_bytes.copy_from_slice(seed);
        let key = Self::from_seed(seed_bytes, KeyId(id_bytes))?;
        if key.public.key != public_key {
            return Err(SecretKeyError::OtherPublicKey);
        }
        Ok(key)
    }
}

/// The reason why a secret key can't be read or encrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretKeyError {
    /// The file isn't in the format of minisign's files.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// The file isn't text.
    #[error("the file isn't UTF-8")]
    NotText,
    /// The first line is the first line of another file.
    #[error("the file isn't a secret key")]
    OtherFile,
    /// The key is for another algorithm.
    #[error("the secret key isn't a minisign key: the algorithm is unknown")]
    Algorithms,
    /// The checksum of a key without a password is wrong.
    #[error("the secret key is damaged")]
    Damaged,
    /// The bytes aren't a key.
    #[error("the secret key isn't valid")]
    Invalid,
    /// The length of the public key is wrong.
    #[error("the public key has a wrong length")]
    PublicKeyLength,
    /// The public key in the file belongs to another secret key.
    #[error("the public key in the file doesn't belong to the secret key")]
    OtherPublicKey,
    /// The password is missing.
    #[error("the secret key needs its password")]
    NeedsPassword,
    /// The checksum is wrong after decryption with this password.
    #[error("the password is wrong")]
    WrongPassword,
    /// The password is empty.
    #[error("the password is empty")]
    EmptyPassword,
    /// The check of the password would need too much time or memory.
    #[error(
        "the secret key's password needs {operations} operations and {memory} bytes of memory; the \
         limit is {MAX_OPERATIONS} and {MAX_MEMORY}"
    )]
    Effort {
        /// The operations of the check.
        operations: u64,
        /// The memory for the check, in bytes.
        memory: u64,
    },
    /// The cost of the password check isn't valid.
    #[error("the cost parameters of the secret key's password aren't valid")]
    InvalidEffort,
    /// scrypt failed.
    #[error("deriving the key from the password failed")]
    Derivation,
}

struct Parts {
    derivation: [u8; 2],
    salt: [u8; 32],
    operations: u64,
    memory: u64,
    sealed: Zeroizing<Vec<u8>>,
}

impl Parts {
    /// Splits the content of a key's file into its parts, without decrypting them.
    fn read(file: &str) -> Result<Self, SecretKeyError> {
        let [comment, line] = encoded::lines(file, "the file of the secret key")?;
        // An empty comment may have no space after the colon.
        if !comment.starts_with(UNTRUSTED.trim_end()) {
            return Err(SecretKeyError::OtherFile);
        }
        let bytes = Zeroizing::new(encoded::decode::<FILE_BYTES>(line, "the secret key")?);
        let derivation = [bytes[DERIVATION_START], bytes[DERIVATION_START + 1]];
        let has_known_algorithm = bytes[..DERIVATION_START] == ALGORITHM;
        let has_known_derivation = [SCRYPT, WITHOUT_PASSWORD].contains(&derivation);
        let has_known_checksum = bytes[CHECKSUM_START..SALT_START] == CHECKSUM;
        if !(has_known_algorithm && has_known_derivation && has_known_checksum) {
            return Err(SecretKeyError::Algorithms);
        }
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&bytes[SALT_START..OPERATIONS_START]);
        let operations = number_at(&bytes[..], OPERATIONS_START);
        let memory = number_at(&bytes[..], MEMORY_START);
        let sealed = Zeroizing::new(bytes[SEALED_START..].to_vec());
        Ok(Self { derivation, salt, operations, memory, sealed })
    }
}

fn number_at(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; size_of::<u64>()];
    number.copy_from_slice(&bytes[offset..offset + size_of::<u64>()]);
    u64::from_le_bytes(number)
}

/// Encrypts or decrypts `sealed`. Both operations are the XOR with bytes that are derived from the
/// password.
fn apply_password(
    sealed: &mut [u8],
    password: &str,
    salt: &[u8],
    operations: u64,
    memory: u64,
) -> Result<(), SecretKeyError> {
    if password.is_empty() {
        return Err(SecretKeyError::EmptyPassword);
    }
    let (log_n, r, p) = scrypt_cost(operations, memory)?;
    // `scrypt` derives as many bytes as `derived` has, and ignores the length in `Params`.
    let unused_length = 32;
    let params = scrypt::Params::new(log_n, r, p, unused_length)
        .map_err(|_| SecretKeyError::InvalidEffort)?;
    let mut derived = Zeroizing::new([0; SEALED]);
    scrypt::scrypt(password.as_bytes(), salt, &params, &mut *derived)
        .map_err(|_| SecretKeyError::Derivation)?;
    for (byte, derived_byte) in sealed.iter_mut().zip(derived.iter()) {
        *byte ^= derived_byte;
    }
    Ok(())
}

/// Returns the parameters of scrypt (log N, r, p) that libsodium's function `pickparams` chooses
/// for this cost.
fn scrypt_cost(operations: u64, memory: u64) -> Result<(u8, u32, u32), SecretKeyError> {
    const R: u32 = 8;
    const MIN_OPERATIONS: u64 = 32_768;
    const MAX_R_TIMES_P: u64 = 0x3fff_ffff;
    if operations > MAX_OPERATIONS || memory > MAX_MEMORY {
        return Err(SecretKeyError::Effort { operations, memory });
    }
    let r = u64::from(R);
    let used_operations = operations.max(MIN_OPERATIONS);
    // A small number of operations limits N.
    if used_operations < memory / 32 {
        return Ok((log_of(used_operations / (r * 4)), R, 1));
    }
    // Otherwise, the memory limits N, and `p` repeats the work until the operations are used.
    let log = log_of(memory / (r * 128));
    let p = (used_operations / 4 / (1 << log)).min(MAX_R_TIMES_P) / r;
    // `p` is less than `MAX_R_TIMES_P`, so the fallback is never used.
    Ok((log, R, u32::try_from(p.max(1)).unwrap_or(1)))
}

/// Returns the smallest `log` with `2^log > max / 2`.
fn log_of(max: u64) -> u8 {
    (1_u8..63).find(|log| (1_u64 << log) > max / 2).unwrap_or(63)
}

fn checksum(content: &[u8]) -> [u8; 32] {
    Blake2b::<U32>::new().chain_update(ALGORITHM).chain_update(content).finalize().into()
}

fn fill(bytes: &mut [u8]) -> Result<(), SigningError> {
    SystemRandom::new().fill(bytes).map_err(|_| SigningError::NoRandomBytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_is_that_of_libsodium_and_bounded() {
        assert_eq!(scrypt_cost(OPERATIONS, MEMORY), Ok((17, 8, 1)));
        // What minisign writes, and libsodium's interactive limits.
        assert_eq!(scrypt_cost(33_554_432, 1 << 30), Ok((20, 8, 1)));
        assert_eq!(scrypt_cost(524_288, 16 << 20), Ok((14, 8, 1)));
        for (operations, memory) in [(u64::MAX, 1 << 20), (1 << 20, 2 << 30)] {
            let error = scrypt_cost(operations, memory).expect_err("too much").to_string();
            assert!(error.contains("the limit is"), "{error}");
        }
        // A file can't ask for many rounds of little memory either.
        let (log, r, p) = scrypt_cost(MAX_OPERATIONS, 0).expect("it is within the limits");
        assert!((1_u64 << log) * u64::from(r) * u64::from(p) <= MAX_OPERATIONS);
    }
}
