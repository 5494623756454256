//! Secret keys in minisign's format. Makes and reads keys, and encrypts them with a password.

use std::fmt;

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use zeroize::Zeroizing;

use crate::SigningError;
use crate::encoded::{self, EncodingError, UNTRUSTED};
use crate::public_key::{ALGORITHM, KeyId, PublicKey};

/// Largest file of a secret key, in bytes.
pub(crate) const MAX_FILE: usize = 4 << 10;

/// The key derivation: scrypt, or zeros for a key without a password.
const SCRYPT: [u8; 2] = *b"Sc";
const WITHOUT_PASSWORD: [u8; 2] = [0; 2];

/// The checksum: BLAKE2b.
const CHECKSUM: [u8; 2] = *b"B2";

/// Bytes of the part that a password encrypts: ID, seed, public key and checksum.
const SEALED: usize = 8 + 64 + 32;

/// Bytes of a key's file after decoding: the names of the algorithms, the salt, the cost, and the
/// encrypted part.
const FILE_BYTES: usize = 6 + 32 + 16 + SEALED;

/// The cost of a password check in libsodium's terms. It means scrypt with N = 2^17, r = 8 and p =
/// 1, which takes 128 MiB. minisign's own keys take 1 GiB, which is too much for small machines.
const OPERATIONS: u64 = 4 << 20;
const MEMORY: u64 = 128 << 20;

/// The highest cost for a file. This is the cost of minisign's own keys.
const MAX_OPERATIONS: u64 = 32 << 20;
const MAX_MEMORY: u64 = 1 << 30;

/// A secret key. Its `Debug` output contains only the ID.
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
    /// The system has no random bytes.
    pub fn generate() -> Result<Self, SigningError> {
        let mut seed = Zeroizing::new([0; 32]);
        let mut id = [0; 8];
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

    /// Returns the public key that belongs to the secret key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(bytes).as_ref());
        signature
    }

    /// Returns the content of the key's file, for minisign's option `-s`. With a password, the key
    /// in the file is encrypted.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no random bytes, or if the password is empty.
    pub fn to_file(&self, password: Option<&str>) -> Result<Zeroizing<String>, SigningError> {
        let mut sealed = Zeroizing::new(Vec::with_capacity(SEALED));
        sealed.extend_from_slice(&self.public.id.0);
        sealed.extend_from_slice(&*self.seed);
        sealed.extend_from_slice(&self.public.key);
        let sum = checksum(&sealed);
        sealed.extend_from_slice(&sum);

        let mut derivation = WITHOUT_PASSWORD;
        let mut salt = [0; 32];
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

    /// Checks whether the file of a secret key needs a password.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't the file of a secret key.
    pub fn needs_password(file: &str) -> Result<bool, SecretKeyError> {
        Ok(Parts::read(file)?.derivation == SCRYPT)
    }

    /// Reads the content of a key's file. Blocks during the check of the password.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't the file of a secret key, or if the password is missing
    /// or wrong.
    pub fn from_file(file: &str, password: Option<&str>) -> Result<Self, SecretKeyError> {
        let mut parts = Parts::read(file)?;
        let is_encrypted = parts.derivation == SCRYPT;
        if is_encrypted {
            let password = password.ok_or(SecretKeyError::NeedsPassword)?;
            let Parts { sealed, salt, operations, memory, .. } = &mut parts;
            apply_password(sealed, password, salt, *operations, *memory)?;
        }

        let (content, sum) = parts.sealed.split_at(8 + 64);
        let is_right = checksum(content) == sum;
        if is_encrypted && !is_right {
            return Err(SecretKeyError::WrongPassword);
        }
        // minisign itself leaves the checksum out without a password.
        let has_sum = sum != [0; 32];
        if has_sum && !is_right {
            return Err(SecretKeyError::Damaged);
        }

        let (id, pair) = content.split_at(8);
        let (seed, public) = pair.split_at(32);
        let mut id_bytes = [0; 8];
        id_bytes.copy_from_slice(id);
        let mut seed_bytes = Zeroizing::new([0; 32]);
        seed_bytes.copy_from_slice(seed);
        let key = Self::from_seed(seed_bytes, KeyId(id_bytes))?;
        if key.public.key != public {
            return Err(SecretKeyError::OtherPublicKey);
        }
        Ok(key)
    }
}

