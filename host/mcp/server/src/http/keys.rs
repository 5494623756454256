//! Fetches the keys of an authorization server, and selects the keys that may have signed a token.

use std::io::{self, Read};
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

/// Accepted algorithms. With these algorithms, only the authorization server can make signatures.
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

/// Time after which keys are fetched again.
const FRESH: Duration = Duration::from_secs(3600);

/// Shortest time between two fetches because of an unknown key. Anyone can write a token that names
/// an unknown key.
const AGAIN: Duration = Duration::from_secs(60);

/// Keys that are tried for one token.
const TRIED: usize = 8;

/// Time limit and largest size of the server's response.
const PATIENCE: Duration = Duration::from_secs(10);
const BYTES: usize = 256 << 10;

/// The purpose of the requests in the audit log.
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
    /// The time of the last fetch. Locked during a fetch, so that only one task fetches keys.
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
    ///
    /// # Errors
    ///
    /// The keys aren't available or aren't valid.
    pub(super) async fn new(keys: &str, door: OutboundClient) -> Result<Self, ServeError> {
        let source = parse_source(keys).map_err(|error| wrong(keys, &error))?;
        let read = source.read(&door).await.map_err(|error| wrong(keys, &error))?;
        let set = RwLock::new(Set { keys: read, since: Instant::now() });
        Ok(Self { source, door, set, last_fetch: tokio::sync::Mutex::default() })
    }

    /// Returns the keys that may have signed a token: the keys with its key ID, or all keys for its
    /// algorithm. Fetches the keys again if they are old, or if no key matches.
    pub(super) async fn get(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        if let Some(keys) = self.fresh(id, algorithm) {
            return keys;
        }
        let mut last_fetch = self.last_fetch.lock().await;
        // Another task may have fetched the keys meanwhile.
        if let Some(keys) = self.fresh(id, algorithm) {
            return keys;
        }
        if last_fetch.is_some_and(|time| time.elapsed() < AGAIN) {
            return self.known(id, algorithm);
        }

        let now = Instant::now();
        *last_fetch = Some(now);
        match self.source.read(&self.door).await {
            Ok(keys) => {
                *self.set.write().unwrap_or_else(PoisonError::into_inner) = Set { keys, since: now }
            }
            // The old keys stay valid, because an unreachable server is no reason to refuse all
            // callers.
            Err(why) => {
                tracing::warn!("fetching new keys of the authorization server failed: {why}");
            }
        }
        self.known(id, algorithm)
    }

    /// Returns the known keys for a token. Returns `None` if there are no such keys, or if the keys
    /// are old.
    fn fresh(&self, id: Option<&str>, algorithm: Algorithm) -> Option<Vec<DecodingKey>> {
        let since = self.set.read().unwrap_or_else(PoisonError::into_inner).since;
        let keys = self.known(id, algorithm);
        if keys.is_empty() || since.elapsed() > FRESH { None } else { Some(keys) }
    }

    /// Returns the known keys of a token, at most a few.
    fn known(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        let set = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let keys = set
            .keys
            .iter()
            .filter(|key| id.is_none_or(|id| key.common.key_id.as_deref() == Some(id)))
            .filter(|key| fits_algorithm(key, algorithm))
            .filter_map(|key| DecodingKey::from_jwk(key).ok())
            .take(TRIED);
        keys.collect()
    }
}

/// Checks whether a key matches an algorithm, by the key's type and declaration.
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
    let declared = key.common.key_algorithm.map(|declared| declared.to_string());
    let allows_algorithm = declared.is_none_or(|declared| declared == format!("{algorithm:?}"));
    let operations = key.common.key_operations.as_ref();
    let may_verify = operations.is_none_or(|all| all.contains(&KeyOperations::Verify));
    has_type && allows_algorithm && may_verify
}

/// Parses the source of the keys in the settings.
///
/// # Errors
///
/// The source isn't valid.
pub(super) fn parse_source(keys: &str) -> Result<Source, KeysError> {
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
    // The server of the keys decides which callers are accepted, so http is valid only on this
    // machine.
    check_url(keys)?;
    Ok(Source::Url(keys.to_owned()))
}

fn wrong(keys: &str, error: &KeysError) -> ServeError {
    ServeError::Settings(setting_error(keys, error))
}

/// Formats an error in the setting.
pub(super) fn setting_error(keys: &str, error: &KeysError) -> String {
    format!("`keys = {keys:?}` in [serve.oauth]: {error}")
}

impl Source {
    async fn read(&self, door: &OutboundClient) -> Result<Arc<[Jwk]>, KeysError> {
        let bytes = match self {
            Self::File(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || read_file(&path)).await??
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
        parse_keys(&bytes)
    }
}

/// Reads a file, up to one byte above the limit.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses the keys of a set that check signatures. Other and unknown kinds are skipped.
fn parse_keys(bytes: &[u8]) -> Result<Arc<[Jwk]>, KeysError> {
    let set: Value = serde_json::from_slice(bytes).map_err(KeysError::Json)?;
    let listed = set["keys"].as_array().ok_or(KeysError::NotASet)?;
    let parsed = listed.iter().filter_map(|key| serde_json::from_value::<Jwk>(key.clone()).ok());
    let keys: Arc<[Jwk]> = parsed.filter(is_for_signatures).collect();
    if keys.is_empty() { Err(KeysError::NoKey) } else { Ok(keys) }
}

fn is_for_signatures(key: &Jwk) -> bool {
    match &key.common.public_key_use {
        Some(key_use) => *key_use == PublicKeyUse::Signature,
        None => true,
    }
}

/// Makes `ring` the cryptography of the crates for tokens and TLS, once. If an embedding program
/// has already chosen another, that choice remains.
fn install_cryptography() {
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
            _ => Err(ring::error::Unspecified),
        };
        result.map_err(|_| ::signature::Error::new())
    }
}
