//! Describes the requests of a plugin for the person who installs it.

use toolhold_core::{Capability, CapabilityRequest, Manifest};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ability {
    /// The name of the capability in manifests.
    pub(crate) capability: &'static str,
    /// A name of one or two words.
    pub(crate) noun: &'static str,
    /// A description that can follow "asks to".
    pub(crate) words: &'static str,
    /// The manifest's reason for the request, or `None` if there is no request. The plugin's author
    /// wrote the text, so it must be neutralised.
    pub(crate) reason: Option<String>,
}

/// Returns all abilities, even if they aren't requested.
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
