//! Decides whether a trusted key signed a plugin, a bundle or a ceiling.

use jiff::civil::Date;
use toolhold_component::Manifest;

use crate::public_key::{KeyId, PublicKey};
use crate::signature::{Signature, SignatureError, prehash};
use crate::statement::Statement;
use crate::trusted_key::TrustedKey;

/// The most signatures of one item that are checked.
pub(crate) const MAX_SIGNATURES: usize = 16;

/// A plugin for which signatures are checked.
#[derive(Clone, Copy, Debug)]
pub struct SignedPlugin<'p> {
    /// The component.
    pub wasm: &'p [u8],
    /// The name of the plugin on this machine, also of a plugin that isn't installed yet.
    pub name: &'p str,
    /// The source of the plugin. Without a source, a key that is trusted for some sources only is
    /// not accepted.
    pub source: Option<&'p str>,
}

/// The signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The operator's name for the key.
    pub name: String,
    /// The name of the key.
    pub key: KeyId,
}

/// A reason why no signature is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    /// There is no signature.
    #[error("it isn't signed")]
    NoSignature,
    /// The file isn't a signature.
    #[error("its signature can't be read: {0}")]
    Malformed(#[source] SignatureError),
    /// The key isn't trusted.
    #[error("it is signed by key {0}, which isn't trusted")]
    UnknownKey(KeyId),
    /// The bytes, the comment or the key don't match the signature.
    #[error(
        "its signature is wrong: key `{0}` didn't sign these bytes. The file was changed, or the \
         signature belongs to another file"
    )]
    WrongSignature(String),
    /// The bytes are signed as another plugin or file.
    #[error("key `{key}` signed it for another purpose: {what}")]
    OtherPlugin {
        /// The key's name.
        key: String,
        /// The difference.
        what: String,
    },
    /// The key may not sign this plugin or file.
    #[error("key `{key}` signed it, but is not trusted for {what}")]
    OutOfScope {
        /// The key's name.
        key: String,
        /// The thing that needs trust in the key.
        what: String,
    },
    /// The key's time is over.
    #[error("key `{key}` signed it, but expired after {not_after}")]
    Expired {
        /// The key's name.
        key: String,
        /// The last day on which the key was trusted.
        not_after: Date,
    },
    /// Other people may have the key.
    #[error("key `{0}` signed it, but is revoked")]
    Revoked(String),
}

impl SignatureRefusal {
    /// Checks whether the reason suggests an attack, such as changed bytes or a stolen key. Such a
    /// component is refused even if no signature is required.
    pub fn is_alarming(&self) -> bool {
        matches!(self, Self::WrongSignature(_) | Self::OtherPlugin { .. } | Self::Revoked(_))
    }

    /// Returns the name of the key in the reason, if there is one.
    pub fn key_name(&self) -> Option<&str> {
        match self {
            Self::NoSignature | Self::Malformed(_) | Self::UnknownKey(_) => None,
            Self::WrongSignature(key)
            | Self::OtherPlugin { key, .. }
            | Self::OutOfScope { key, .. }
            | Self::Expired { key, .. }
            | Self::Revoked(key) => Some(key),
        }
    }

    /// Ranks the reasons. If there are several, the most specific one is reported.
    fn weight(&self) -> u8 {
        match self {
            Self::NoSignature => 0,
            Self::Malformed(_) => 1,
            Self::UnknownKey(_) => 2,
            Self::WrongSignature(_) => 3,
            Self::OtherPlugin { .. } => 4,
            Self::OutOfScope { .. } => 5,
            Self::Expired { .. } => 6,
            Self::Revoked(_) => 7,
        }
    }

    fn or_heavier(self, other: Self) -> Self {
        if other.weight() > self.weight() { other } else { self }
    }
}

/// Returns the present day in UTC.
pub fn today() -> Date {
    jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now()).date()
}

/// Finds the signer of a plugin. One signature of one trusted key is sufficient. `today` is in UTC.
///
/// A signature with minisign's own comment is only about the bytes. This signature is accepted only
/// if the component has a manifest with the plugin's name, because the bytes contain the manifest.
///
/// # Errors
///
/// Returns the most specific reason if no signature is accepted.
pub fn verify_plugin(
    plugin: SignedPlugin<'_>,
    signatures: &[impl AsRef<[u8]>],
    keys: &[TrustedKey],
    today: Date,
) -> Result<Signer, SignatureRefusal> {
    verify(plugin.wasm, signatures, keys, today, |key, statement| {
        check_plugin(plugin, key, statement)
    })
}

/// Checks that the key signed this plugin, and that the key may sign it.
fn check_plugin(
    plugin: SignedPlugin<'_>,
    key: &TrustedKey,
    statement: &Statement,
) -> Result<(), SignatureRefusal> {
    let expected = Statement::of_plugin(plugin.wasm, Some(plugin.name))
        .map_err(|error| signed_otherwise(key, error.to_string()))?;
    match statement {
        Statement::Plugin { .. } if *statement == expected => {}
        Statement::Plugin { name, version, .. } => {
            return Err(signed_otherwise(key, format!("as `{name}` {version}")));
        }
        Statement::Bundle => return Err(signed_otherwise(key, "as a bundle")),
        Statement::Ceiling => return Err(signed_otherwise(key, "as a ceiling")),
        Statement::Plain => {
            let manifest = Manifest::read_if_any(plugin.wasm)
                .map_err(|error| signed_otherwise(key, error.to_string()))?;
            if manifest.is_none() {
                return Err(signed_otherwise(
                    key,
                    "neither its signature nor its manifest names the plugin; sign it with \
                     `toolhold plugin sign`",
                ));
            }
        }
    }
    if key.covers(plugin.name, plugin.source) {
        return Ok(());
    }
    let what = match plugin.source {
        Some(source) => {
            format!("`{}` from {}", plugin.name, toolhold_contract::text::neutral_line(source))
        }
        None => format!("`{}`", plugin.name),
    };
    Err(SignatureRefusal::OutOfScope { key: key.name.clone(), what })
}

