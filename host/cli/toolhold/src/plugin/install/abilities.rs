//! Says in plain words what a plugin can do once it has its grants, before a person installs it.

use toolhold_core::Manifest;

/// One thing that plugins can be allowed to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ability {
    /// The capability in manifests.
    pub(crate) capability: &'static str,
    /// What it is, in words that follow "can" or "can't".
    pub(crate) words: &'static str,
    /// The plugin's reason, if it asks for this. Text of the plugin: neutralise it.
    pub(crate) reason: Option<String>,
}

/// Every ability that there is. The plugin has those with a reason, as far as they are granted.
pub(crate) fn abilities(manifest: &Manifest) -> Vec<Ability> {
    let reads_only =
        manifest.asks_for("files").is_some_and(|request| request.access.as_deref() == Some("read"));
    let files = match reads_only {
        true => "read files in the directories that you grant",
        false => "read and change files in the directories that you grant",
    };
    [
        ("files", files),
        ("search", "search those directories"),
        ("http", "send requests to the hosts that you grant"),
        ("process", "start the programs that you grant, in the sandbox of commands"),
        ("service", "have programs that outlive a call, as many as you grant"),
        ("store", "keep data of its own between calls, as much as you grant"),
        ("index", "keep documents of its own and search in them, as much as you grant"),
        ("embeddings", "send texts to a model that makes vectors of them, if you name one"),
        ("parts", "run pure components that it brings along, for as long as you grant"),
        ("schedule", "call its own tools at a later time, with as many tasks as you grant"),
        ("session", "keep its memory between the calls of a session, if you grant it"),
    ]
    .into_iter()
    .map(|(capability, words)| Ability {
        capability,
        words,
        reason: manifest.asks_for(capability).map(|request| request.reason.clone()),
    })
    .collect()
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
        assert_eq!(all[0].words, "read files in the directories that you grant");
        assert!(all.iter().any(|one| one.capability == "process" && one.reason.is_none()));
    }
}
