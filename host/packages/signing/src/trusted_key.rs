//! A trusted key, with the plugins and sources that it may sign, and its expiry date.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

use crate::public_key::PublicKey;

/// A key that the operator trusts. To replace a key, trust the new key too, and revoke the old key
/// when there are no more signatures by it.
#[derive(Clone, Debug)]
pub struct TrustedKey {
    /// The operator's name for the key.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// The plugins that the key may sign. An empty list allows no plugin.
    pub plugins: Vec<PluginPattern>,
    /// The sources from which these plugins may come. An empty list allows every source.
    pub sources: Vec<SourcePattern>,
    /// Whether the key may sign bundles, which contain plugins and configuration.
    pub bundles: bool,
    /// The last day on which the key is trusted, in UTC. The day is compared with today. A time in
    /// the signature isn't used, because the owner of the key can choose it.
    pub not_after: Option<Date>,
    /// Whether the key is no longer trusted, because other people may have it.
    pub revoked: bool,
}

impl TrustedKey {
    /// Checks whether the key may sign this plugin from this source.
    pub(crate) fn covers(&self, plugin: &str, source: Option<&str>) -> bool {
        if !self.plugins.iter().any(|pattern| pattern.matches(plugin)) {
            return false;
        }
        if self.sources.is_empty() {
            return true;
        }
        let Some(source) = source else { return false };
        self.sources.iter().any(|pattern| pattern.matches(source))
    }
}

/// Names of plugins: one name, `acme-*` for all names with this start, or `*` for all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginPattern(String);

impl PluginPattern {
    /// Checks whether the pattern has the name.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.0 == name,
        }
    }
}

impl PluginPattern {
    /// Checks whether the pattern has every name that the other pattern has.
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

/// Sources of plugins: one source, `oci://registry.example/acme/*` for all sources below it, or `*`
/// for all sources. `oci://registry.example/acme/notes` matches all tags and digests of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePattern(String);

impl SourcePattern {
    /// Returns the pattern `*`.
    pub fn everything() -> Self {
        Self("*".into())
    }

    /// Checks whether the pattern matches the source. Only whole names match. `…/acme/*` doesn't
    /// match `…/acme-evil/x`, and doesn't match a path that leads out of `…/acme`.
    pub fn matches(&self, source: &str) -> bool {
        if self.0 == "*" || self.0 == source {
            return true;
        }
        if let Some(folder) = self.0.strip_suffix('*') {
            return source.strip_prefix(folder).is_some_and(is_path_below);
        }
        if !self.0.starts_with("oci") {
            return false;
        }
        match source.strip_prefix(&self.0) {
            Some(version) => version.starts_with([':', '@']) && !version.contains('/'),
            None => false,
        }
    }

    /// Checks whether the pattern has every source that the other pattern has.
    pub fn covers(&self, other: &Self) -> bool {
        let Some(other_folder) = other.0.strip_suffix('*') else { return self.matches(&other.0) };
        if self.0 == "*" {
            return true;
        }
        // All sources below a folder need a pattern for this folder, or for a folder above.
        let Some(folder) = self.0.strip_suffix('*') else { return false };
        folder == other_folder || self.matches(other_folder.trim_end_matches('/'))
    }
}

/// Checks whether a path below a folder stays in the folder.
fn is_path_below(path: &str) -> bool {
    let lower_case = path.to_ascii_lowercase();
    // Servers may decode a dot or a slash before they search for the file.
    let is_encoded = ["%2e", "%2f", "%5c", "\\"].iter().any(|encoded| lower_case.contains(encoded));
    let leads_out = path.split('/').any(|part| part == ".." || part == ".");
    !path.is_empty() && !is_encoded && !leads_out
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
        if text == "*" {
            return Ok(Self(text.into()));
        }
        let has_valid_length = !start.is_empty() && text.len() <= 2048;
        let has_valid_characters =
            start.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
        if !has_valid_length || !has_valid_characters || start.ends_with([':', '/']) {
            return Err(PatternError::Source);
        }
        if !text.ends_with('*') && is_registry(start) {
            return Err(PatternError::Source);
        }
        Ok(Self(text.into()))
    }
}

/// Checks whether a source names only a registry. A port after it would be read as a tag, and a
/// registry with a port is another registry.
fn is_registry(source: &str) -> bool {
    let location = source.strip_prefix("oci://").or_else(|| source.strip_prefix("oci+http://"));
    location.is_some_and(|location| !location.contains('/'))
}
