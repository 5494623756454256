//! Parses references to artifacts in a registry: name, tag and digest.

use std::fmt;

use toolhold_component::file::is_sha256;
use toolhold_net::requests::OutboundError;
use url::Url;

/// The tag of a reference without a tag and a digest.
const DEFAULT_TAG: &str = "latest";

/// Most bytes of a name and of a tag. A longer name or tag is refused.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// The beginning of a digest. Other algorithms are refused.
const SHA256: &str = "sha256:";

/// An artifact in an OCI registry: `registry/name[:tag][@sha256:…]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Whether requests to the registry have no TLS. This is allowed only for a registry on this
    /// machine.
    is_plain: bool,
    registry: String,
    name: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// A reason why a text isn't a reference, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The reference names only a registry.
    #[error("the name is missing: write oci://REGISTRY/NAME, with `:TAG` or `@sha256:…`")]
    NoName,
    /// The registry has other parts of a URL.
    #[error("the registry has to be a host, or a host and a port")]
    Registry,
    /// Requests to the registry are refused.
    #[error(transparent)]
    Url(#[from] OutboundError),
    /// The name has invalid characters, or is too long.
    #[error(
        "the name isn't valid: use lower-case letters and digits, with `.`, `_` or `-` between \
         them, and `/` between parts, at most {MAX_NAME} bytes"
    )]
    Name,
    /// The tag has invalid characters, or is too long.
    #[error("the tag isn't valid: use letters, digits, `_`, `.` and `-`, at most {MAX_TAG}")]
    Tag,
    /// The digest has another algorithm.
    #[error("the digest isn't valid: write `sha256:` and 64 digits of 0-9 and a-f")]
    DigestAlgorithm,
    /// The digest isn't valid.
    #[error("the digest needs 64 digits of 0-9 and a-f after `sha256:`")]
    DigestDigits,
}

impl Reference {
    /// Parses a reference without its scheme. `is_plain` means that the scheme is `oci+http`, which
    /// doesn't encrypt. Returns an error if a part of the reference isn't valid.
    pub(crate) fn parse(text: &str, is_plain: bool) -> Result<Self, ReferenceError> {
        let (location, digest) = match text.split_once('@') {
            Some((location, digest)) => (location, Some(check_digest(digest)?)),
            None => (text, None),
        };
        let Some((registry, artifact)) = location.split_once('/') else {
            return Err(ReferenceError::NoName);
        };
        if registry.is_empty() || artifact.is_empty() {
            return Err(ReferenceError::NoName);
        }
        let (name, tag) = match artifact.split_once(':') {
            Some((name, tag)) => (name, Some(check_tag(tag)?)),
            None if digest.is_none() => (artifact, Some(DEFAULT_TAG.to_owned())),
            None => (artifact, None),
        };
        check_name(name)?;

        if registry.contains(['?', '#', '@', '\\', '%']) {
            return Err(ReferenceError::Registry);
        }
        let url = registry_url(registry, is_plain)?;
        // The authority has the host in lower case, and leaves out the usual port.
        Ok(Self { is_plain, registry: authority(&url), name: name.to_owned(), tag, digest })
    }

    /// Returns the host of the registry, with a port that isn't usual.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the name of the repository.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tag, or `None` if the reference has only a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest of the manifest, `sha256:…`, or `None` if the reference has no digest.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// Returns the reference with the digest of a manifest.
    #[must_use]
    pub fn with_digest(&self, digest: &str) -> Self {
        Self { digest: Some(digest.to_owned()), ..self.clone() }
    }

    /// Returns the reference with another tag and without a digest.
    ///
    /// # Errors
    ///
    /// Fails if the tag isn't valid.
    pub fn with_tag(&self, tag: &str) -> Result<Self, ReferenceError> {
        let tag = check_tag(tag)?;
        Ok(Self { tag: Some(tag), digest: None, ..self.clone() })
    }

    /// Returns the version for requests: the digest, or the tag if there is no digest.
    pub(crate) fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or(DEFAULT_TAG)
    }

    pub(crate) fn base(&self) -> Result<Url, OutboundError> {
        registry_url(&self.registry, self.is_plain)
    }
}

fn registry_url(registry: &str, is_plain: bool) -> Result<Url, OutboundError> {
    let scheme = if is_plain { "http" } else { "https" };
    toolhold_net::requests::check_url(&format!("{scheme}://{registry}/"))
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_plain { "oci+http" } else { "oci" };
        write!(f, "{scheme}://{}/{}", self.registry, self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

pub(crate) fn check_digest(digest: &str) -> Result<String, ReferenceError> {
    let hex = digest.strip_prefix(SHA256).ok_or(ReferenceError::DigestAlgorithm)?;
    if !is_sha256(hex) {
        return Err(ReferenceError::DigestDigits);
    }
    Ok(digest.to_owned())
}

/// Checks a tag by the grammar of the OCI specification.
pub(crate) fn check_tag(tag: &str) -> Result<String, ReferenceError> {
    let has_valid_length = (1..=MAX_TAG).contains(&tag.len());
    let has_valid_characters =
        tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    let has_valid_start = !tag.starts_with(['.', '-']);
    if has_valid_length && has_valid_characters && has_valid_start {
        Ok(tag.to_owned())
    } else {
        Err(ReferenceError::Tag)
    }
}

/// Returns the host, with the port if it isn't the usual port.
pub(crate) fn authority(url: &Url) -> String {
    let origin = toolhold_net::requests::origin(url);
    match origin.split_once("://") {
        Some((_, authority)) => authority.to_owned(),
        // Each origin has a scheme, so this never happens.
        None => String::new(),
    }
}

/// Checks a name by the grammar of the OCI specification: parts of lower-case letters and digits,
/// with `.`, `_`, `__` or hyphens between them.
fn check_name(name: &str) -> Result<(), ReferenceError> {
    if name.len() > MAX_NAME || !name.split('/').all(is_part_of_name) {
        return Err(ReferenceError::Name);
    }
    Ok(())
}

fn is_part_of_name(part: &str) -> bool {
    part.starts_with(is_letter_of_name)
        && part.ends_with(is_letter_of_name)
        && part.split(is_letter_of_name).all(is_separator_of_name)
}

fn is_separator_of_name(between: &str) -> bool {
    matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
}

fn is_letter_of_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit()
}
