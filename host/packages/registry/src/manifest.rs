//! Parses OCI manifests and indexes, and checks that one describes a plugin.

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::reference::{ReferenceError, check_digest};

/// The media types of a plugin in a registry, as the ecosystem uses them.
pub mod media_types {
    /// Of a manifest.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// Of an index, which lists manifests.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// Of the description of a component.
    pub const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";
    /// Of an empty description.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
    /// Of a component.
    pub const WASM: &str = "application/wasm";
    /// Of a signature: the type of the artifact and of its only layer.
    pub const SIGNATURE: &str = "application/vnd.toolhold.minisig";
}

/// The types of lists of manifests.
const LISTS: [&str; 2] =
    [media_types::INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"];

/// A part of an artifact, as a manifest describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) artifact_type: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    schema_version: u64,
    #[serde(default)]
    pub(crate) artifact_type: Option<String>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    #[serde(default)]
    pub(crate) subject: Option<Descriptor>,
}

/// A reason why a manifest isn't that of a plugin, or of any artifact.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArtifactError {
    #[error("it isn't a JSON object")]
    NotAnObject,
    #[error(
        "it is an index of several artifacts: give the digest of one artifact, as in \
         oci://REGISTRY/NAME@sha256:…"
    )]
    Index,
    #[error("its type is `{0}`, not `{manifest}`", manifest = media_types::MANIFEST)]
    MediaType(String),
    #[error("its type is `{own}`, but the server says `{stated}`")]
    OwnMediaType { own: String, stated: String },
    #[error("it isn't a valid manifest, at line {0}")]
    Invalid(usize),
    #[error("its version is {0}, not 2")]
    Version(u64),
    #[error(
        "it isn't a plugin: its configuration is `{0}`, not `{config}`",
        config = media_types::WASM_CONFIG
    )]
    Config(String),
    #[error("it has {0} layers; a plugin has one")]
    Layers(usize),
    #[error("its layer is `{found}`, not `{expected}`")]
    LayerType { found: String, expected: &'static str },
    #[error(transparent)]
    Digest(#[from] ReferenceError),
    #[error("its layer has {size} bytes; the limit is {limit}")]
    LayerSize { size: u64, limit: u64 },
}

/// A list of manifests: those that refer to another one.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Index {
    #[serde(default)]
    pub(crate) manifests: Vec<Descriptor>,
}

impl Manifest {
    /// Reads a manifest, of the type that the server states.
    ///
    /// # Errors
    ///
    /// Why it isn't one.
    pub(crate) fn parse(bytes: &[u8], stated: &str) -> Result<Self, ArtifactError> {
        let stated = stated.split(';').next().unwrap_or_default().trim();
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            #[serde(default)]
            media_type: Option<String>,
        }
        let kind: Kind = serde_json::from_slice(bytes).map_err(|_| ArtifactError::NotAnObject)?;
        let own = kind.media_type.as_deref();
        if LISTS.contains(&stated) || own.is_some_and(|own| LISTS.contains(&own)) {
            return Err(ArtifactError::Index);
        }
        if stated != media_types::MANIFEST {
            return Err(ArtifactError::MediaType(shown(stated)));
        }
        // A server that calls a manifest something else than it calls itself confuses clients.
        if let Some(own) = own.filter(|own| *own != stated) {
            let stated = stated.to_owned();
            return Err(ArtifactError::OwnMediaType { own: shown(own), stated });
        }
        let manifest: Self =
            serde_json::from_slice(bytes).map_err(|error| ArtifactError::Invalid(error.line()))?;
        if manifest.schema_version != 2 {
            return Err(ArtifactError::Version(manifest.schema_version));
        }
        Ok(manifest)
    }

    /// The layer with the component.
    ///
    /// # Errors
    ///
    /// Why this isn't the manifest of a plugin.
    pub(crate) fn component(&self, most: u64) -> Result<&Descriptor, ArtifactError> {
        let config = self.config.as_ref().map_or("", |config| &config.media_type);
        if ![media_types::WASM_CONFIG, media_types::EMPTY].contains(&config) {
            return Err(ArtifactError::Config(shown(config)));
        }
        self.layer(media_types::WASM, most)
    }

    /// The layer with a signature of the manifest with this digest. `None`: this manifest isn't of
    /// such a signature.
    pub(crate) fn signature_of(&self, subject: &str, most: u64) -> Option<&Descriptor> {
        let config = self.config.as_ref().map(|config| &*config.media_type);
        let kind = self.artifact_type.as_deref().or(config);
        let is_ours = kind == Some(media_types::SIGNATURE)
            && self.subject.as_ref().is_some_and(|of| of.digest == subject);
        if !is_ours {
            return None;
        }
        self.layer(media_types::SIGNATURE, most).ok()
    }

    fn layer(&self, expected: &'static str, limit: u64) -> Result<&Descriptor, ArtifactError> {
        let [layer] = self.layers.as_slice() else {
            return Err(ArtifactError::Layers(self.layers.len()));
        };
        if layer.media_type != expected {
            let found = shown(&layer.media_type);
            return Err(ArtifactError::LayerType { found, expected });
        }
        check_digest(&layer.digest)?;
        if layer.size > limit {
            return Err(ArtifactError::LayerSize { size: layer.size, limit });
        }
        Ok(layer)
    }
}

/// The digest of bytes, in the form of a manifest.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A registry's word in one bounded line.
pub(crate) fn shown(text: &str) -> String {
    toolhold_contract::text::neutral_line(toolhold_contract::text::cut(text, 100))
}
