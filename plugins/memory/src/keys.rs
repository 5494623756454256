//! Adds the keys of entries to their texts, for entries that were saved before keys were searched.
//!
//! An entry is found by the words of its key too, since its text begins with the key. A search
//! can't write, so older entries get that when their user saves something.

use toolhold_sdk::index::{self, Document, Query};
use toolhold_sdk::{Caller, HostError};

use crate::entry::{self, Origin};
use crate::scope::Scope;

/// The tag of an entry that was saved when all of its user's entries were found by their keys. With
/// one of them in a scope, nobody has to look for older ones again.
const DONE: &str = "keys:searched";

/// Entries that are changed while another one is saved.
const LATER: usize = 1000;

/// Entries that are changed at once.
const BATCH: usize = 50;

/// Puts the keys of older entries into their texts. Returns the tag that the entry `saved` gets, if
/// it is the one that says that none is left. `prefix`: that of its scope.
///
/// # Errors
///
/// The index can't be read or written.
pub(crate) fn add_to_older(
    caller: &Caller,
    prefix: &str,
    saved: &str,
) -> Result<Option<String>, HostError> {
    let done = Query { prefix: prefix.to_owned(), ..Query::words("").tagged(DONE).limit(1) };
    if let Some(known) = index::search(done)?.first() {
        return Ok((known.key == saved).then(|| DONE.to_owned()));
    }
    let mut older = Vec::new();
    for scope in Scope::ALL {
        let prefix = scope.prefix(caller);
        for entry in index::list(&prefix) {
            let entry = entry?;
            let key = entry.key.strip_prefix(&prefix).unwrap_or(&entry.key);
            let origin = serde_json::from_slice(&entry.data);
            if entry::is_chosen(key) && origin.is_ok_and(|origin: Origin| !origin.keyed) {
                let key = key.to_owned();
                older.push((entry.key, key));
            }
            if older.len() > LATER {
                break;
            }
        }
    }
    for batch in older[..older.len().min(LATER)].chunks(BATCH) {
        let ids: Vec<String> = batch.iter().map(|(id, _)| id.clone()).collect();
        let found = index::get(&ids)?.into_iter().zip(batch);
        let changed = found.filter_map(|(document, (_, key))| with_key(document?, key));
        match index::put(changed.collect()) {
            // The memory is full: what is saved now may still replace an entry.
            Err(error) if error.code == "limit" => return Ok(None),
            written => written?,
        }
    }
    Ok((older.len() <= LATER).then(|| DONE.to_owned()))
}

/// The document with its key in its text. `None`: it was changed meanwhile.
fn with_key(document: Document, key: &str) -> Option<Document> {
    let origin: Origin = serde_json::from_slice(&document.data).ok()?;
    if origin.keyed {
        return None;
    }
    let data = serde_json::to_vec(&Origin { keyed: true, ..origin }).ok()?;
    Some(Document { text: entry::with_key(key, &document.text, true), data, ..document })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::testing::{call, set_caller};

    use super::*;
    use crate::save::Save;
    use crate::search::Search;

    fn caller() -> Caller {
        Caller {
            user: "u".to_owned(),
            project: "p".to_owned(),
            session: "s".to_owned(),
            front_end: "test".to_owned(),
            agent: None,
            untrusted: false,
        }
    }

    fn save(content: &str, key: Option<&str>) {
        let mut arguments = json!({ "content": content });
        key.into_iter().for_each(|key| arguments["key"] = json!(key));
        call::<Save>(arguments).unwrap();
    }

    fn found(query: &str) -> String {
        call::<Search>(json!({ "query": query, "limit": 20 })).unwrap().joined_text()
    }

    #[test]
    fn entry_is_found_by_the_words_of_its_key() {
        set_caller(caller());
        save("Run make ship", Some("deploy-command"));
        save("Lasts an hour", Some("lunch.break"));
        save("Something else", None);
        for query in ["deploy", "the command", "deploy-command"] {
            let text = found(query);
            assert!(text.starts_with("Found 1 memory\n\n1. deploy-command ("), "{text}");
            assert!(text.ends_with(")\nRun make ship\n"), "the key is no content: {text}");
        }
        assert!(found("when is lunch").contains("1. lunch.break ("));
        // A key that nobody chose says nothing.
        assert_eq!(found("m"), "No matching memories found");
    }

    /// An entry as it was kept before.
    fn older(scope: Scope, key: &str, content: &str) -> Document {
        let data = json!({
            "time": 1, "call": "c", "front_end": "cli", "version": "0", "category": "core",
            "untrusted": true,
        });
        let data = data.to_string().into_bytes();
        Document {
            data,
            vector: Some(vec![1]),
            ..Document::new(format!("{}{key}", scope.prefix(&caller())), content).tagged("kept")
        }
    }

    #[test]
    fn older_entries_get_their_keys_with_a_save() {
        set_caller(caller());
        let mut documents: Vec<Document> =
            (0..120).map(|one| older(Scope::User, &format!("old-{one}"), "a\nb")).collect();
        documents.push(older(Scope::Project, "m-0123456789ab", "made"));
        for batch in documents.chunks(50) {
            index::put(batch.to_vec()).unwrap();
        }
        assert_eq!(found("old"), "No matching memories found");
        save("new", Some("new"));
        let text = found("old");
        assert!(text.starts_with("Found 20 memories"), "{text}");
        let id = documents[7].key.clone();
        let now = index::get(&[id, documents[120].key.clone()]).unwrap();
        let now: Vec<Document> = now.into_iter().flatten().collect();
        assert_eq!(now[0].text, "old-7\na\nb");
        assert_eq!((&now[0].tags, &now[0].vector), (&documents[7].tags, &documents[7].vector));
        let origin: Origin = serde_json::from_slice(&now[0].data).unwrap();
        assert!(origin.untrusted && origin.keyed && origin.time == 1, "{origin:?}");
        assert_eq!(now[1], documents[120]);
        // Nobody looks for older ones again, also if the entry that says so is replaced.
        save("newer", Some("new"));
        index::put(vec![older(Scope::User, "late", "x")]).unwrap();
        save("another", Some("other"));
        assert_eq!(found("late"), "No matching memories found");
    }
}
