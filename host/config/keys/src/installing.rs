//! `[installing]`: the plugins that may be installed and loaded, and the keys that sign them.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use toolhold_signing::{PluginPattern, PublicKey, SourcePattern, TrustedKey};

use crate::Sha256;
use crate::narrowing::{Narrowing, section};

section! {
    /// The plugins that may be installed and loaded, from any source. Built-in plugins are a part
    /// of the program and are always allowed.
    #[derive(Eq)]
    pub struct Installing {
        /// Whether a plugin needs a signature by one of `keys` before it is installed and loaded.
        pub require_signature: bool, Narrowing::OnlyTrue;
        /// Sources from which plugins may come: a source, a source and `/*` for all sources below
        /// it, or `"*"`. The source of a component that is loaded by `path` or from the plugin
        /// folder is its file. If empty, no plugin is installed or loaded.
        #[schemars(extend("examples" = [["oci://registry.example.com/acme/*"]]))]
        pub sources: Vec<Parsed<SourcePattern>> = vec![everything()], Narrowing::Covered(covers_source);
        /// Keys that are trusted to sign plugins. To replace a key, first add the new key. Set
        /// `revoked` for the old key when it no longer signs any plugin.
        pub keys: Vec<InstallKey>, Narrowing::Covered(InstallKey::covers_written);
        /// The plugins that may be installed and loaded, by name, by the digest of the component,
        /// or by the key that signed it. If empty, no plugin is allowed.
        #[schemars(extend("examples" = [[{ "key": "RWQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "plugins": ["acme-*"] }]]))]
        pub allowed: Vec<AllowedPlugin> = vec![AllowedPlugin::any()], Narrowing::Covered(AllowedPlugin::covers_written);
    }
}

impl Installing {
    /// Checks whether every component may be loaded. Components then aren't examined.
    pub fn allows_everything(&self) -> bool {
        !self.require_signature
            && self.keys.is_empty()
            && self.allows_every_plugin()
            && self.sources.iter().any(|source| source.0 == SourcePattern::everything())
    }

    /// Checks whether `allowed` allows every plugin.
    pub fn allows_every_plugin(&self) -> bool {
        self.allowed.iter().any(|entry| entry.covers(&AllowedPlugin::any()))
    }
}

/// Plugins that may be installed and loaded. A plugin must match all fields of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
pub struct AllowedPlugin {
    /// The plugins' names: names, `"acme-*"` for all names with that prefix, or `"*"`. If absent,
    /// all plugins match.
    #[serde(default = "every_name")]
    #[schemars(default)]
    pub plugins: Vec<Parsed<PluginPattern>>,
    /// SHA-256 of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256>,
    /// The public key that signed the component. The key must also be in `keys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Parsed<PublicKey>>,
}

impl AllowedPlugin {
    fn any() -> Self {
        Self { plugins: every_name(), digest: None, key: None }
    }

    /// Checks whether the entry allows a name and a digest. Doesn't check the key.
    pub fn matches(&self, name: &str, digest: &str) -> bool {
        let allows_digest = match &self.digest {
            Some(own) => own.as_str() == digest,
            None => true,
        };
        allows_digest && self.plugins.iter().any(|pattern| pattern.0.matches(name))
    }

    /// Checks whether the entry `one` covers every plugin of the entry `other`.
    pub fn covers_written(one: &Value, other: &Value) -> bool {
        match (Self::deserialize(one), Self::deserialize(other)) {
            (Ok(one), Ok(other)) => one.covers(&other),
            _ => false,
        }
    }

    fn covers(&self, other: &Self) -> bool {
        all_in(&self.plugins, &other.plugins, PluginPattern::covers)
            && (self.digest.is_none() || self.digest == other.digest)
            && (self.key.is_none() || self.key == other.key)
    }
}

fn every_name() -> Vec<Parsed<PluginPattern>> {
    "*".parse().map(Parsed).into_iter().collect()
}

/// A key that is trusted to sign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline, deny_unknown_fields)]
pub struct InstallKey {
    /// Your name for the key.
    pub name: String,
    /// The public key: the line that `toolhold plugin key show` prints, or the second line of
    /// minisign's file.
    pub key: Parsed<PublicKey>,
    /// The plugins that the key may sign: names, `"acme-*"` for all names with that prefix, or
    /// `"*"`. If empty, the key may sign no plugin.
    #[serde(default)]
    pub plugins: Vec<Parsed<PluginPattern>>,
    /// The sources from which these plugins may come, as in `sources` of `[installing]`. If empty,
    /// all sources are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Parsed<SourcePattern>>,
    /// Whether the key may sign bundles, which contain plugins and configuration.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bundles: bool,
    /// The last day on which the key is valid, in UTC: `"2027-12-31"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Parsed<Date>>,
    /// Whether the key is no longer valid, for example because it was stolen.
    #[serde(default, skip_serializing_if = "is_false")]
    pub revoked: bool,
}

impl InstallKey {
    /// Returns the key for verifying signatures.
    pub fn trusted(&self) -> TrustedKey {
        TrustedKey {
            name: self.name.clone(),
            key: self.key.0.clone(),
            plugins: self.plugins.iter().map(|pattern| pattern.0.clone()).collect(),
            sources: self.sources.iter().map(|pattern| pattern.0.clone()).collect(),
            bundles: self.bundles,
            not_after: self.not_after.as_ref().map(|date| date.0),
            revoked: self.revoked,
        }
    }

    /// Checks whether the entry `one` trusts the same key as the entry `other`, for at least the
    /// same plugins, sources and days.
    pub fn covers_written(one: &Value, other: &Value) -> bool {
        match (Self::deserialize(one), Self::deserialize(other)) {
            (Ok(one), Ok(other)) => one.covers(&other),
            _ => false,
        }
    }

