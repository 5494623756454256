//! Decides by `[installing]` whether a component may be loaded. Each load checks the bytes of the
//! component, because the user can edit the lock file.

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

/// The reason why `[installing]` prevents a component from being loaded.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// `installing.sources` doesn't contain the component's source.
    #[error("the plugin's source isn't in `{SOURCES}` ({place}): {from}{remedy}")]
    Source {
        /// Where the rule was written.
        place: Source,
        /// The component's source, neutralised.
        from: String,
        /// The remedy.
        remedy: Remedy,
    },
    /// The component's file wasn't read.
    #[error("the component can't be verified, because the file wasn't read")]
    Unread,
    /// The signatures of the component can't be read.
    #[error("the signature can't be read: {0}")]
    Signatures(#[from] SigningError),
    /// A required signature is missing or invalid.
    #[error("{refusal}{}{}{remedy}", describe_key(.key.as_ref()), describe_rule(.rule.as_ref()))]
    Signature {
        /// The fault of the signatures.
        refusal: SignatureRefusal,
        /// Where the key of the signature is configured.
        key: Option<Source>,
        /// Where the rule was written that requires a signature.
        rule: Option<Source>,
        /// The remedy.
        remedy: Remedy,
    },
    /// `installing.allowed` doesn't contain the component.
    #[error(
        "`{ALLOWED}` ({place}) has no entry for this plugin: the digest is sha256:{digest}, and \
         {}{remedy}",
        describe_signer(.signer)
    )]
    NotAllowed {
        /// Where the rule was written.
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
        Ok(key) => format!("the signature is from key `{key}`"),
        Err(refusal) => refusal.to_string(),
    }
}

/// The remedy for a rule. Only the rule's owner can change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The rule is in the ceiling at this path. Ask its administrator.
    Ask(String),
    /// The rule is in the user's configuration. The text says what to change.
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

pub(super) fn is_restricted(config: &Config) -> bool {
    !config.values.installing.allows_everything()
}

/// Refuses a component that `[installing]` doesn't allow. The signatures are next to `file`.
/// `source` is the source of the installation, or the path of the file. Blocks.
///
/// # Errors
///
/// [`HostError::Load`] with the rule and the remedy if the component isn't allowed.
pub(super) fn check(
    config: &Config,
    candidate: &Candidate,
    source: &str,
    file: &Path,
) -> Result<(), HostError> {
    let plugin = candidate.info().manifest.name.clone();
    check_candidate(config, candidate, source, file)
        .map_err(|error| HostError::Load { plugin, reason: error.to_string() })
}

fn check_candidate(
    config: &Config,
    candidate: &Candidate,
    source: &str,
    file: &Path,
) -> Result<(), AdmissionError> {
    let info = candidate.info();
    check_source(config, source)?;
    let wasm = candidate.bytes().ok_or(AdmissionError::Unread)?;
    let signatures = read_signatures_beside(file)?;
    let plugin = SignedPlugin { wasm, name: &info.manifest.name, source: Some(source) };
    // The signer doesn't matter here, because every signer that the check accepts may be loaded.
    let _signer = check_signed(config, plugin, &info.digest, &signatures)?;
    Ok(())
}

/// Checks whether plugins may come from a source.
///
/// # Errors
///
/// Returns an error if `installing.sources` doesn't allow the source.
pub fn check_source(config: &Config, source: &str) -> Result<(), AdmissionError> {
    let is_allowed =
        config.values.installing.sources.iter().any(|pattern| pattern.0.matches(source));
    if is_allowed {
        return Ok(());
    }
    Err(AdmissionError::Source {
        place: config.source(SOURCES),
        from: neutral_line(source),
        remedy: Remedy::new(config, SOURCES, "add the source to that list"),
    })
}

/// Checks whether `[installing]` allows a component. Returns the name of the trusted key that
/// signed the component, or the reason why no trusted key signed it.
///
/// # Errors
///
/// Returns an error with the rule and the remedy if the component isn't allowed.
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
        Ok(signer) => Ok(signer.name),
        Err(refusal) if installing.require_signature || refusal.is_alarming() => {
            return Err(signature_error(config, refusal));
        }
        Err(refusal) => Err(refusal),
    };

    let has_entry = installing.allowed.iter().any(|entry| {
        if !entry.matches(plugin.name, digest) {
            return false;
        }
        // An entry with a key only allows components that this key has signed.
        let Some(key) = &entry.key else { return true };
        let entry_keys: Vec<TrustedKey> =
            keys.iter().filter(|known| known.key == key.0).cloned().collect();
        verify_plugin(plugin, signatures, &entry_keys, today).is_ok()
    });
    if has_entry || installing.allows_every_plugin() {
        return Ok(signer);
    }
    let advice = "add an entry with this digest or with its signer's key";
    Err(AdmissionError::NotAllowed {
        place: config.source(ALLOWED),
        digest: digest.to_owned(),
        signer,
        remedy: Remedy::new(config, ALLOWED, advice),
    })
}

/// Creates the error for a missing or invalid signature.
fn signature_error(config: &Config, refusal: SignatureRefusal) -> AdmissionError {
    let installing = &config.values.installing;
    let index = match refusal.key_name() {
        Some(name) => installing.keys.iter().position(|key| key.name == name),
        None => None,
    };
    let key = index.map(|index| format!("installing.keys.{index}"));
    // A signature that suggests an attack is refused even if no signature is required, so the key
    // is the deciding rule.
    let deciding_rule = match &key {
        Some(key) if refusal.is_alarming() => key,
        _ => REQUIRE_SIGNATURE,
    };
    let advice = "get the plugin from its author, signed by a key that you trust";
    let remedy = Remedy::new(config, deciding_rule, advice);
    let rule =
        if installing.require_signature { Some(config.source(REQUIRE_SIGNATURE)) } else { None };
    AdmissionError::Signature { remedy, refusal, key: key.map(|key| config.source(&key)), rule }
}
