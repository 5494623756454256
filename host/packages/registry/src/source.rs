//! Parses the source of a plugin, and checks whether the source is pinned to its content.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use toolhold_contract::text::{cut, neutral_line};
use toolhold_net::requests::OutboundError;
use url::Url;

use crate::error::FetchError;
use crate::reference::{Reference, ReferenceError};

/// Most bytes of a source, and of a source in an error. A longer source is refused, and a longer
/// source in an error is cut.
const MAX_SOURCE: usize = 4096;
const SHOWN: usize = 200;

/// The source of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The path of a component, or of a folder with exactly one built component.
    Path(PathBuf),
    /// A component at a URL. The scheme is https, or http on this machine.
    Url(Url),
    /// An artifact in a registry.
    Oci(Reference),
}

#[derive(Debug, thiserror::Error)]
enum SourceError {
    #[error("the source is empty: use a file, a folder, https://… or oci://…")]
    Empty,
    #[error("the source is {0} bytes; the limit is {MAX_SOURCE}")]
    TooLong(usize),
    #[error("the source has a zero byte")]
    ZeroByte,
    #[error(
        "the scheme `{0}` isn't known: use a file, a folder, https://… or oci://REGISTRY/NAME:TAG"
    )]
    Scheme(String),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error(transparent)]
    Url(#[from] OutboundError),
}

impl Source {
    /// Parses a source: `path/to/plugin.wasm`, `path/to/project`, `https://…`, or
    /// `oci://registry/name[:tag][@sha256:…]`. `http://…` and `oci+http://…` are valid only for
    /// this machine.
    ///
    /// # Errors
    ///
    /// Returns [`FetchError::Source`] with the fault and the remedy.
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        Self::parse_unredacted(text).map_err(|error| {
            // The source may contain a user name and a password, which the error must not show.
            let text_without_login = without_login(text, text);
            FetchError::Source {
                text: neutral_line(cut(&text_without_login, SHOWN)),
                why: without_login(&error.to_string(), text),
            }
        })
    }

    /// Parses a source. The error may repeat a login in the text.
    fn parse_unredacted(text: &str) -> Result<Self, SourceError> {
        if text.is_empty() {
            return Err(SourceError::Empty);
        }
        if text.len() > MAX_SOURCE {
            return Err(SourceError::TooLong(text.len()));
        }
        if text.contains('\0') {
            return Err(SourceError::ZeroByte);
        }
        Ok(match text.split_once("://") {
            None => Self::Path(PathBuf::from(text)),
            Some((scheme @ ("oci" | "oci+http"), rest)) => {
                let is_plain = scheme == "oci+http";
                Self::Oci(Reference::parse(rest, is_plain)?)
            }
            Some(("https" | "http", _)) => Self::Url(toolhold_net::requests::check_url(text)?),
            Some((scheme, _)) => {
                return Err(SourceError::Scheme(neutral_line(cut(scheme, SHOWN))));
            }
        })
    }

    /// Checks whether the source has a digest, and so always returns the same component.
    pub fn is_pinned(&self) -> bool {
        matches!(self, Self::Oci(reference) if reference.digest().is_some())
    }
}

/// Removes the user name and password of `source` from `text`.
fn without_login(text: &str, source: &str) -> String {
    match find_login(source) {
        Some(login) => text.replace(login, ""),
        None => text.to_owned(),
    }
}

/// Returns the user name and password, which end at the last `@` of the host.
fn find_login(source: &str) -> Option<&str> {
    let (_, location) = source.split_once("://")?;
    let host = location.split('/').next()?;
    let end = host.rfind('@')?;
    Some(&host[..=end])
}

impl FromStr for Source {
    type Err = FetchError;

    fn from_str(text: &str) -> Result<Self, FetchError> {
        Self::parse(text)
    }
}

/// Displays the source as [`Source::parse`] reads it.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(url.as_str()),
            Self::Oci(reference) => reference.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn sources_are_read_and_written() {
        for (text, written) in [
            ("a.wasm", "a.wasm"),
            ("./a b", "./a b"),
            ("https://Example.com:443/a.wasm", "https://example.com/a.wasm"),
            ("http://127.0.0.1:80/a.wasm", "http://127.0.0.1/a.wasm"),
            ("oci://Registry.Example/a/b", "oci://registry.example/a/b:latest"),
            ("oci://registry.example:5000/a:1.0", "oci://registry.example:5000/a:1.0"),
            ("oci+http://localhost:5000/a-b_c.d:v1", "oci+http://localhost:5000/a-b_c.d:v1"),
        ] {
            let source = Source::parse(text).expect(text);
            assert_eq!(source.to_string(), written);
            assert_eq!(Source::parse(written).as_ref(), Ok(&source));
            assert!(!source.is_pinned());
        }
        for text in
            [format!("oci://[::1]:5000/a@{DIGEST}"), format!("oci://r.example/a:1@{DIGEST}")]
        {
            let source = Source::parse(&text).expect("is valid");
            assert_eq!(source.to_string(), text);
            assert!(source.is_pinned());
        }
    }

    #[test]
    fn wrong_sources_are_refused_with_what_to_write() {
        let long = "a".repeat(MAX_SOURCE + 1);
        for (text, told) in [
            ("", "the source is empty"),
            (&*long, "the limit is 4096"),
            ("git://example.com/a", "the scheme `git` isn't known"),
            ("http://example.com/a.wasm", "only https is allowed"),
            ("oci+http://example.com/a", "only https is allowed"),
            ("https://a:b@example.com/", "user name or password"),
            ("oci://registry.example", "the name is missing"),
            ("oci://registry.example/", "the name is missing"),
            ("oci://registry.example/A", "lower-case letters"),
            ("oci://registry.example/a/../b", "lower-case letters"),
            ("oci://registry.example/a//b", "lower-case letters"),
            ("oci://registry.example/a:", "the tag isn't valid"),
            ("oci://registry.example/a:b/c", "the tag isn't valid"),
            ("oci://registry.example/a@sha512:00", "write `sha256:` and 64 digits"),
            ("oci://registry.example/a@sha256:00", "64 digits"),
            ("oci://registry.example?x=/a", "has to be a host"),
            ("oci://me@registry.example/a", "write `sha256:` and 64 digits"),
            ("oci://169.254.169.254:99999/a", "port"),
        ] {
            let error = Source::parse(text).expect_err(text).to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        let error = Source::parse("https://me:hunter2@example.com/a").expect_err("is refused");
        let error = error.to_string();
        assert!(error.contains("https://example.com/a") && !error.contains("hunter2"), "{error}");
        let shown = Source::parse("\u{1b}[2J\u{202e}://x").expect_err("is refused").to_string();
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    }
}