    fn covers(&self, other: &Self) -> bool {
        if self.key != other.key {
            return false;
        }
        // A revoked key grants nothing. Every entry covers it, and it covers no other entry.
        if self.revoked || other.revoked {
            return other.revoked;
        }
        if other.bundles && !self.bundles {
            return false;
        }
        self.covers_time(other)
            && self.covers_sources(other)
            && all_in(&self.plugins, &other.plugins, PluginPattern::covers)
    }

    fn covers_time(&self, other: &Self) -> bool {
        match (&self.not_after, &other.not_after) {
            (None, _) => true,
            (Some(own), Some(other)) => other.0 <= own.0,
            (Some(_), None) => false,
        }
    }

    /// An empty list means all sources.
    fn covers_sources(&self, other: &Self) -> bool {
        if self.sources.is_empty() || other.sources.is_empty() {
            return self.sources.is_empty();
        }
        all_in(&self.sources, &other.sources, SourcePattern::covers)
    }
}

/// Checks whether each entry of `other_list` is covered by an entry of `own_list`.
fn all_in<T>(own_list: &[Parsed<T>], other_list: &[Parsed<T>], covers: fn(&T, &T) -> bool) -> bool {
    other_list.iter().all(|other| own_list.iter().any(|own| covers(&own.0, &other.0)))
}

fn covers_source(one: &Value, other: &Value) -> bool {
    match (Parsed::<SourcePattern>::deserialize(one), Parsed::<SourcePattern>::deserialize(other)) {
        (Ok(one), Ok(other)) => one.0.covers(&other.0),
        _ => false,
    }
}

fn everything() -> Parsed<SourcePattern> {
    Parsed(SourcePattern::everything())
}

// serde calls this with a reference.
fn is_false(value: &bool) -> bool {
    !value
}

/// A value that is written as a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<T>(pub T);

impl<T: fmt::Display> Serialize for Parsed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        written.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl<T> JsonSchema for Parsed<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Text".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "RWTkp7wu9DV4mg7a2pNdpvNEOj9dYkZsMqrBuZ1Er/rkykxixdMMkWLG";
    const OTHER: &str = "RWQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    #[test]
    fn key_covers_what_trusts_it_with_less() {
        let with = |more: Value| {
            let mut entry = json!({ "name": "a", "key": KEY, "plugins": ["acme-*"] });
            entry.as_object_mut().into_iter().zip(more.as_object()).for_each(|(entry, more)| {
                entry.extend(more.clone());
            });
            entry
        };
        let plain = with(json!({}));
        let (until, sources) =
            (json!({ "not_after": "2027-01-31" }), json!({ "sources": ["oci://a/*"] }));
        for (less, covered) in [
            (json!({ "name": "b" }), true),
            (json!({ "plugins": [] }), true),
            (json!({ "plugins": ["acme-notes"] }), true),
            (until.clone(), true),
            (sources.clone(), true),
            (json!({ "revoked": true, "plugins": ["*"] }), true),
            (json!({ "plugins": ["*"] }), false),
            (json!({ "plugins": ["acme-notes", "other"] }), false),
            (json!({ "bundles": true }), false),
            (json!({ "key": OTHER }), false),
            (json!({ "more": true, "key": 1 }), false),
        ] {
            assert_eq!(InstallKey::covers_written(&plain, &with(less.clone())), covered, "{less}");
        }
        // What is bounded doesn't cover what isn't.
        for bounded in [until, sources, json!({ "revoked": true })] {
            assert!(!InstallKey::covers_written(&with(bounded.clone()), &plain), "{bounded}");
        }
        let later = with(json!({ "not_after": "2027-02-01" }));
        assert!(!InstallKey::covers_written(&with(json!({ "not_after": "2027-01-31" })), &later));
    }

    #[test]
    fn allowed_plugin_covers_what_has_to_fulfil_more() {
        let (digest, other) = ("a".repeat(64), "b".repeat(64));
        let entries = [
            json!({}),
            json!({ "plugins": ["acme-*"] }),
            json!({ "plugins": ["acme-notes"], "key": KEY }),
            json!({ "digest": digest }),
            json!({ "digest": digest, "key": KEY }),
            json!({ "digest": other }),
            json!({ "key": KEY }),
            json!({ "key": OTHER }),
        ];
        let covered: Vec<Vec<usize>> = entries
            .iter()
            .map(|one| {
                let covers = |at: &usize| AllowedPlugin::covers_written(one, &entries[*at]);
                (0..entries.len()).filter(covers).collect()
            })
            .collect();
        let expected: [&[usize]; 8] =
            [&[0, 1, 2, 3, 4, 5, 6, 7], &[1, 2], &[2], &[3, 4], &[4], &[5], &[2, 4, 6], &[7]];
        assert_eq!(covered, expected);
        assert!(Installing::default().allows_everything());
        assert!(!AllowedPlugin::covers_written(&json!({ "plugins": [] }), &entries[0]));
    }

    #[test]
    fn values_are_checked_where_they_are_written() {
        for wrong in [
            json!({ "name": "a" }),
            json!({ "name": "a", "key": "RWQ" }),
            json!({ "name": "a", "key": KEY, "plugins": ["Acme"] }),
            json!({ "name": "a", "key": KEY, "sources": ["oci://*"] }),
            json!({ "name": "a", "key": KEY, "not_after": "31.12.2027" }),
        ] {
            InstallKey::deserialize(&wrong).expect_err(&wrong.to_string());
        }
        let plain = Installing::default();
        assert!(plain.sources[0].0.matches("https://example.com/x.wasm"));
        assert!(plain.keys.is_empty() && !plain.require_signature);
    }
}
