//! Describes the requests of a plugin in plain words, before a person installs the plugin.

use toolhold_core::{Capability, CapabilityRequest, Manifest};

/// One kind of access that a plugin can get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ability {
    /// The capability in manifests.
    pub(crate) capability: &'static str,
    /// The capability in a word or two.
    pub(crate) noun: &'static str,
    /// A description in words that follow "asks to".
    pub(crate) words: &'static str,
    /// The plugin's reason for requesting this ability. The plugin wrote this text, so neutralise
    /// it.
    pub(crate) reason: Option<String>,
}

/// Returns every ability. The plugin asks for the abilities with a reason.
pub(crate) fn abilities(manifest: &Manifest) -> Vec<Ability> {
    Capability::ALL.into_iter().map(|capability| ability(capability, manifest)).collect()
}

fn ability(capability: Capability, manifest: &Manifest) -> Ability {
    let request = manifest.asks_for(capability);
    let reads_only = request.is_some_and(CapabilityRequest::is_read_only);
    let words = match capability {
        Capability::Files if reads_only => "read files in granted directories",
        _ => capability.facts().ability,
    };
    let reason = request.map(|request| request.reason.clone());
    Ability { capability: capability.name(), noun: capability.facts().noun, words, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_those_that_the_manifest_asks_for() {
        let manifest: Manifest = serde_json::from_str(
            r#"{"manifest": 1, "name": "a", "version": "1", "description": "d", "capabilities": [{"name": "files", "access": "read", "reason": "to read"}, {"name": "http", "reason": "to ask"}]}"#,
        )
        .unwrap();
        let all = abilities(&manifest);
        let has: Vec<(&str, &str)> =
            all.iter().filter_map(|one| Some((one.capability, one.reason.as_deref()?))).collect();
        assert_eq!(has, [("files", "to read"), ("http", "to ask")]);
        assert_eq!(all[0].words, "read files in granted directories");
        assert!(all.iter().any(|one| one.capability == "process" && one.reason.is_none()));
    }
}
