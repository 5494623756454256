//! Decides by `[installing]` whether a component may be loaded. The decision uses the bytes that
//! are loaded, and is made at every load. The user can edit the file with the data that was stored
//! at installation, so that file isn't proof.

use std::fmt;
use std::path::Path;

use toolhold_config::{Config, InstallKey, Source};
use toolhold_contract::HostError;
use toolhold_contract::text::neutral_line;
use toolhold_engine::Candidate;
use toolhold_policy::OriginKind;
use toolhold_signing::{
    SignatureRefusal, SignedPlugin, SigningError, TrustedKey, read_signatures_beside, today,
    verify_plugin,
};

const SOURCES: &str = "installing.sources";
const ALLOWED: &str = "installing.allowed";
const REQUIRE_SIGNATURE: &str = "installing.require_signature";

/// The reason why `[installing]` prevents a component from being loaded: the rule, its place, and
/// the remedy.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// Plugins may not come from the component's source.
    #[error("its source isn't in `{SOURCES}` ({place}): {from}{remedy}")]
    Source {
        /// Where the rule is.
        place: Source,
        /// The plugin's source, neutralised.
        from: String,
        /// The remedy.
        remedy: Remedy,
    },
    /// The component's file wasn't read.
    #[error("its file wasn't read, so it can't be verified")]
    Unread,
    /// The signatures of the component can't be read.
    #[error("its signature can't be read: {0}")]
    Signatures(#[from] SigningError),
    /// The component doesn't have the signatures that it needs.
    #[error("{refusal}{}{}{remedy}", describe_key(.key.as_ref()), describe_rule(.rule.as_ref()))]
    Signature {
        /// The fault of the signatures.
        refusal: SignatureRefusal,
        /// Where the key is that the refusal is about.
        key: Option<Source>,
        /// Where the rule is that a signature is required.
        rule: Option<Source>,
        /// The remedy.
        remedy: Remedy,
    },
    /// The plugin isn't among the allowed plugins.
    #[error(
        "`{ALLOWED}` ({place}) has no entry for it: its digest is sha256:{digest}, and {}{remedy}",
        describe_signer(.signer)
    )]
    NotAllowed {
        /// Where the rule is.
        place: Source,
        /// The component's digest.
        digest: String,
        /// The signer, or the reason why there is none.
        signer: Result<String, SignatureRefusal>,
        /// The remedy.
        remedy: Remedy,
    },
}

fn describe_key(place: Option<&Source>) -> String {
    place.map_or_else(String::new, |place| format!(" (`installing.keys`, {place})"))
}

fn describe_rule(place: Option<&Source>) -> String {
    place.map_or_else(String::new, |place| format!("; `{REQUIRE_SIGNATURE}` is true ({place})"))
}

fn describe_signer(signer: &Result<String, SignatureRefusal>) -> String {
    match signer {
        Ok(key) => format!("it is signed by key `{key}`"),
        Err(refusal) => refusal.to_string(),
    }
}

/// The remedy for a rule, which only the rule's owner can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The rule is in a ceiling with this path.
    Ask(String),
    /// The rule is the user's.
    Change(&'static str),
}

impl Remedy {
    fn new(config: &Config, key: &str, own: &'static str) -> Self {
        match config.origin(key).kind {
            OriginKind::Ceiling(file) => Self::Ask(file),
            _ => Self::Change(own),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(file) => {
                write!(f, "; your configuration can't change this: ask whoever manages {file}")
            }
            Self::Change(what) => write!(f, "; {what}"),
        }
    }
}

/// Checks whether `[installing]` may prevent a component from being loaded.
pub(super) fn is_restricted(config: &Config) -> bool {
    !config.values.installing.allows_everything()
}

/// Refuses a component that `[installing]` doesn't allow. The component's signatures are next to
/// its file. `source` is the source from which it was installed, or its file. Blocks.
///
/// # Errors
///
/// [`HostError::Load`] with the rule, its place, and the remedy, if the component isn't allowed.
pub(super) fn check(
    config: &Config,
    candidate: &Candidate,
    source: &str,
    file: &Path,
) -> Result<(), HostError> {
    let info = candidate.info();
    let name = &info.manifest.name;
    let result = check_source(config, source).and_then(|()| {
        let wasm = candidate.bytes().ok_or(AdmissionError::Unread)?;
        let signatures = read_signatures_beside(file)?;
        let plugin = SignedPlugin { wasm, name, source: Some(source) };
        check_signed(config, plugin, &info.digest, &signatures)
    });
    match result {
        Ok(_) => Ok(()),
        Err(error) => Err(HostError::Load { plugin: name.clone(), reason: error.to_string() }),
    }
}

/// Checks whether plugins may come from a source.
///
/// # Errors
///
/// Returns an error if `installing.sources` doesn't allow the source.
pub fn check_source(config: &Config, source: &str) -> Result<(), AdmissionError> {
    if config.values.installing.sources.iter().any(|pattern| pattern.0.matches(source)) {
        return Ok(());
    }
    Err(AdmissionError::Source {
        place: config.source(SOURCES),
        from: neutral_line(source),
        remedy: Remedy::new(config, SOURCES, "add the source there"),
    })
}

/// Returns the signer of a component that `[installing]` allows: the name of a trusted key, or the
/// reason why there is no signer.
///
/// # Errors
///
/// Returns the rule that denies the component, its place, and the remedy.
pub fn check_signed(
    config: &Config,
    plugin: SignedPlugin<'_>,
    digest: &str,
    signatures: &[Vec<u8>],
) -> Result<Result<String, SignatureRefusal>, AdmissionError> {
    let installing = &config.values.installing;
    let keys: Vec<TrustedKey> = installing.keys.iter().map(InstallKey::trusted).collect();
    let today = today();
    let signer = match verify_plugin(plugin, signatures, &keys, today) {
        Err(refusal) if installing.require_signature || refusal.is_alarming() => {
            return Err(refused(config, refusal));
        }
        verified => verified.map(|signer| signer.name),
    };
    let has_entry = installing.allowed.iter().any(|entry| {
        if !entry.matches(plugin.name, digest) {
            return false;
        }
        let Some(key) = &entry.key else { return true };
        let entry_keys: Vec<TrustedKey> =
            keys.iter().filter(|known| known.key == key.0).cloned().collect();
        verify_plugin(plugin, signatures, &entry_keys, today).is_ok()
    });
    if !has_entry && !installing.allows_every_plugin() {
        let own = "add an entry with this digest or with its signer's key";
        return Err(AdmissionError::NotAllowed {
            place: config.source(ALLOWED),
            digest: digest.to_owned(),
            signer,
            remedy: Remedy::new(config, ALLOWED, own),
        });
    }
    Ok(signer)
}

/// Returns the error for a refusal, with the place of the key and the place of the rule.
fn refused(config: &Config, refusal: SignatureRefusal) -> AdmissionError {
    let installing = &config.values.installing;
    let index = match refusal.key_name() {
        Some(name) => installing.keys.iter().position(|key| key.name == name),
        None => None,
    };
    let key = index.map(|index| format!("installing.keys.{index}"));
    // The remedy is about the rule that decides. If the refusal is a warning sign, that is the rule
    // about the key.
    let decisive = match &key {
        Some(key) if refusal.is_alarming() => key,
        _ => REQUIRE_SIGNATURE,
    };
    let own = "get it from its author, signed by a key that you trust";
    AdmissionError::Signature {
        remedy: Remedy::new(config, decisive, own),
        refusal,
        key: key.map(|key| config.source(&key)),
        rule: installing.require_signature.then(|| config.source(REQUIRE_SIGNATURE)),
    }
}
