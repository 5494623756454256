//! Decides whether a trusted key signed a plugin, a bundle or a ceiling.

use jiff::civil::Date;
use toolhold_component::Manifest;

use crate::files::{SIGNATURE_LINES, split_ceiling};
use crate::public_key::{KeyId, PublicKey};
use crate::signature::{MAX_SIGNATURES, Signature, SignatureError, prehash};
use crate::statement::Statement;
use crate::trusted_key::TrustedKey;

/// A plugin whose signatures are checked.
#[derive(Clone, Copy, Debug)]
pub struct SignedPlugin<'p> {
    /// The component.
    pub wasm: &'p [u8],
    /// The name of the plugin on this machine.
    pub name: &'p str,
    /// The source of the plugin. If the source is `None`, a key that is trusted only for some
    /// sources isn't accepted.
    pub source: Option<&'p str>,
}

/// The key that made an accepted signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The operator's name for the key.
    pub name: String,
    /// The ID of the key.
    pub key: KeyId,
}

/// The reason why no signature is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    /// There is no signature.
    #[error("the signature is missing")]
    NoSignature,
    /// The signature can't be read.
    #[error("the signature can't be read: {0}")]
    Malformed(#[source] SignatureError),
    /// The key isn't trusted. The value is its ID.
    #[error("the signature is from key {0}, which isn't trusted")]
    UnknownKey(KeyId),
    /// The signature doesn't match the bytes, the comment or the key.
    #[error(
        "the signature is wrong: key `{0}` didn't sign these bytes. The file was changed, or the \
         signature belongs to another file"
    )]
    WrongSignature(String),
    /// The bytes are signed as another plugin or file.
    #[error("the signature of key `{key}` has another purpose: {what}")]
    OtherPlugin {
        /// The key's name.
        key: String,
        /// The difference.
        what: String,
    },
    /// The key may not sign this plugin or file.
    #[error("the signature is from key `{key}`, which is not trusted for {what}")]
    OutOfScope {
        /// The key's name.
        key: String,
        /// The plugin or file for which the key isn't trusted.
        what: String,
    },
    /// The key has expired.
    #[error("the signature is from key `{key}`, which expired after {not_after}")]
    Expired {
        /// The key's name.
        key: String,
        /// The last day on which the key was trusted.
        not_after: Date,
    },
    /// The key is revoked.
    #[error("the signature is from key `{0}`, which is revoked")]
    Revoked(String),
}

impl SignatureRefusal {
    /// Checks whether the reason suggests an attack, such as changed bytes or a stolen key. Such a
    /// plugin is refused even if no signature is required.
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