fn signed_otherwise(key: &TrustedKey, what: impl Into<String>) -> SignatureRefusal {
    SignatureRefusal::OtherPlugin { key: key.name.clone(), what: what.into() }
}

/// Finds the signer of a bundle's index. `today` is in UTC.
///
/// # Errors
///
/// No signature is accepted, as in [`verify_plugin`].
pub fn verify_bundle(
    index: &[u8],
    signature: &[u8],
    keys: &[TrustedKey],
    today: Date,
) -> Result<Signer, SignatureRefusal> {
    verify(index, &[signature], keys, today, |key, statement| {
        if *statement != Statement::Bundle {
            return Err(signed_otherwise(key, "not as a bundle"));
        }
        if key.bundles {
            return Ok(());
        }
        let what = "bundles (`bundles = true`)".into();
        Err(SignatureRefusal::OutOfScope { key: key.name.clone(), what })
    })
}

/// Finds the key that signed a ceiling. Signatures with minisign's own comment are also accepted.
///
/// # Errors
///
/// Returns the most specific reason if no signature is accepted.
pub fn verify_ceiling(
    bytes: &[u8],
    signatures: &[impl AsRef<[u8]>],
    keys: &[PublicKey],
) -> Result<KeyId, SignatureRefusal> {
    let keys: Vec<TrustedKey> = keys.iter().map(trusted_for_ceilings).collect();
    let signer = verify(bytes, signatures, &keys, today(), |key, statement| match statement {
        Statement::Ceiling | Statement::Plain => Ok(()),
        Statement::Plugin { .. } | Statement::Bundle => {
            Err(signed_otherwise(key, "not as a ceiling"))
        }
    })?;
    Ok(signer.key)
}

/// Makes a trusted key from a key that is only for ceilings.
fn trusted_for_ceilings(key: &PublicKey) -> TrustedKey {
    TrustedKey {
        name: key.id().to_string(),
        key: key.clone(),
        plugins: Vec::new(),
        sources: Vec::new(),
        bundles: false,
        not_after: None,
        revoked: false,
    }
}

/// Finds the first signature that a trusted key made and that `check_statement` accepts.
fn verify(
    bytes: &[u8],
    signatures: &[impl AsRef<[u8]>],
    keys: &[TrustedKey],
    today: Date,
    check_statement: impl Fn(&TrustedKey, &Statement) -> Result<(), SignatureRefusal>,
) -> Result<Signer, SignatureRefusal> {
    // The hash is computed only if a key needs it.
    let mut hash = None;
    let mut worst = SignatureRefusal::NoSignature;
    for file in signatures.iter().take(MAX_SIGNATURES) {
        let signature = match Signature::read(file.as_ref()) {
            Ok(signature) => signature,
            Err(error) => {
                worst = worst.or_heavier(SignatureRefusal::Malformed(error));
                continue;
            }
        };
        let key_id = signature.key_id();
        if !keys.iter().any(|key| key.key.id() == key_id) {
            worst = worst.or_heavier(SignatureRefusal::UnknownKey(key_id));
        }
        for key in keys.iter().filter(|key| key.key.id() == key_id) {
            let hash = hash.get_or_insert_with(|| prehash(bytes));
            match check_signature(&signature, key, keys, hash, today, &check_statement) {
                Ok(()) => return Ok(Signer { name: key.name.clone(), key: key_id }),
                Err(refusal) => worst = worst.or_heavier(refusal),
            }
        }
    }
    Err(worst)
}

/// Checks that the key made the signature, is trusted today, and may sign the item.
fn check_signature(
    signature: &Signature,
    key: &TrustedKey,
    keys: &[TrustedKey],
    hash: &[u8; 64],
    today: Date,
    check_statement: &impl Fn(&TrustedKey, &Statement) -> Result<(), SignatureRefusal>,
) -> Result<(), SignatureRefusal> {
    if !signature.is_of(&key.key, hash) {
        return Err(SignatureRefusal::WrongSignature(key.name.clone()));
    }
    // If a key is in the list twice, one revocation is enough.
    if let Some(revoked) = keys.iter().find(|other| other.revoked && other.key.key == key.key.key) {
        return Err(SignatureRefusal::Revoked(revoked.name.clone()));
    }
    if let Some(not_after) = key.not_after
        && today > not_after
    {
        return Err(SignatureRefusal::Expired { key: key.name.clone(), not_after });
    }
    let statement = Statement::read(signature.comment())
        .map_err(|error| signed_otherwise(key, error.to_string()))?;
    check_statement(key, &statement)
}
