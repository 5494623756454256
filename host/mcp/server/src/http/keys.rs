//! Fetches the keys of an authorization server, and selects keys for a token.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::StatusCode;
use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::hmac;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;
use tokio::task::JoinError;
use toolhold_net::requests::{Limits, OutboundClient, OutboundError, Request, check_url};

use crate::error::ServeError;

/// Accepted algorithms for tokens of an authorization server. All are asymmetric, so only the
/// authorization server can sign these tokens.
pub(super) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

const MAX_AGE: Duration = Duration::from_secs(3600);

/// Minimum time between two fetches. Anyone can send tokens with unknown key IDs, and must not
/// cause many fetches.
const FETCH_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of keys that are tried for a token.
const MAX_TRIED_KEYS: usize = 8;

/// Time limit of a fetch, and maximum size of the fetched keys.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_KEY_SET_BYTES: usize = 256 << 10;

/// The purpose of the fetches in the audit log.
const PURPOSE: &str = "oauth keys";

#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    #[error("the value is empty: set the address or the file of a JSON Web Key Set")]
    NoSource,
    #[error("the path isn't absolute")]
    RelativePath,
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Request(#[from] OutboundError),
    #[error("{origin} answered {status}")]
    Status { origin: String, status: StatusCode },
    #[error("the key set is larger than {} KiB, the limit", MAX_KEY_SET_BYTES >> 10)]
    TooLarge,
    #[error("the key set isn't valid JSON: {0}")]
    Json(serde_json::Error),
    #[error("the JSON isn't a JSON Web Key Set: `keys` is missing")]
    NotASet,
    #[error("the key set has no key for signatures")]
    NoKey,
    #[error(transparent)]
    Task(#[from] JoinError),
}

pub(super) struct Keys {
    source: Source,
    outbound_client: OutboundClient,
    set: RwLock<Set>,
    /// Locked during a fetch, so that only one task fetches.
    last_fetch: tokio::sync::Mutex<Option<Instant>>,
}

pub(super) enum Source {
    Url(String),
    File(PathBuf),
}

struct Set {
    keys: Arc<[Jwk]>,
    since: Instant,
}

impl Keys {
    /// Reads the keys at an address or in a file.
    pub(super) async fn new(
        keys: &str,
        outbound_client: OutboundClient,
    ) -> Result<Self, ServeError> {
        let source = parse_source(keys).map_err(|error| wrong(keys, &error))?;
        let read_keys = source.read(&outbound_client).await.map_err(|error| wrong(keys, &error))?;
        let set = RwLock::new(Set { keys: read_keys, since: Instant::now() });
        Ok(Self { source, outbound_client, set, last_fetch: tokio::sync::Mutex::default() })
    }

    /// Returns the keys that may have signed a token with this key ID and algorithm. Fetches the
    /// keys again if they are old or if no key matches.
    pub(super) async fn get(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        if let Some(keys) = self.fresh(id, algorithm) {
            return keys;
        }
        let mut last_fetch = self.last_fetch.lock().await;
        // Another task may have fetched the keys while this task waited for the lock.
        if let Some(keys) = self.fresh(id, algorithm) {
            return keys;
        }
        if last_fetch.is_some_and(|time| time.elapsed() < FETCH_INTERVAL) {
            return self.known(id, algorithm);
        }

        let now = Instant::now();
        *last_fetch = Some(now);
        match self.source.read(&self.outbound_client).await {
            Ok(keys) => {
                *self.set.write().unwrap_or_else(PoisonError::into_inner) = Set { keys, since: now }
            }
            // The old keys stay in use, because an authorization server that is down for a while
            // must not lock out all callers.
            Err(why) => {
                tracing::warn!("fetching new keys of the authorization server failed: {why}");
            }
        }
        self.known(id, algorithm)
    }

    /// Returns the matching keys, or `None` if no key matches or the keys are old.
    fn fresh(&self, id: Option<&str>, algorithm: Algorithm) -> Option<Vec<DecodingKey>> {
        let since = self.set.read().unwrap_or_else(PoisonError::into_inner).since;
        let keys = self.known(id, algorithm);
        if keys.is_empty() || since.elapsed() > MAX_AGE { None } else { Some(keys) }
    }

    /// Returns the first [`MAX_TRIED_KEYS`] matching keys. If the token has no key ID, all keys of
    /// the algorithm match.
    fn known(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        let set = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let mut keys = Vec::new();
        for key in set.keys.iter() {
            let has_id = id.is_none_or(|id| key.common.key_id.as_deref() == Some(id));
            if has_id
                && fits_algorithm(key, algorithm)
                && let Ok(decoding_key) = DecodingKey::from_jwk(key)
            {
                keys.push(decoding_key);
            }
            if keys.len() == MAX_TRIED_KEYS {
                break;
            }
        }
        keys
    }
}

/// Checks whether a key may verify signatures with this algorithm.
fn fits_algorithm(key: &Jwk, algorithm: Algorithm) -> bool {
    let has_type = match (&key.algorithm, algorithm) {
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => {
            key.curve == EllipticCurve::P256
        }
        (AlgorithmParameters::EllipticCurve(key), Algorithm::ES384) => {
            key.curve == EllipticCurve::P384
        }
        (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => {
            key.curve == EllipticCurve::Ed25519
        }
        (AlgorithmParameters::RSA(_), algorithm) => algorithm.family() == AlgorithmFamily::Rsa,
        _ => false,
    };
    // A key without a declared algorithm is for all algorithms. A declared algorithm has another
    // type than `algorithm`, but both types use the same names, so the names are compared.
    let allows_algorithm = match key.common.key_algorithm {
        Some(declared) => declared.to_string() == format!("{algorithm:?}"),
        None => true,
    };
    // A key without declared operations is for all operations.
    let may_verify = match &key.common.key_operations {
        Some(operations) => operations.contains(&KeyOperations::Verify),
        None => true,
    };
    has_type && allows_algorithm && may_verify
}

/// Parses the setting `keys`: the URL of a key set, or the absolute path of a file.
pub(super) fn parse_source(keys: &str) -> Result<Source, KeysError> {
    // Each use of the keys begins here, so the cryptography is ready before any check.
    install_cryptography();
    if keys.is_empty() {
        return Err(KeysError::NoSource);
    }
    if !keys.contains("://") {
        let path = PathBuf::from(keys);
        return if path.is_absolute() {
            Ok(Source::File(path))
        } else {
            Err(KeysError::RelativePath)
        };
    }
    // Anyone who changes the keys on the way can forge tokens, so `http` is valid only on this
    // machine.
    check_url(keys)?;
    Ok(Source::Url(keys.to_owned()))
}

fn wrong(keys: &str, error: &KeysError) -> ServeError {
    ServeError::Settings(setting_error(keys, error))
}

pub(super) fn setting_error(keys: &str, error: &KeysError) -> String {
    format!("`keys = {keys:?}` in [serve.oauth]: {error}")
}

impl Source {
    async fn read(&self, outbound_client: &OutboundClient) -> Result<Arc<[Jwk]>, KeysError> {
        let bytes = match self {
            Self::File(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || read_file(&path)).await??
            }
            Self::Url(url) => {
                let limits = Limits {
                    time: FETCH_TIMEOUT,
                    idle: FETCH_TIMEOUT,
                    bytes: MAX_KEY_SET_BYTES as u64,
                };
                let request = Request::get(PURPOSE, url)?.limits(limits);
                let answer = outbound_client.send(request).await?;
                let status = answer.status();
                if !status.is_success() {
                    return Err(KeysError::Status { origin: answer.origin().to_owned(), status });
                }
                answer.bytes(&|_, _| {}).await?
            }
        };
        if bytes.len() > MAX_KEY_SET_BYTES {
            return Err(KeysError::TooLarge);
        }
        parse_keys(&bytes)
    }
}

/// Reads a file up to one byte above the limit.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_KEY_SET_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses a key set. Skips keys of unknown kinds and keys that aren't for signatures.
fn parse_keys(bytes: &[u8]) -> Result<Arc<[Jwk]>, KeysError> {
    let set: Value = serde_json::from_slice(bytes).map_err(KeysError::Json)?;
    let entries = set["keys"].as_array().ok_or(KeysError::NotASet)?;
    let mut keys = Vec::new();
    for entry in entries {
        if let Ok(key) = serde_json::from_value::<Jwk>(entry.clone())
            && is_for_signatures(&key)
        {
            keys.push(key);
        }
    }
    if keys.is_empty() { Err(KeysError::NoKey) } else { Ok(keys.into()) }
}

fn is_for_signatures(key: &Jwk) -> bool {
    match &key.common.public_key_use {
        Some(key_use) => *key_use == PublicKeyUse::Signature,
        None => true,
    }
}

/// Chooses `ring` as the cryptography of the crates for tokens and TLS, unless an embedding program
/// has made another choice.
pub(super) fn install_cryptography() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
        verifier_factory: |algorithm, key| {
            Ok(Box::new(Ring { algorithm: *algorithm, key: key.clone() }))
        },
        key_utils: KeyUtils::new_unimplemented(),
    };
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that a provider was already chosen.
        let _ = PROVIDER.install_default();
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

