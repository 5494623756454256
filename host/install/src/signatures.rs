//! What the configuration says about where plugins may come from, and who has to have signed them.

use std::path::Path;

use berth_core::HostError;
use berth_core::config::Loaded;
use berth_registry::{Fetched, Source};
use berth_signing::{
    SignatureRefusal, SignedPlugin, TrustedKey, read_signature_beside, today, verify_plugin,
};

/// Who signed a component: the name of a trusted key, or the reason why there is none.
pub type SignedBy = Result<String, String>;

/// Whether plugins may come from a source. Call it before anything is fetched.
///
/// # Errors
///
/// `sources` of `[installing]` doesn't have it.
pub fn check_source(loaded: &Loaded, source: &Source) -> Result<(), HostError> {
    let written = source.to_string();
    let sources = &loaded.config.installing.sources;
    if sources.iter().any(|pattern| pattern.0.matches(&written)) {
        return Ok(());
    }
    let key = "installing.sources";
    Err(HostError::Load {
        plugin: written,
        reason: format!(
            "its source isn't in `{key}` ({}); nothing is fetched from there",
            loaded.source(key)
        ),
    })
}

/// Who signed what was fetched.
///
/// # Errors
///
/// A trusted key has to have signed it, and none has; or a signature of a trusted key is wrong or
/// revoked, which is never passed over.
pub(crate) fn check_signatures(
    fetched: &Fetched,
    name: &str,
    loaded: &Loaded,
) -> Result<SignedBy, HostError> {
    let source = fetched.resolved.to_string();
    let plugin = SignedPlugin { wasm: &fetched.bytes, name, source: Some(&source) };
    let refusal = match verify_plugin(plugin, &fetched.signatures, &keys(loaded), today()) {
        Ok(signer) => return Ok(Ok(signer.name)),
        Err(refusal) => refusal,
    };
    let key = "installing.require_signature";
    let reason = if loaded.config.installing.require_signature {
        format!("{refusal}; `{key}` is true ({})", loaded.source(key))
    } else if is_alarming(&refusal) {
        format!("{refusal}; nothing of it is installed")
    } else {
        return Ok(Err(refusal.to_string()));
    };
    Err(HostError::Load { plugin: name.to_owned(), reason })
}

/// The signatures of what was fetched, one that counts first.
pub(crate) fn in_order(fetched: &Fetched, name: &str, loaded: &Loaded) -> Vec<Vec<u8>> {
    let source = fetched.resolved.to_string();
    let plugin = SignedPlugin { wasm: &fetched.bytes, name, source: Some(&source) };
    let keys = keys(loaded);
    let mut signatures = fetched.signatures.clone();
    signatures.sort_by_cached_key(|one| verify_plugin(plugin, &[one], &keys, today()).is_err());
    signatures
}

/// Who signed the component in a file, by the signature beside it. `None`: there is no signature.
/// Blocks.
pub fn file_signer(file: &Path, name: &str, loaded: &Loaded) -> Option<SignedBy> {
    let signature = match read_signature_beside(file) {
        Ok(signature) => signature?,
        Err(error) => return Some(Err(error.to_string())),
    };
    let wasm = berth_signing::read_component(file);
    Some(wasm.map_err(|error| error.to_string()).and_then(|wasm| {
        let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let source = path.display().to_string();
        let plugin = SignedPlugin { wasm: &wasm, name, source: Some(&source) };
        let verified = verify_plugin(plugin, &[signature], &keys(loaded), today());
        verified.map(|signer| signer.name).map_err(|refusal| refusal.to_string())
    }))
}

/// The keys of the configuration.
pub(crate) fn keys(loaded: &Loaded) -> Vec<TrustedKey> {
    loaded.config.installing.keys.iter().map(berth_core::config::InstallKey::trusted).collect()
}

/// Whether somebody may have changed something, or has a key that was taken.
fn is_alarming(refusal: &SignatureRefusal) -> bool {
    matches!(
        refusal,
        SignatureRefusal::WrongSignature(_)
            | SignatureRefusal::OtherPlugin { .. }
            | SignatureRefusal::Revoked(_)
    )
}
