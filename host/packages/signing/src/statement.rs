//! Writes and reads the statement of a signature about the signed bytes. The statement is the fixed
//! form of the trusted comment.

use std::fmt;

use toolhold_component::file::digest;
use toolhold_component::{Manifest, ManifestError, is_name};
use toolhold_contract::text::neutral_line;

/// The meaning of a trusted comment. The comment is signed together with the bytes, so it can't be
/// used for other bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// The bytes are this plugin:
    /// `toolhold-plugin/1 name=NAME version=VERSION manifest=sha256:DIGEST`.
    Plugin {
        /// The name of the plugin.
        name: String,
        /// The version of the plugin. `-` for a component without a manifest.
        version: String,
        /// `sha256:` and the digest of the manifest's bytes. `-` if there is no manifest.
        manifest: String,
    },
    /// The bytes are the index of a bundle: `toolhold-bundle/1`.
    Bundle,
    /// The bytes are an organisation's ceiling: `toolhold-ceiling/1`.
    Ceiling,
    /// No statement about the bytes. The comment comes from minisign or from its user.
    Plain,
}

const PLUGIN: &str = "toolhold-plugin/1";
const BUNDLE: &str = "toolhold-bundle/1";
const CEILING: &str = "toolhold-ceiling/1";

/// A reason why there is no statement about a component, or why a comment isn't a statement.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The manifest can't be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The manifest has another name.
    #[error("the manifest has the name `{manifest}`, so the component can't be signed as `{name}`")]
    OtherName {
        /// The name in the manifest.
        manifest: String,
        /// The given name, neutralised.
        name: String,
    },
    /// Neither a manifest nor the caller names the plugin.
    #[error("the component has no manifest with a name; give the name")]
    NoName,
    /// The given name, neutralised.
    #[error("`{0}` isn't a valid name of a plugin: use [a-z0-9-], the first a letter")]
    Name(String),
    /// The version in the manifest.
    #[error(
        "the version `{0}` can't be signed: use 1 to 64 visible ASCII characters without spaces"
    )]
    Version(String),
    /// The comment has a later format, or a person wrote it.
    #[error("the trusted comment has a format that this host doesn't know")]
    Comment,
}

impl Statement {
    /// Makes the statement about a component. A component without a manifest needs a `name`.
    ///
    /// # Errors
    ///
    /// The bytes aren't a component, have no name or another name, or have a version that can't be
    /// in a comment.
    pub fn of_plugin(wasm: &[u8], name: Option<&str>) -> Result<Self, StatementError> {
        let manifest = Manifest::read_if_any(wasm)?;
        let name = match (&manifest, name) {
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
        if !is_name(name) {
            return Err(StatementError::Name(neutral_line(name)));
        }
        let version = manifest.as_ref().map_or("-", |manifest| manifest.version.as_str());
        if !is_version(version) {
            return Err(StatementError::Version(version.to_owned()));
        }
        let manifest_digest = match Manifest::section(wasm)? {
            Some(section) => format!("sha256:{}", digest(section)),
            None => "-".into(),
        };
        Ok(Self::Plugin { name: name.into(), version: version.into(), manifest: manifest_digest })
    }

    /// Reads a trusted comment.
    ///
    /// # Errors
    ///
    /// Returns an error if the comment starts like Toolhold's own but isn't valid. Such a comment
    /// has a later format, or a person wrote it.
    pub fn read(comment: &str) -> Result<Self, StatementError> {
        if !comment.starts_with("toolhold-") {
            return Ok(Self::Plain);
        }
        match *comment.split(' ').collect::<Vec<_>>() {
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

/// Returns the value of a field in a comment.
fn field<'c>(text: &'c str, start: &str) -> Result<&'c str, StatementError> {
    text.strip_prefix(start).ok_or(StatementError::Comment)
}

/// Checks whether a version can be in a comment.
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
