//! Parses OCI manifests and indexes, and checks whether a manifest describes a plugin.

use serde::Deserialize;

use crate::reference::{ReferenceError, check_digest};

/// The media types of a plugin in a registry. The ecosystem uses the same types.
pub mod media_types {
    /// The type of a manifest.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// The type of an index, which lists manifests.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// The type of the description of a component.
    pub const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";
    /// The type of an empty description.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
    /// The type of a component.
    pub const WASM: &str = "application/wasm";
    /// The type of a signature. The artifact and its only layer both have this type.
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

/// A reason why a manifest doesn't describe a plugin or another artifact.
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

/// A list of the manifests that refer to another manifest.
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
    /// The bytes aren't a manifest, or are an index.
    pub(crate) fn parse(bytes: &[u8], content_type: &str) -> Result<Self, ArtifactError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            #[serde(default)]
            media_type: Option<String>,
        }
        // A media type may have parameters after a semicolon.
        let stated = content_type.split(';').next().unwrap_or_default().trim();
        let kind: Kind = serde_json::from_slice(bytes).map_err(|_| ArtifactError::NotAnObject)?;
        let own = kind.media_type.as_deref().unwrap_or(stated);
        if LISTS.contains(&stated) || LISTS.contains(&own) {
            return Err(ArtifactError::Index);
        }
        if stated != media_types::MANIFEST {
            return Err(ArtifactError::MediaType(shown(stated)));
        }
        // Clients get confused if the server and the manifest name different types.
        if own != stated {
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

    /// Returns the layer with the component. The component has at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest doesn't describe a plugin, or if the component is too
    /// large.
    pub(crate) fn component(&self, limit: u64) -> Result<&Descriptor, ArtifactError> {
        let config = self.config.as_ref().map_or("", |config| &config.media_type);
        if ![media_types::WASM_CONFIG, media_types::EMPTY].contains(&config) {
            return Err(ArtifactError::Config(shown(config)));
        }
        self.layer(media_types::WASM, limit)
    }

    /// Returns the layer with a signature of the manifest with this digest. Returns `None` if this
    /// manifest doesn't describe such a signature.
    pub(crate) fn signature_of(&self, signed_digest: &str, limit: u64) -> Option<&Descriptor> {
        let config = self.config.as_ref().map(|config| &*config.media_type);
        let kind = self.artifact_type.as_deref().or(config)?;
        let subject = self.subject.as_ref()?;
        if kind != media_types::SIGNATURE || subject.digest != signed_digest {
            return None;
        }
        self.layer(media_types::SIGNATURE, limit).ok()
    }

    /// Returns the only layer if it has the expected type, a valid digest, and at most `limit`
    /// bytes.
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

/// Returns the digest of bytes in the format of a manifest: `sha256:` and hexadecimal digits.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", toolhold_component::file::digest(bytes))
}

/// Returns a registry's text as one line of limited length.
pub(crate) fn shown(text: &str) -> String {
    toolhold_contract::text::neutral_line(toolhold_contract::text::cut(text, 100))
}
