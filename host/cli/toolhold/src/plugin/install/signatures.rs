//! Applies `[installing]`: the allowed sources and the required signatures.

use std::path::Path;

use toolhold_core::HostError;
use toolhold_core::config::Config;
use toolhold_registry::{Fetched, Source};
use toolhold_signing::{
    SignatureRefusal, SignedPlugin, TrustedKey, read_signatures_beside, today, verify_plugin,
};
use toolhold_terminal::plugin_description::SignedBy;

/// Checks that `sources` of `[installing]` allows a source, before a download.
pub(crate) fn check_source(loaded: &Config, source: &Source) -> Result<(), HostError> {
    let written = source.to_string();
    toolhold_core::check_source(loaded, &written)
        .map_err(|error| HostError::Load { plugin: written, reason: error.to_string() })
}

/// Returns the signer of a download.
///
/// # Errors
///
/// Returns an error for:
///
/// - a component without a required signature
/// - a plugin that `allowed` of `[installing]` doesn't contain
/// - a wrong signature of a trusted key
/// - a signature of a revoked key
pub(crate) fn check_signatures(
    fetched: &Fetched,
    name: &str,
    digest: &str,
    loaded: &Config,
) -> Result<SignedBy, HostError> {
    let source = fetched.resolved.to_string();
    let plugin = SignedPlugin { wasm: &fetched.bytes, name, source: Some(&source) };
    toolhold_core::check_signed(loaded, plugin, digest, &fetched.signatures)
        .map(|signer| describe_signer(signer, loaded))
        .map_err(|error| HostError::Load { plugin: name.to_owned(), reason: error.to_string() })
}

/// Verifies the signatures next to the component `file`. Returns the signer, or `None` if there are
/// no signatures. Blocks.
pub(crate) fn file_signer(file: &Path, name: &str, loaded: &Config) -> Option<SignedBy> {
    let signatures = match read_signatures_beside(file) {
        Ok(signatures) if signatures.is_empty() => return None,
        Ok(signatures) => signatures,
        Err(error) => return Some(SignedBy::Nobody(error.to_string())),
    };
    let wasm = match toolhold_signing::read_component(file) {
        Ok(wasm) => wasm,
        Err(error) => return Some(SignedBy::Nobody(error.to_string())),
    };
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let source = path.display().to_string();
    let plugin = SignedPlugin { wasm: &wasm, name, source: Some(&source) };
    let verified = verify_plugin(plugin, &signatures, &keys(loaded), today());
    Some(describe_signer(verified.map(|signer| signer.name), loaded))
}

/// Describes the signer, and says how to trust an unknown key.
fn describe_signer(signer: Result<String, SignatureRefusal>, loaded: &Config) -> SignedBy {
    match signer {
        Err(refusal @ SignatureRefusal::UnknownKey(_)) => SignedBy::Nobody(format!(
            "{refusal}. To trust the key, add it to [[installing.keys]] in {}; `toolhold plugin \
             key show` of the author prints it",
            loaded.own_file()
        )),
        signer => signer.into(),
    }
}

pub(crate) fn keys(loaded: &Config) -> Vec<TrustedKey> {
    loaded.values.installing.keys.iter().map(toolhold_core::config::InstallKey::trusted).collect()
}
