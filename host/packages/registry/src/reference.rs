//! Parses references to artifacts in a registry: name, tag and digest.

use std::fmt;

use toolhold_net::requests::OutboundError;
use url::Url;

/// The tag of a reference that has neither tag nor digest.
const DEFAULT_TAG: &str = "latest";

/// Largest name and tag, in bytes.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// The beginning of a digest. No other algorithm is accepted.
const SHA256: &str = "sha256:";

/// An artifact in an OCI registry: `registry/name[:tag][@sha256:…]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Whether it is asked for without TLS, which only this machine may be.
    is_plain: bool,
    registry: String,
    name: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// A reason why a text isn't a reference, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The reference names a registry alone.
    #[error("the name is missing: write oci://REGISTRY/NAME, with `:TAG` or `@sha256:…`")]
    NoName,
    /// The registry has other parts of a URL.
    #[error("the registry isn't a host, or a host and a port")]
    Registry,
    /// There may be no request to the registry.
    #[error(transparent)]
    Url(#[from] OutboundError),
    /// Its name has other characters, or is too long.
    #[error(
        "the name isn't valid: use lower-case letters and digits, with `.`, `_` or `-` between \
         them, and `/` between parts, at most {MAX_NAME} bytes"
    )]
    Name,
    /// Its tag has other characters, or is too long.
    #[error("the tag isn't valid: use letters, digits, `_`, `.` and `-`, at most {MAX_TAG}")]
    Tag,
    /// Its digest is of another algorithm.
    #[error("the digest isn't valid: write `sha256:` and 64 digits of 0-9 and a-f")]
    DigestAlgorithm,
    /// Its digest isn't one.
    #[error("the digest needs 64 digits of 0-9 and a-f after `sha256:`")]
    DigestDigits,
}

impl Reference {
    /// Reads a reference without its scheme.
    ///
    /// # Errors
    ///
    /// A part of it isn't valid, or its registry isn't.
    pub(crate) fn parse(text: &str, is_plain: bool) -> Result<Self, ReferenceError> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(check_digest(digest)?)),
            None => (text, None),
        };
        let (registry, rest) = rest
            .split_once('/')
            .filter(|(registry, rest)| !registry.is_empty() && !rest.is_empty())
            .ok_or(ReferenceError::NoName)?;
        let (name, tag) = match rest.split_once(':') {
            Some((name, tag)) => (name, Some(check_tag(tag)?)),
            None => (rest, None),
        };
        check_name(name)?;
        if registry.contains(['?', '#', '@', '\\', '%']) {
            return Err(ReferenceError::Registry);
        }
        let scheme = if is_plain { "http" } else { "https" };
        let url = toolhold_net::requests::check_url(&format!("{scheme}://{registry}/"))?;
        let origin = toolhold_net::requests::origin(&url);
        let registry = origin.split_once("://").map_or(registry, |(_, authority)| authority);
        let tag = match (tag, &digest) {
            (None, None) => Some(DEFAULT_TAG.to_owned()),
            (tag, _) => tag,
        };
        Ok(Self { is_plain, registry: registry.to_owned(), name: name.to_owned(), tag, digest })
    }

    /// Host and port of the registry.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The name of the repository.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tag. `None` if it names a digest alone.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest, `sha256:…`.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// The same with the digest of a manifest.
    #[must_use]
    pub fn with_digest(&self, digest: &str) -> Self {
        Self { digest: Some(digest.to_owned()), ..self.clone() }
    }

    /// The same with another tag and without a digest.
    ///
    /// # Errors
    ///
    /// The tag isn't valid.
    pub fn with_tag(&self, tag: &str) -> Result<Self, ReferenceError> {
        Ok(Self { tag: Some(check_tag(tag)?), digest: None, ..self.clone() })
    }

    /// The version for requests: the digest, otherwise the tag.
    pub(crate) fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or(DEFAULT_TAG)
    }

    /// The URL of the registry.
    pub(crate) fn base(&self) -> Result<Url, OutboundError> {
        let scheme = if self.is_plain { "http" } else { "https" };
        toolhold_net::requests::check_url(&format!("{scheme}://{}/", self.registry))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_plain { "oci+http" } else { "oci" };
        write!(f, "{scheme}://{}/{}", self.registry, self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.as_ref().map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

/// A digest in its only accepted form.
pub(crate) fn check_digest(digest: &str) -> Result<String, ReferenceError> {
    let hex = digest.strip_prefix(SHA256).ok_or(ReferenceError::DigestAlgorithm)?;
    if hex.len() != 64 || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(ReferenceError::DigestDigits);
    }
    Ok(digest.to_owned())
}

/// A tag, by the grammar of the specification.
pub(crate) fn check_tag(tag: &str) -> Result<String, ReferenceError> {
    let valid = (1..=MAX_TAG).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if !valid {
        return Err(ReferenceError::Tag);
    }
    Ok(tag.to_owned())
}

/// A name, by the grammar of the specification: parts of small letters and digits, with `.`, `_`,
/// `__` or hyphens between them.
fn check_name(name: &str) -> Result<(), ReferenceError> {
    if name.len() > MAX_NAME || !name.split('/').all(is_part_of_name) {
        return Err(ReferenceError::Name);
    }
    Ok(())
}

fn is_part_of_name(part: &str) -> bool {
    part.starts_with(is_letter_of_name)
        && part.ends_with(is_letter_of_name)
        && part.split(is_letter_of_name).all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
        })
}

fn is_letter_of_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit()
}
