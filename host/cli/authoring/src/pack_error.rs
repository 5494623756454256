//! The errors of packing.

use thiserror::Error;
use toolhold_component::ManifestError;
use toolhold_contract::text::{cut, neutral_line};
use wasmparser::BinaryReaderError;

use crate::files::MANIFEST;

/// The reason why a component or its manifest can't be packed.
#[derive(Debug, Error)]
pub enum PackError {
    #[error("the file is not a WebAssembly component")]
    NotComponent,
    #[error("the component is damaged: {0}")]
    Damaged(BinaryReaderError),
    #[error("the component is damaged: a custom section has no header")]
    NoHeader,
    #[error("the import {0} has an unknown form")]
    UnknownImport(String),
    #[error(
        "the file is a core module without a description of its interfaces, and doesn't export the \
         interfaces of the contract. Compile the module with bindings from `toolhold plugin wit`, \
         or for a target that makes components (Rust: wasm32-wasip2)"
    )]
    Undescribed,
    #[error("the module can't be converted to a component: {0}")]
    NotEncodable(String),
    #[error("the manifest is too long")]
    ManifestTooLong,
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(
        "{}, so no host loads it. {}",
        describe_unasked(import, capability),
        how_to_ask(capability)
    )]
    Unasked { import: String, capability: &'static str },
}

pub(crate) fn describe_unasked(import: &str, capability: &str) -> String {
    let shown = neutral_line(cut(import, 256));
    format!("the component imports `{shown}`, but the manifest doesn't ask for `{capability}`")
}

/// Returns the lines that request a capability in a manifest.
pub(crate) fn how_to_ask(capability: &str) -> String {
    format!(
        "Add to {MANIFEST} (in Rust: `{capability} = \"why it is needed\"` to the `capabilities` of `plugin!`):\n  [[capabilities]]\n  name = \"{capability}\"\n  reason = \"why it is needed\""
    )
}