    /// Returns how specific the reason is. The most specific of several reasons is reported.
    fn specificity(&self) -> u8 {
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

    fn or_more_specific(self, other: Self) -> Self {
        if other.specificity() > self.specificity() { other } else { self }
    }
}

/// Returns the current day in UTC.
pub fn today() -> Date {
    jiff::tz::TimeZone::UTC.to_datetime(jiff::Timestamp::now()).date()
}

/// Finds the signer of a plugin. One signature of one trusted key is sufficient. `today` is in UTC.
///
/// A signature that minisign made ([`Statement::Plain`]) doesn't name the plugin. It is accepted if
/// the component has a manifest with the plugin's name.
///
/// # Errors
///
/// Fails with the most specific reason if no signature is accepted.
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

/// Checks that a signature with this statement is valid for the plugin, and that the key is trusted
/// for the plugin.
fn check_plugin(
    plugin: SignedPlugin<'_>,
    key: &TrustedKey,
    statement: &Statement,
) -> Result<(), SignatureRefusal> {
    check_statement_of_plugin(plugin, key, statement)?;
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

fn check_statement_of_plugin(
    plugin: SignedPlugin<'_>,
    key: &TrustedKey,
    statement: &Statement,
) -> Result<(), SignatureRefusal> {
    let expected = Statement::of_plugin(plugin.wasm, Some(plugin.name))
        .map_err(|error| signed_for_other(key, error.to_string()))?;
    match statement {
        Statement::Plugin { .. } if *statement == expected => Ok(()),
        Statement::Plugin { name, version, .. } => {
            Err(signed_for_other(key, format!("for `{name}` {version}")))
        }
        Statement::Bundle => Err(signed_for_other(key, "for a bundle")),
        Statement::Ceiling => Err(signed_for_other(key, "for a ceiling")),
        Statement::Plain => {
            let manifest = Manifest::read_if_any(plugin.wasm)
                .map_err(|error| signed_for_other(key, error.to_string()))?;
            if manifest.is_none() {
                return Err(signed_for_other(
                    key,
                    "neither the signature nor the manifest names the plugin; sign the component \
                     with `toolhold plugin sign`",
                ));
            }
            Ok(())
        }
    }
}

fn signed_for_other(key: &TrustedKey, what: impl Into<String>) -> SignatureRefusal {
    SignatureRefusal::OtherPlugin { key: key.name.clone(), what: what.into() }
}

/// Finds the signer of a bundle's index. `today` is in UTC.
///
/// # Errors
///
/// Returns the most specific reason if no signature is accepted.
pub fn verify_bundle(
    index: &[u8],
    signature: &[u8],
    keys: &[TrustedKey],
    today: Date,
) -> Result<Signer, SignatureRefusal> {
    verify(index, &[signature], keys, today, |key, statement| {
        if *statement != Statement::Bundle {
            return Err(signed_for_other(key, "not for a bundle"));
        }
        if key.bundles {
            return Ok(());
        }
        let what = "bundles (`bundles = true`)".into();
        Err(SignatureRefusal::OutOfScope { key: key.name.clone(), what })
    })
}

/// Finds the key that signed the file of a ceiling. Returns the key and the signed text, with empty
/// lines in place of the signature, so that its lines have their numbers in the file. Accepts
/// [`Statement::Plain`] too, which minisign makes.
///
/// # Errors
///
/// Fails with the most specific reason if no signature is accepted.
pub fn verify_ceiling(file: &str, keys: &[PublicKey]) -> Result<(KeyId, String), SignatureRefusal> {
    let trusted: Vec<TrustedKey> = keys.iter().map(trusted_for_ceilings).collect();
    let (signature, text) = split_ceiling(file);
    let signatures = signature.as_slice();
    let signer =
        verify(text.as_bytes(), signatures, &trusted, today(), |key, statement| match statement {
            Statement::Ceiling | Statement::Plain => Ok(()),
            Statement::Plugin { .. } | Statement::Bundle => {
                Err(signed_for_other(key, "not for a ceiling"))
            }
        })?;
    Ok((signer.key, format!("{}{text}", "\n".repeat(SIGNATURE_LINES))))
}

/// Makes a trusted key that never expires. Its plugins, sources and bundles have no effect on a
/// ceiling.
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

/// Returns the signer of the first accepted signature. A trusted key must have made the signature,
/// and `check_statement` must accept its statement. Otherwise, returns the most specific reason.
fn verify(
    bytes: &[u8],
    signatures: &[impl AsRef<[u8]>],
    keys: &[TrustedKey],
    today: Date,
    check_statement: impl Fn(&TrustedKey, &Statement) -> Result<(), SignatureRefusal>,
) -> Result<Signer, SignatureRefusal> {
    // The hash is computed only if the ID of a key matches.
    let mut computed_hash = None;
    let mut most_specific = SignatureRefusal::NoSignature;
    for signature_file in signatures.iter().take(MAX_SIGNATURES) {
        let signature = match Signature::read(signature_file.as_ref()) {
            Ok(signature) => signature,
            Err(error) => {
                most_specific = most_specific.or_more_specific(SignatureRefusal::Malformed(error));
                continue;
            }
        };
        let key_id = signature.key_id();
        let is_key_known = keys.iter().any(|key| key.key.id() == key_id);
        if !is_key_known {
            most_specific = most_specific.or_more_specific(SignatureRefusal::UnknownKey(key_id));
        }
        // Different keys may have the same ID.
        for key in keys.iter().filter(|key| key.key.id() == key_id) {
            let hash = computed_hash.get_or_insert_with(|| prehash(bytes));
            match check_signature(&signature, key, keys, hash, today, &check_statement) {
                Ok(()) => return Ok(Signer { name: key.name.clone(), key: key_id }),
                Err(refusal) => most_specific = most_specific.or_more_specific(refusal),
            }
        }
    }
    Err(most_specific)
}

/// Checks the signature, the state of the key and the statement, in this order.
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
    // The list may contain a key under several names. A single revoked entry revokes the key.
    let mut same_keys = keys.iter().filter(|other| other.key.key == key.key.key);
    if let Some(revoked) = same_keys.find(|other| other.revoked) {
        return Err(SignatureRefusal::Revoked(revoked.name.clone()));
    }
    if let Some(not_after) = key.not_after
        && today > not_after
    {
        return Err(SignatureRefusal::Expired { key: key.name.clone(), not_after });
    }
    let statement = Statement::read(signature.comment())
        .map_err(|error| signed_for_other(key, error.to_string()))?;
    check_statement(key, &statement)
}
