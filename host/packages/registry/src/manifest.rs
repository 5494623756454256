//! Parses OCI manifests and indexes, and checks whether a manifest describes a plugin.

use serde::Deserialize;

use crate::reference::{ReferenceError, check_digest};

/// The media types of a plugin in a registry. Other tools for WebAssembly use the same types.
pub mod media_types {
    /// The media type of a manifest.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// The media type of an index, which lists manifests.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// The media type of the description of a component.
    pub const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";
    /// The media type of an empty description.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
    /// The media type of a component.
    pub const WASM: &str = "application/wasm";
    /// The media type of a signature, as an artifact and as its only layer.
    pub const SIGNATURE: &str = "application/vnd.toolhold.minisig";
}

/// The `schemaVersion` of all manifests of OCI.
const SCHEMA_VERSION: u64 = 2;

/// The media types of indexes. Docker has its own type.
const INDEX_TYPES: [&str; 2] =
    [media_types::INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"];

/// A blob or a manifest, as a manifest or an index describes it.
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

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArtifactError {
    #[error("the manifest isn't a JSON object")]
    NotAnObject,
    #[error(
        "the manifest is an index of several artifacts: use the digest of one artifact, as in \
         oci://REGISTRY/NAME@sha256:…"
    )]
    Index,
    #[error(
        "the manifest's media type is `{0}`, but a plugin's manifest has the type `{manifest}`",
        manifest = media_types::MANIFEST
    )]
    MediaType(String),
    #[error(
        "the manifest says that its media type is `{own}`, but the server says that it is \
         `{stated}`"
    )]
    OwnMediaType { own: String, stated: String },
    #[error("the manifest isn't valid, at line {0}")]
    Invalid(usize),
    #[error("the manifest's version is {0}, not 2")]
    Version(u64),
    #[error(
        "the artifact isn't a plugin: the configuration is `{0}`, not `{config}`",
        config = media_types::WASM_CONFIG
    )]
    Config(String),
    #[error("the artifact has {0} layers; a plugin has one")]
    Layers(usize),
    #[error("the layer's type is `{found}`, not `{expected}`")]
    LayerType { found: String, expected: &'static str },
    #[error(transparent)]
    Digest(#[from] ReferenceError),
    #[error("the layer has {size} bytes; the limit is {limit}")]
    LayerSize { size: u64, limit: u64 },
}

/// A list of manifests that refer to another manifest.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Index {
    #[serde(default)]
    pub(crate) manifests: Vec<Descriptor>,
}

impl Manifest {
    /// Parses a manifest. `content_type` is the type that the server states.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes aren't a manifest, or are an index of several manifests.
    pub(crate) fn parse(bytes: &[u8], content_type: &str) -> Result<Self, ArtifactError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            #[serde(default)]
            media_type: Option<String>,
        }
        let stated_type = match content_type.split_once(';') {
            Some((without_parameters, _)) => without_parameters.trim(),
            None => content_type.trim(),
        };
        let kind: Kind = serde_json::from_slice(bytes).map_err(|_| ArtifactError::NotAnObject)?;
        let type_in_manifest = kind.media_type.as_deref().unwrap_or(stated_type);
        if INDEX_TYPES.contains(&stated_type) || INDEX_TYPES.contains(&type_in_manifest) {
            return Err(ArtifactError::Index);
        }
        if stated_type != media_types::MANIFEST {
            return Err(ArtifactError::MediaType(shown(stated_type)));
        }
        // Two different types could make clients read the bytes in different ways.
        if type_in_manifest != stated_type {
            let stated = stated_type.to_owned();
            return Err(ArtifactError::OwnMediaType { own: shown(type_in_manifest), stated });
        }

        let manifest: Self =
            serde_json::from_slice(bytes).map_err(|error| ArtifactError::Invalid(error.line()))?;
        if manifest.schema_version != SCHEMA_VERSION {
            return Err(ArtifactError::Version(manifest.schema_version));
        }
        Ok(manifest)
    }

    /// Returns the layer with the component.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest doesn't describe a plugin, or if the component has more
    /// than `limit` bytes.
    pub(crate) fn component(&self, limit: u64) -> Result<&Descriptor, ArtifactError> {
        let config = self.config.as_ref().map_or("", |config| &config.media_type);
        let is_plugin = config == media_types::WASM_CONFIG || config == media_types::EMPTY;
        if !is_plugin {
            return Err(ArtifactError::Config(shown(config)));
        }
        self.layer(media_types::WASM, limit)
    }

    /// Returns the layer with a signature for the manifest with the digest `signed_digest`. Returns
    /// `None` if this manifest doesn't describe such a signature.
    pub(crate) fn signature_of(&self, signed_digest: &str, limit: u64) -> Option<&Descriptor> {
        // Without an artifact type, the type of the config is the type of the artifact.
        let config = self.config.as_ref().map(|config| &*config.media_type);
        let kind = self.artifact_type.as_deref().or(config)?;
        let subject = self.subject.as_ref()?;
        if kind != media_types::SIGNATURE || subject.digest != signed_digest {
            return None;
        }
        self.layer(media_types::SIGNATURE, limit).ok()
    }

    /// Returns the only layer, which must have the media type `expected`.
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

/// Returns the digest as manifests write it: `sha256:` and hexadecimal digits.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", toolhold_component::file::digest(bytes))
}

/// Returns a registry's text as one line, cut to 100 bytes and without terminal control characters.
pub(crate) fn shown(text: &str) -> String {
    toolhold_contract::text::neutral_line(toolhold_contract::text::cut(text, 100))
}