/// A reason why a secret key can't be read from a file or encrypted for a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretKeyError {
    /// The file isn't in the form of minisign's files.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// The file isn't text.
    #[error("the file isn't text")]
    NotText,
    /// The file has another first line.
    #[error("the file isn't a secret key")]
    OtherFile,
    /// The key is for another algorithm.
    #[error("the secret key isn't a minisign key: its algorithms differ")]
    Algorithms,
    /// The key has another checksum and no password.
    #[error("the secret key is damaged")]
    Damaged,
    /// The bytes aren't a key.
    #[error("the secret key isn't valid")]
    Invalid,
    /// The length of the public key is wrong.
    #[error("the public key has a wrong length")]
    PublicKeyLength,
    /// The key doesn't belong to the public key next to it.
    #[error("the public key in the file doesn't belong to the secret key")]
    OtherPublicKey,
    /// The password is missing.
    #[error("the secret key needs its password")]
    NeedsPassword,
    /// The key has another checksum with this password.
    #[error("the password is wrong")]
    WrongPassword,
    /// The password has no characters.
    #[error("the password is empty")]
    EmptyPassword,
    /// The check of the password would take too much time or memory.
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
    /// The cost of the check isn't valid.
    #[error("the cost parameters of the secret key's password aren't valid")]
    InvalidEffort,
    /// scrypt failed.
    #[error("the key of the password can't be derived")]
    Derivation,
}

/// The parts of a secret key's file.
struct Parts {
    derivation: [u8; 2],
    salt: [u8; 32],
    operations: u64,
    memory: u64,
    sealed: Zeroizing<Vec<u8>>,
}

impl Parts {
    fn read(file: &str) -> Result<Self, SecretKeyError> {
        let [comment, line] = encoded::lines(file, "the file of the secret key")?;
        if !comment.starts_with(UNTRUSTED.trim_end()) {
            return Err(SecretKeyError::OtherFile);
        }
        let bytes = Zeroizing::new(encoded::decode::<FILE_BYTES>(line, "the secret key")?);
        let derivation = [bytes[2], bytes[3]];
        let has_known_derivation = [SCRYPT, WITHOUT_PASSWORD].contains(&derivation);
        if bytes[..2] != ALGORITHM || !has_known_derivation || bytes[4..6] != CHECKSUM {
            return Err(SecretKeyError::Algorithms);
        }
        let mut salt = [0; 32];
        salt.copy_from_slice(&bytes[6..38]);
        let sealed = Zeroizing::new(bytes[54..].to_vec());
        let operations = number_at(&bytes[..], 38);
        let memory = number_at(&bytes[..], 46);
        Ok(Self { derivation, salt, operations, memory, sealed })
    }
}

fn number_at(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}

/// Encrypts plain bytes with the password, or decrypts encrypted ones.
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
    let params = scrypt::Params::new(log_n, r, p, 32).map_err(|_| SecretKeyError::InvalidEffort)?;
    let mut stream = Zeroizing::new([0; SEALED]);
    scrypt::scrypt(password.as_bytes(), salt, &params, &mut *stream)
        .map_err(|_| SecretKeyError::Derivation)?;
    for (byte, key) in sealed.iter_mut().zip(stream.iter()) {
        *byte ^= key;
    }
    Ok(())
}

/// Returns the cost parameters of scrypt (log N, r, p) that libsodium uses for these limits.
fn scrypt_cost(operations: u64, memory: u64) -> Result<(u8, u32, u32), SecretKeyError> {
    const R: u64 = 8;
    if operations > MAX_OPERATIONS || memory > MAX_MEMORY {
        return Err(SecretKeyError::Effort { operations, memory });
    }
    let operations = operations.max(32_768);
    if operations < memory / 32 {
        return Ok((log_of(operations / (R * 4)), 8, 1));
    }
    let log = log_of(memory / (R * 128));
    let p = (operations / 4 / (1 << log)).min(0x3fff_ffff) / R;
    Ok((log, 8, u32::try_from(p.max(1)).unwrap_or(1)))
}

/// Returns the smallest logarithm whose power of two is more than half of `max`.
fn log_of(max: u64) -> u8 {
    (1_u8..63).find(|log| (1_u64 << log) > max / 2).unwrap_or(63)
}

/// Computes the checksum of id and key.
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
