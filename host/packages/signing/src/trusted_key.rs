//! A trusted key: which plugins from which sources it may sign, and until when.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

use crate::public_key::PublicKey;

/// A key that the operator trusts. To replace one, trust the new one beside it, and revoke the old
/// one when nothing is signed by it any more.
#[derive(Clone, Debug)]
pub struct TrustedKey {
    /// The operator's name for it.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// The plugins that it may sign; none, if this is empty.
    pub plugins: Vec<PluginPattern>,
    /// The sources that these may come from; every source, if this is empty.
    pub sources: Vec<SourcePattern>,
    /// Whether it may sign bundles, which hold configuration beside plugins.
    pub bundles: bool,
    /// The last day on which it counts, in UTC. It is compared with today and not with a time in
    /// the signature, which the owner of the key can choose.
    pub not_after: Option<Date>,
    /// Whether the key no longer counts, because it may be in wrong hands.
    pub revoked: bool,
}

impl TrustedKey {
    /// Whether it may sign this plugin from this source.
    pub(crate) fn covers(&self, plugin: &str, source: Option<&str>) -> bool {
        self.plugins.iter().any(|pattern| pattern.matches(plugin))
            && (self.sources.is_empty()
                || source.is_some_and(|source| {
                    self.sources.iter().any(|pattern| pattern.matches(source))
                }))
    }
}

/// Names of plugins: one name, `acme-*` for all that begin so, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginPattern(String);

impl PluginPattern {
    /// Whether it has the name.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.0 == name,
        }
    }
}

impl PluginPattern {
    /// Whether it has every name that the other one has.
    pub fn covers(&self, other: &Self) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => other.0.trim_end_matches('*').starts_with(start),
            None => self == other,
        }
    }
}

impl fmt::Display for PluginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A reason why a text isn't a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text isn't a [`PluginPattern`].
    #[error("use a plugin's name, or the start of names and `*`, such as `acme-*`")]
    Plugin,
    /// The text isn't a [`SourcePattern`].
    #[error(
        "use a source, or a source and `/*` for all below it, such as \
         `oci://registry.example/acme/*`"
    )]
    Source,
}

impl FromStr for PluginPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let start = text.strip_suffix('*').unwrap_or(text);
        let is_valid =
            start.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if text.is_empty() || text.len() > 64 || !is_valid {
            return Err(PatternError::Plugin);
        }
        Ok(Self(text.into()))
    }
}

/// Sources of plugins: one source, `oci://registry.example/acme/*` for all below it, or `*` for
/// all. `oci://registry.example/acme/notes` has all tags and digests of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePattern(String);

impl SourcePattern {
    /// `*`.
    pub fn everything() -> Self {
        Self("*".into())
    }

    /// Whether it has the source. Only whole names are matched, so that `…/acme/*` never has
    /// `…/acme-evil/x`, and never a path that leads out of it again.
    pub fn matches(&self, source: &str) -> bool {
        if self.0 == "*" {
            return true;
        }
        if let Some(start) = self.0.strip_suffix('*') {
            return source.strip_prefix(start).is_some_and(|rest| {
                let rest = rest.to_ascii_lowercase();
                !rest.is_empty()
                    // Servers may decode a dot or a slash before they look for the file.
                    && !["%2e", "%2f", "%5c", "\\"].iter().any(|encoded| rest.contains(encoded))
                    && !rest.split('/').any(|part| part == ".." || part == ".")
            });
        }
        self.0 == source
            || self.0.starts_with("oci")
                && source
                    .strip_prefix(&self.0)
                    .is_some_and(|rest| rest.starts_with([':', '@']) && !rest.contains('/'))
    }

    /// Whether it has every source that the other one has.
    pub fn covers(&self, other: &Self) -> bool {
        match other.0.strip_suffix('*') {
            // A pattern for all below a folder is covered by one for that folder, or for one above.
            Some(start) => {
                self.0 == "*"
                    || self.0.ends_with('*') && {
                        let own = self.0.trim_end_matches('*');
                        start == own || self.matches(start.trim_end_matches('/'))
                    }
            }
            None => self.matches(&other.0),
        }
    }
}

impl fmt::Display for SourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SourcePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let start = text.strip_suffix("/*").unwrap_or(text);
        let valid = text == "*"
            || (!start.is_empty()
                && text.len() <= 2048
                && !start.ends_with([':', '/'])
                && (text.ends_with('*') || !is_registry(start))
                && start.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*'));
        if !valid {
            return Err(PatternError::Source);
        }
        Ok(Self(text.into()))
    }
}

/// Whether a source names a registry alone. With a port behind, it would be another one.
fn is_registry(source: &str) -> bool {
    let rest = source.strip_prefix("oci://").or_else(|| source.strip_prefix("oci+http://"));
    rest.is_some_and(|rest| !rest.contains('/'))
}
