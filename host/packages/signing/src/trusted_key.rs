//! A trusted key, with the plugins and sources that it may sign, and its expiry date.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

use crate::public_key::PublicKey;

/// Most bytes of a pattern for plugins, and of a pattern for sources.
const MAX_PLUGIN_PATTERN: usize = 64;
const MAX_SOURCE_PATTERN: usize = 2048;

/// A key that the operator trusts. To replace a key, first trust the new key too. Revoke the old
/// key as soon as no signature by it is in use.
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
    /// The last day on which the key is trusted, in UTC. A time in the signature isn't used,
    /// because the owner of the key can choose that time.
    pub not_after: Option<Date>,
    /// Whether the key is no longer trusted, for example because it was stolen.
    pub revoked: bool,
}

impl TrustedKey {
    /// Checks whether the key is trusted for this plugin from this source. An unknown source,
    /// `None`, is accepted only if `sources` is empty.
    pub(crate) fn covers(&self, plugin: &str, source: Option<&str>) -> bool {
        let is_for_plugin = self.plugins.iter().any(|pattern| pattern.matches(plugin));
        if !is_for_plugin {
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
    /// Checks whether the pattern matches the name.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.0 == name,
        }
    }
}

impl PluginPattern {
    /// Checks whether the pattern matches every name that `other` matches.
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

/// The reason why a text isn't a pattern.
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
        let has_valid_length = !text.is_empty() && text.len() <= MAX_PLUGIN_PATTERN;
        let has_valid_characters =
            start.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if has_valid_length && has_valid_characters {
            Ok(Self(text.into()))
        } else {
            Err(PatternError::Plugin)
        }
    }
}

/// Sources of plugins: one source, `oci://registry.example/acme/*` for all sources below it, or `*`
/// for all sources. `oci://registry.example/acme/notes` also matches its tags and digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePattern(String);

impl SourcePattern {
    /// Returns the pattern `*`.
    pub fn everything() -> Self {
        Self("*".into())
    }

    /// Checks whether the pattern matches the source. `…/acme/*` doesn't match `…/acme-evil/x`, and
    /// doesn't match a path with `..` that leads out of `…/acme`.
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
        // A plugin's name in a registry also matches the plugin's tags and digests.
        match source.strip_prefix(&self.0) {
            Some(version) => version.starts_with([':', '@']) && !version.contains('/'),
            None => false,
        }
    }

    /// Checks whether the pattern matches every source that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let Some(other_folder) = other.0.strip_suffix('*') else { return self.matches(&other.0) };
        if self.0 == "*" {
            return true;
        }
        // Only a pattern for this folder, or for a folder above it, matches all sources below it.
        let Some(folder) = self.0.strip_suffix('*') else { return false };
        let is_same_folder = folder == other_folder;
        is_same_folder || self.matches(other_folder.trim_end_matches('/'))
    }
}

fn is_path_below(path: &str) -> bool {
    let lower_case = path.to_ascii_lowercase();
    // Servers may decode an encoded dot or slash before they search for the file.
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
        if text == "*" {
            return Ok(Self(text.into()));
        }
        let start = text.strip_suffix("/*").unwrap_or(text);
        let has_valid_length = !start.is_empty() && text.len() <= MAX_SOURCE_PATTERN;
        let has_valid_characters =
            start.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
        let has_valid_end = !start.ends_with([':', '/']);
        let is_valid = has_valid_length && has_valid_characters && has_valid_end;
        if !is_valid {
            return Err(PatternError::Source);
        }
        // A registry without the name of a plugin matches no source.
        if !text.ends_with('*') && is_registry(start) {
            return Err(PatternError::Source);
        }
        Ok(Self(text.into()))
    }
}

/// Checks whether a source names only a registry. In `oci://HOST:PORT`, the port would be read as a
/// tag.
fn is_registry(source: &str) -> bool {
    let location = source.strip_prefix("oci://").or_else(|| source.strip_prefix("oci+http://"));
    location.is_some_and(|location| !location.contains('/'))
}
