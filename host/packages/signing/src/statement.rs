//! The statement of a signature about the signed bytes. Toolhold writes the statement as the
//! trusted comment.

use std::fmt;

use toolhold_component::file::digest;
use toolhold_component::{Manifest, ManifestError, is_name};
use toolhold_contract::text::neutral_line;

/// The meaning of a trusted comment. Nobody can move the comment to other bytes, because the
/// comment and the bytes are signed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// The bytes are this plugin:
    /// `toolhold-plugin/1 name=NAME version=VERSION manifest=sha256:DIGEST`.
    Plugin {
        /// The name of the plugin.
        name: String,
        /// The version of the plugin, or `-` for a component without a manifest.
        version: String,
        /// `sha256:` and the digest of the manifest's bytes, or `-` if there is no manifest.
        manifest: String,
    },
    /// The bytes are the index of a bundle: `toolhold-bundle/1`.
    Bundle,
    /// The bytes are an organisation's ceiling: `toolhold-ceiling/1`.
    Ceiling,
    /// No statement about the bytes. minisign or its user wrote the comment.
    Plain,
}

const PLUGIN: &str = "toolhold-plugin/1";
const BUNDLE: &str = "toolhold-bundle/1";
const CEILING: &str = "toolhold-ceiling/1";

/// The version and the digest in the statement of a plugin without a manifest.
const NO_MANIFEST: &str = "-";

/// The reason why there is no statement about a component, or why a comment isn't a statement.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The manifest can't be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The manifest has another name than the caller expects.
    #[error("the manifest has the name `{manifest}`, so the component can't be signed as `{name}`")]
    OtherName {
        /// The name in the manifest.
        manifest: String,
        /// The given name, neutralised.
        name: String,
    },
    /// The component has no manifest, and the caller gave no name.
    #[error("the component has no manifest with a name; pass `--name`")]
    NoName,
    /// The given name isn't valid. The text is neutralised.
    #[error("`{0}` isn't a valid name of a plugin: use [a-z0-9-], the first a letter")]
    Name(String),
    /// The version in the manifest can't be in a comment. Contains the version.
    #[error(
        "the version `{0}` can't be signed: use 1 to 64 visible ASCII characters without spaces"
    )]
    Version(String),
    /// The comment has a later format, or a person wrote it.
    #[error("the trusted comment has an unknown format")]
    Comment,
}

impl Statement {
    /// Makes the statement of a plugin's signature: the plugin's name and version, and the digest
    /// of its manifest. `name` is needed if the component has no manifest.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes aren't a component, if the plugin has no name, if the manifest
    /// has another name than `name`, or if the version can't be in a comment.
    pub fn of_plugin(wasm: &[u8], name: Option<&str>) -> Result<Self, StatementError> {
        let manifest = Manifest::read_if_any(wasm)?;
        let signed_name = match (&manifest, name) {
            (Some(manifest), Some(name)) if manifest.name != name => {
                return Err(StatementError::OtherName {
                    manifest: manifest.name.clone(),
                    name: neutral_line(name),
                });
            }
            (Some(manifest), _) => &manifest.name,
            (None, Some(name)) => name,
            (None, None) => return Err(StatementError::NoName),
        };
        if !is_name(signed_name) {
            return Err(StatementError::Name(neutral_line(signed_name)));
        }
        let version = manifest.as_ref().map_or(NO_MANIFEST, |manifest| manifest.version.as_str());
        if !is_version(version) {
            return Err(StatementError::Version(version.to_owned()));
        }
        let manifest_digest = match Manifest::section(wasm)? {
            Some(section) => format!("sha256:{}", digest(section)),
            None => NO_MANIFEST.into(),
        };
        Ok(Self::Plugin {
            name: signed_name.into(),
            version: version.into(),
            manifest: manifest_digest,
        })
    }

    /// Reads the statement in a trusted comment. Comments of other programs are [`Self::Plain`].
    ///
    /// # Errors
    ///
    /// Returns an error if the comment starts like a comment of Toolhold, but isn't valid.
    pub fn read(comment: &str) -> Result<Self, StatementError> {
        if !comment.starts_with("toolhold-") {
            return Ok(Self::Plain);
        }
        let words: Vec<&str> = comment.split(' ').collect();
        match words[..] {
            [BUNDLE] => Ok(Self::Bundle),
            [CEILING] => Ok(Self::Ceiling),
            [PLUGIN, name, version, manifest] => {
                let name = field(name, "name=")?;
                let version = field(version, "version=")?;
                let manifest = field(manifest, "manifest=")?;
                if !is_name(name) || !is_version(version) {
                    return Err(StatementError::Comment);
                }
                Ok(Self::Plugin {
                    name: name.to_owned(),
                    version: version.to_owned(),
                    manifest: manifest.to_owned(),
                })
            }
            _ => Err(StatementError::Comment),
        }
    }
}

fn field<'c>(text: &'c str, start: &str) -> Result<&'c str, StatementError> {
    text.strip_prefix(start).ok_or(StatementError::Comment)
}

fn is_version(version: &str) -> bool {
    (1..=64).contains(&version.len()) && version.bytes().all(|byte| byte.is_ascii_graphic())
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin { name, version, manifest } => {
                write!(f, "{PLUGIN} name={name} version={version} manifest={manifest}")
            }
            Self::Bundle => f.write_str(BUNDLE),
            Self::Ceiling => f.write_str(CEILING),
            Self::Plain => Ok(()),
        }
    }
}
