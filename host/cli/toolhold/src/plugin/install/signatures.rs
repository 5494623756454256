//! Applies `[installing]`, the rules for the sources and required signatures of plugins.

use std::path::Path;

use toolhold_core::HostError;
use toolhold_core::config::Config;
use toolhold_registry::{Fetched, Source};
use toolhold_signing::{SignedPlugin, TrustedKey, read_signatures_beside, today, verify_plugin};
use toolhold_terminal::plugin_description::SignedBy;

/// Checks whether plugins from a source are allowed. Call this before downloading anything.
///
/// # Errors
///
/// Returns an error if `sources` of `[installing]` doesn't contain the source.
pub(crate) fn check_source(loaded: &Config, source: &Source) -> Result<(), HostError> {
    let written = source.to_string();
    toolhold_core::check_source(loaded, &written)
        .map_err(|error| HostError::Load { plugin: written, reason: error.to_string() })
}

/// Returns the signer of a downloaded component.
///
/// # Errors
///
/// Returns an error in these cases:
///
/// * A required signature of a trusted key is missing.
/// * A signature of a trusted key is wrong, or the key is revoked. Such a signature is never
///   ignored.
/// * `allowed` of `[installing]` doesn't contain the plugin.
pub(crate) fn check_signatures(
    fetched: &Fetched,
    name: &str,
    digest: &str,
    loaded: &Config,
) -> Result<SignedBy, HostError> {
    let source = fetched.resolved.to_string();
    let plugin = SignedPlugin { wasm: &fetched.bytes, name, source: Some(&source) };
    toolhold_core::check_signed(loaded, plugin, digest, &fetched.signatures)
        .map(SignedBy::from)
        .map_err(|error| HostError::Load { plugin: name.to_owned(), reason: error.to_string() })
}

/// Returns the signer of the component in a file, by the signature next to the file. Returns `None`
/// if there is no signature. Blocks.
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
    Some(verified.map(|signer| signer.name).into())
}

/// Returns the trusted keys of the configuration.
pub(crate) fn keys(loaded: &Config) -> Vec<TrustedKey> {
    loaded.values.installing.keys.iter().map(toolhold_core::config::InstallKey::trusted).collect()
}