struct Ring {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

enum Check {
    Rsa(&'static signature::RsaParameters),
    Other(AlgorithmFamily, &'static dyn signature::VerificationAlgorithm),
}

impl Check {
    /// Returns how `ring` checks signatures of this algorithm, or `None` for an algorithm outside
    /// of [`ALGORITHMS`].
    fn from_algorithm(algorithm: Algorithm) -> Option<Self> {
        let check = match algorithm {
            Algorithm::RS256 => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => {
                Self::Other(AlgorithmFamily::Ec, &signature::ECDSA_P256_SHA256_FIXED)
            }
            Algorithm::ES384 => {
                Self::Other(AlgorithmFamily::Ec, &signature::ECDSA_P384_SHA384_FIXED)
            }
            Algorithm::EdDSA => Self::Other(AlgorithmFamily::Ed, &signature::ED25519),
            _ => return None,
        };
        Some(check)
    }
}

impl ::signature::Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), ::signature::Error> {
        let result = match (Check::from_algorithm(self.algorithm), self.key.kind()) {
            (Some(Check::Rsa(parameters)), DecodingKeyKind::RsaModulusExponent { n, e })
                if self.key.family() == AlgorithmFamily::Rsa =>
            {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signed)
            }
            (Some(Check::Other(family, algorithm)), DecodingKeyKind::SecretOrDer(key))
                if self.key.family() == family =>
            {
                UnparsedPublicKey::new(algorithm, key).verify(message, signed)
            }
            // The tokens of `toolhold token`. The keys of an authorization server have another
            // family.
            (None, DecodingKeyKind::SecretOrDer(key))
                if self.algorithm == Algorithm::HS256
                    && self.key.family() == AlgorithmFamily::Hmac =>
            {
                hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), message, signed)
            }
            _ => Err(ring::error::Unspecified),
        };
        result.map_err(|_| ::signature::Error::new())
    }
}
