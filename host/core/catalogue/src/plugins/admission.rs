//! Decides by `[installing]` whether a component may be loaded at all. Decided on the bytes that
//! are loaded, each time, since what was recorded when a plugin was installed is the user's own
//! file.

use std::path::Path;

use toolhold_config::{AllowedPlugin, Config, InstallKey};
use toolhold_contract::HostError;
use toolhold_contract::text::neutral_line;
use toolhold_engine::Candidate;
use toolhold_policy::OriginKind;
use toolhold_signing::{
    SignatureRefusal, SignedPlugin, TrustedKey, read_signatures_beside, today, verify_plugin,
};

/// Whether `[installing]` may keep a component from being loaded.
pub(super) fn is_restricted(config: &Config) -> bool {
    !config.values.installing.allows_everything()
}

/// Refuses a component that `[installing]` keeps from being loaded. Its signatures lie beside its
/// file. `source`: where it was installed from, or its file. Blocks.
///
/// # Errors
///
/// [`HostError::Load`] with the rule, its place, and what to do.
pub(super) fn check(
    config: &Config,
    candidate: &Candidate,
    source: &str,
    file: &Path,
) -> Result<(), HostError> {
    let info = candidate.info();
    let name = &info.manifest.name;
    let checked = check_source(config, source).and_then(|()| {
        let wasm = candidate.bytes().ok_or("its file wasn't read, so it can't be verified")?;
        let plugin = SignedPlugin { wasm, name, source: Some(source) };
        match read_signatures_beside(file) {
            Ok(signatures) => check_signed(config, plugin, &info.digest, &signatures).map(drop),
            Err(error) => Err(format!("its signature can't be read: {error}")),
        }
    });
    checked.map_err(|reason| HostError::Load { plugin: name.clone(), reason })
}

/// Whether plugins may come from a source.
///
/// # Errors
///
/// `installing.sources` doesn't have it.
pub fn check_source(config: &Config, source: &str) -> Result<(), String> {
    let key = "installing.sources";
    if config.values.installing.sources.iter().any(|pattern| pattern.0.matches(source)) {
        return Ok(());
    }
    Err(format!(
        "its source isn't in `{key}` ({}): {}{}",
        config.source(key),
        neutral_line(source),
        remedy(config, key, "add the source there")
    ))
}

/// Who signed a component, by the name of a trusted key or with the reason why there is none, if
/// `[installing]` lets it be loaded.
///
/// # Errors
///
/// The rule that refuses it, its place, and what to do.
pub fn check_signed(
    config: &Config,
    plugin: SignedPlugin<'_>,
    digest: &str,
    signatures: &[Vec<u8>],
) -> Result<Result<String, String>, String> {
    let installing = &config.values.installing;
    let keys: Vec<TrustedKey> = installing.keys.iter().map(InstallKey::trusted).collect();
    let today = today();
    let signer = verify_plugin(plugin, signatures, &keys, today);
    if let Err(refusal) = &signer
        && (installing.require_signature || refusal.is_alarming())
    {
        return Err(refused(config, refusal));
    }
    let is_allowed = |one: &AllowedPlugin| {
        one.matches(plugin.name, digest)
            && one.key.as_ref().is_none_or(|key| {
                let keys: Vec<TrustedKey> =
                    keys.iter().filter(|known| known.key == key.0).cloned().collect();
                verify_plugin(plugin, signatures, &keys, today).is_ok()
            })
    };
    if !installing.allows_every_plugin() && !installing.allowed.iter().any(is_allowed) {
        let key = "installing.allowed";
        let signed = match &signer {
            Ok(signer) => format!("it is signed by key `{}`", signer.name),
            Err(refusal) => refusal.to_string(),
        };
        return Err(format!(
            "`{key}` ({}) doesn't have it: its digest is sha256:{digest}, and {signed}{}",
            config.source(key),
            remedy(config, key, "add an entry with this digest or with its signer's key")
        ));
    }
    Ok(signer.map(|signer| signer.name).map_err(|refusal| refusal.to_string()))
}

/// The refusal, with the line of the key that it is about, and that of the rule.
fn refused(config: &Config, refusal: &SignatureRefusal) -> String {
    let installing = &config.values.installing;
    let mut reason = refusal.to_string();
    let index =
        refusal.key_name().and_then(|name| installing.keys.iter().position(|key| key.name == name));
    let key = index.map(|index| format!("installing.keys.{index}"));
    if let Some(key) = &key {
        reason += &format!(" (`installing.keys`, {})", config.source(key));
    }
    let rule = "installing.require_signature";
    if installing.require_signature {
        reason += &format!("; `{rule}` is true ({})", config.source(rule));
    }
    let decisive = match (&key, refusal.is_alarming()) {
        (Some(key), true) => key,
        _ => rule,
    };
    reason + &remedy(config, decisive, "get it from its author, signed by a key that you trust")
}

/// What to do about a rule: whoever it belongs to can change it.
fn remedy(config: &Config, key: &str, own: &str) -> String {
    match config.origin(key).kind {
        OriginKind::Ceiling(file) => {
            format!("; your configuration can't change this: ask whoever manages {file}")
        }
        _ => format!("; {own}"),
    }
}
