//! Fetches the keys of an authorization server, and decides which keys may have signed a token.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::StatusCode;
use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;
use tokio::task::JoinError;
use toolhold_net::requests::{Limits, OutboundClient, OutboundError, Request, check_url};

use crate::error::ServeError;

/// Accepted algorithms: those whose signatures only the authorization server can make.
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

/// Time for which keys are valid before they are fetched again.
const FRESH: Duration = Duration::from_secs(3600);

/// Shortest time between two fetches because of an unknown key: anyone can write a token that names
/// one.
const AGAIN: Duration = Duration::from_secs(60);

/// Keys that are tried for one token.
const TRIED: usize = 8;

/// Time limit and largest size of the server's response.
const PATIENCE: Duration = Duration::from_secs(10);
const BYTES: usize = 256 << 10;

/// The purpose of the requests, in their records.
const PURPOSE: &str = "oauth keys";

/// The obstacle to using the keys of an authorization server.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    #[error("it names no JSON Web Key Set: give its address or a file")]
    NoSource,
    #[error("it isn't an absolute path")]
    RelativePath,
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Request(#[from] OutboundError),
    #[error("{origin} answered {status}")]
    Status { origin: String, status: StatusCode },
    #[error("it is larger than {} KiB", BYTES >> 10)]
    TooLarge,
    #[error("it isn't valid JSON: {0}")]
    Json(serde_json::Error),
    #[error("it isn't a JSON Web Key Set: it has no `keys`")]
    NotASet,
    #[error("it has no key that checks signatures")]
    NoKey,
    #[error(transparent)]
    Task(#[from] JoinError),
}

/// The keys.
pub(super) struct Keys {
    source: Source,
    door: OutboundClient,
    set: RwLock<Set>,
    /// Held while keys are fetched, so that one task does it at a time; the time of the last fetch.
    asked: tokio::sync::Mutex<Option<Instant>>,
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
    /// Keys at an address or in a file.
    ///
    /// # Errors
    ///
    /// The keys aren't available or aren't valid.
    pub(super) async fn new(keys: &str, door: OutboundClient) -> Result<Self, ServeError> {
        let source = source(keys).map_err(|error| wrong(keys, &error))?;
        let read = source.read(&door).await.map_err(|error| wrong(keys, &error))?;
        let set = Set { keys: read, since: Instant::now() };
        Ok(Self { source, door, set: RwLock::new(set), asked: tokio::sync::Mutex::default() })
    }

    /// The possible keys of a token: those with its key ID, or all for its algorithm.
    pub(super) async fn get(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        let (found, old) = self.known(id, algorithm);
        if !found.is_empty() && !old {
            return found;
        }
        let mut asked = self.asked.lock().await;
        // Another task may have fetched them meanwhile.
        let (found, old) = self.known(id, algorithm);
        if (!found.is_empty() && !old) || asked.is_some_and(|asked| asked.elapsed() < AGAIN) {
            return found;
        }
        let now = Instant::now();
        *asked = Some(now);
        match self.source.read(&self.door).await {
            Ok(keys) => {
                *self.set.write().unwrap_or_else(PoisonError::into_inner) = Set { keys, since: now }
            }
            // The old keys stay valid: a missing server is no reason to refuse everyone.
            Err(why) => {
                tracing::warn!("fetching new keys of the authorization server failed: {why}");
            }
        }
        self.known(id, algorithm).0
    }

    /// The keys, at most a few, and whether they are old.
    fn known(&self, id: Option<&str>, algorithm: Algorithm) -> (Vec<DecodingKey>, bool) {
        let set = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let found = set
            .keys
            .iter()
            .filter(|key| id.is_none_or(|id| key.common.key_id.as_deref() == Some(id)))
            .filter(|key| checks(key, algorithm))
            .filter_map(|key| DecodingKey::from_jwk(key).ok())
            .take(TRIED);
        (found.collect(), set.since.elapsed() > FRESH)
    }
}

/// Whether a key fits an algorithm, by its type and its own declaration.
fn checks(key: &Jwk, algorithm: Algorithm) -> bool {
    let kind = match (&key.algorithm, algorithm) {
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
    let named =
        key.common.key_algorithm.is_none_or(|named| named.to_string() == format!("{algorithm:?}"));
    let may =
        key.common.key_operations.as_ref().is_none_or(|may| may.contains(&KeyOperations::Verify));
    kind && named && may
}

/// The source of the keys, from the settings.
///
/// # Errors
///
/// The reason why it isn't valid.
pub(super) fn source(keys: &str) -> Result<Source, KeysError> {
    installed();
    if keys.is_empty() {
        return Err(KeysError::NoSource);
    }
    if !keys.contains("://") {
        return if Path::new(keys).is_absolute() {
            Ok(Source::File(PathBuf::from(keys)))
        } else {
            Err(KeysError::RelativePath)
        };
    }
    // The server of the keys decides which callers are let in, so http is for this machine alone.
    check_url(keys)?;
    Ok(Source::Url(keys.to_owned()))
}

fn wrong(keys: &str, error: &KeysError) -> ServeError {
    ServeError::Settings(setting_error(keys, error))
}

/// The error in the setting.
pub(super) fn setting_error(keys: &str, error: &KeysError) -> String {
    format!("`keys = {keys:?}` in [serve.oauth]: {error}")
}

impl Source {
    async fn read(&self, door: &OutboundClient) -> Result<Arc<[Jwk]>, KeysError> {
        let bytes = match self {
            Self::File(path) => {
                use tokio::task::spawn_blocking;
                let path = path.clone();
                let read = spawn_blocking(move || {
                    use std::io::Read;
                    let mut bytes = Vec::new();
                    std::fs::File::open(path)?
                        .take(BYTES as u64 + 1)
                        .read_to_end(&mut bytes)
                        .map(|_| bytes)
                });
                read.await??
            }
            Self::Url(url) => {
                let limits = Limits { time: PATIENCE, idle: PATIENCE, bytes: BYTES as u64 };
                let request = Request::get(PURPOSE, url)?.limits(limits);
                let answer = door.send(request).await?;
                let status = answer.status();
                if !status.is_success() {
                    return Err(KeysError::Status { origin: answer.origin().to_owned(), status });
                }
                answer.bytes(&|_, _| {}).await?
            }
        };
        if bytes.len() > BYTES {
            return Err(KeysError::TooLarge);
        }
        keys_in(&bytes)
    }
}

/// The keys of a set for signatures. Other and unknown kinds are skipped.
fn keys_in(bytes: &[u8]) -> Result<Arc<[Jwk]>, KeysError> {
    let set: Value = serde_json::from_slice(bytes).map_err(KeysError::Json)?;
    let listed = set["keys"].as_array().ok_or(KeysError::NotASet)?;
    let keys: Arc<[Jwk]> = listed
        .iter()
        .filter_map(|key| serde_json::from_value::<Jwk>(key.clone()).ok())
        .filter(|key| {
            key.common.public_key_use.as_ref().is_none_or(|key| *key == PublicKeyUse::Signature)
        })
        .collect();
    if keys.is_empty() { Err(KeysError::NoKey) } else { Ok(keys) }
}

/// Makes `ring` the cryptography of the crates for tokens and TLS, once. An embedding program may
/// have chosen another before.
fn installed() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
        verifier_factory: |algorithm, key| {
            Ok(Box::new(Ring { algorithm: *algorithm, key: key.clone() }))
        },
        key_utils: KeyUtils::new_unimplemented(),
    };
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = PROVIDER.install_default();
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// Checks signatures.
struct Ring {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// The way of `ring` to check the signatures of an algorithm.
enum Check {
    Rsa(&'static signature::RsaParameters),
    Other(AlgorithmFamily, &'static dyn signature::VerificationAlgorithm),
}

impl Check {
    fn from_algorithm(algorithm: Algorithm) -> Option<Self> {
        Some(match algorithm {
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
        })
    }
}

impl ::signature::Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), ::signature::Error> {
        let checked = match (Check::from_algorithm(self.algorithm), self.key.kind()) {
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
            _ => Err(ring::error::Unspecified),
        };
        checked.map_err(|_| ::signature::Error::new())
    }
}
