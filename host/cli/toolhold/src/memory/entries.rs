//! Reads and changes the entries of the built-in memory.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use toolhold_core::text::{neutral_json, neutral_line};
use toolhold_core::{CancellationToken, HostError};
use toolhold_redaction::Keys;
use toolhold_store::index::{Document, DocumentIndex, IndexQuery};
use toolhold_store::{Stop, StoreError};
use toolhold_terminal::error::CommandError;

/// The most characters of an entry's text.
pub(crate) const MAX_CONTENT: usize = 4096;

/// The time limit of one operation on the memory's file.
const TIME: Duration = Duration::from_secs(60);

/// The number of entries that are read at once.
const BATCH: usize = 100;

/// The number of IDs that are read at once.
const ID_PAGE: usize = 1000;

/// The most IDs in an error about several entries with the same key.
const MAX_SHOWN_IDS: usize = 5;

pub(crate) struct Entries(DocumentIndex);

/// An entry and its origin, as the memory plugin wrote them.
#[derive(Debug)]
pub(crate) struct MemoryEntry {
    /// The scope, the owner and the key of the entry.
    pub(crate) id: String,
    pub(crate) content: String,
    tags: Vec<String>,
    origin: Map<String, Value>,
}

impl Entries {
    pub(crate) fn new(documents: DocumentIndex) -> Self {
        Self(documents)
    }

    /// Runs an operation of the index with a time limit. A refused operation is a usage error.
    fn run<T>(
        &self,
        operation: impl FnOnce(&DocumentIndex, &Stop) -> Result<T, StoreError>,
    ) -> Result<T, CommandError> {
        let stop = Stop { deadline: Instant::now() + TIME, cancel: CancellationToken::new() };
        operation(&self.0, &stop).map_err(|error| match error {
            StoreError::Invalid(message) => CommandError::Usage(message),
            error => HostError::Config(format!("memory: {error}")).into(),
        })
    }

    pub(crate) fn search(&self, query: &IndexQuery<'_>) -> Result<Vec<MemoryEntry>, CommandError> {
        let hits = self.run(|index, stop| index.search(query, stop))?;
        let keys: Vec<String> = hits.into_iter().map(|hit| hit.key).collect();
        self.get(&keys)
    }

    /// Reads the entries with these keys, without missing entries.
    fn get(&self, keys: &[String]) -> Result<Vec<MemoryEntry>, CommandError> {
        let mut entries = Vec::new();
        for batch in keys.chunks(BATCH) {
            let found = self.run(|index, stop| index.get(batch, stop))?;
            entries.extend(found.into_iter().flatten().map(MemoryEntry::from_document));
        }
        Ok(entries)
    }

    /// Calls `visit` for all entries whose IDs start with `prefix`.
    pub(crate) fn each(
        &self,
        prefix: &str,
        mut visit: impl FnMut(&MemoryEntry) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let mut cursor: Option<String> = None;
        loop {
            let page =
                self.run(|index, stop| index.list(prefix, cursor.as_deref(), BATCH, stop))?;
            let keys: Vec<String> = page.entries.into_iter().map(|entry| entry.key).collect();
            for entry in self.get(&keys)? {
                visit(&entry)?;
            }
            if page.cursor.is_none() {
                return Ok(());
            }
            cursor = page.cursor;
        }
    }

    /// Finds an entry by its ID or key. The entry's ID must start with `prefix`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such entry, or if several entries have the key.
    pub(crate) fn find(&self, key: &str, prefix: &str) -> Result<MemoryEntry, CommandError> {
        let shown = neutral_line(key);
        if key.is_empty() || key.len() > toolhold_store::index::MAX_KEY {
            return Err(CommandError::Usage(format!("`{shown}` isn't a valid key of a memory")));
        }
        if let Some(entry) = self.get(&[key.to_owned()])?.pop()
            && entry.id.starts_with(prefix)
        {
            return Ok(entry);
        }
        let ids = self.ids_with_key(key, prefix)?;
        match &ids[..] {
            [] => Err(CommandError::Usage(format!(
                "there is no memory with the key `{shown}`; `toolhold memory search` lists the \
                 latest memories"
            ))),
            [_] => self.get(&ids)?.pop().ok_or_else(|| {
                CommandError::Usage(format!("the memory `{shown}` was deleted in the meantime"))
            }),
            several => {
                let ids: Vec<String> =
                    several.iter().take(MAX_SHOWN_IDS).map(|id| neutral_line(id)).collect();
                Err(CommandError::Usage(format!(
                    "several memories have the key `{shown}`; use the ID of one:\n  {}",
                    ids.join("\n  ")
                )))
            }
        }
    }

    /// Returns the IDs of entries with this key. Stops when more IDs are found than an error shows.
    fn ids_with_key(&self, key: &str, prefix: &str) -> Result<Vec<String>, CommandError> {
        let mut ids = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page =
                self.run(|index, stop| index.list(prefix, cursor.as_deref(), ID_PAGE, stop))?;
            for entry in page.entries {
                // The index has the entry's ID as the key.
                if key_of(&entry.key) == key {
                    ids.push(entry.key);
                }
            }
            if page.cursor.is_none() || ids.len() > MAX_SHOWN_IDS {
                return Ok(ids);
            }
            cursor = page.cursor;
        }
    }

    pub(crate) fn put(&self, document: Document) -> Result<(), CommandError> {
        self.run(|index, stop| index.put(&[document], stop))
    }

    pub(crate) fn delete(&self, id: &str) -> Result<(), CommandError> {
        self.run(|index, stop| index.delete(&[id.to_owned()], stop))
    }

    /// Returns the number of deleted entries.
    pub(crate) fn delete_prefix(&self, prefix: &str) -> Result<usize, CommandError> {
        let mut total = 0;
        // A call of the index deletes only a limited number of entries.
        loop {
            let deleted = self.run(|index, stop| index.delete_prefix(prefix, stop))?;
            if deleted == 0 {
                return Ok(total);
            }
            total += deleted;
        }
    }
}

/// Returns the last part of an ID, after the scope and the owner.
fn key_of(id: &str) -> &str {
    let parts_before = if id.starts_with("user/") { 2 } else { 3 };
    id.splitn(parts_before + 1, '/').nth(parts_before).unwrap_or(id)
}

impl MemoryEntry {
    fn from_document(document: Document) -> Self {
        let Document { key, text, tags, data, vector: _ } = document;
        // An entry with an unreadable origin is untrusted.
        let origin: Map<String, Value> = serde_json::from_slice(&data).unwrap_or_default();
        let mut entry = Self { id: key, content: text, tags, origin };
        // If an entry has a key of its own, the first line of its text is the key.
        if entry.is_keyed()
            && let Some((_, content)) = entry.content.split_once('\n')
        {
            entry.content = content.to_owned();
        }
        entry
    }

    /// Checks whether the stored text begins with the key. The plugin stores the key there so that
    /// a search finds its words.
    fn is_keyed(&self) -> bool {
        self.origin.get("keyed") == Some(&Value::Bool(true))
    }

    pub(crate) fn key(&self) -> &str {
        key_of(&self.id)
    }

    pub(crate) fn scope(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }

    /// Returns the project's opaque name.
    pub(crate) fn project(&self) -> Option<&str> {
        self.id.strip_prefix("project/")?.split('/').nth(1)
    }

    pub(crate) fn is_untrusted(&self) -> bool {
        self.origin.get("untrusted") != Some(&Value::Bool(false))
    }

    pub(crate) fn category(&self) -> String {
        self.text_of("category")
    }

    pub(crate) fn text_of(&self, name: &str) -> String {
        self.origin.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned()
    }

    fn time(&self) -> Timestamp {
        let seconds = self.origin.get("time").and_then(Value::as_i64).unwrap_or_default();
        Timestamp::from_second(seconds).unwrap_or_default()
    }

    pub(crate) fn day(&self) -> String {
        self.time().to_string().chars().take(10).collect()
    }

    /// Returns a hash of the content. It has 128 bits, because for 64 bits, an attacker could find
    /// two texts with the same hash in minutes.
    pub(crate) fn hash(&self) -> String {
        let digest = Sha256::digest(&self.content);
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the entry as JSON, without secrets.
    pub(crate) fn json(&self) -> Value {
        let value = json!({
            "id": self.id,
            "key": self.key(),
            "scope": self.scope(),
            "content": self.content,
            "category": self.category(),
            "time": self.time().to_string(),
            "untrusted": self.is_untrusted(),
            "call": self.text_of("call"),
            "front_end": self.text_of("front_end"),
            "agent": self.origin.get("agent"),
            "version": self.text_of("version"),
        });
        neutral_json(toolhold_redaction::json(value, Keys::Text))
    }

    /// Marks the entry as trusted, and returns the document that replaces the entry. `text` is the
    /// person's new text, if there is one.
    pub(crate) fn edited(mut self, text: Option<String>) -> Document {
        self.origin.insert("untrusted".to_owned(), false.into());
        // Without this tag, the memory plugin computes a new vector for the entry.
        self.tags.retain(|tag| !tag.starts_with("vector:"));
        if let Some(text) = text {
            self.content = text;
            self.origin.insert("front_end".to_owned(), "toolhold memory edit".into());
            // The recorded call and agent belong to the old text.
            self.origin.insert("call".to_owned(), "".into());
            self.origin.remove("agent");
            self.origin.insert("time".to_owned(), Timestamp::now().as_second().into());
            // This tag has the hash of the old text, by which the plugin would find wrong
            // duplicates.
            self.tags.retain(|tag| !tag.starts_with("content:"));
        }
        let text = if self.is_keyed() {
            format!("{}\n{}", self.key(), self.content)
        } else {
            self.content
        };
        Document {
            key: self.id,
            text,
            tags: self.tags,
            vector: None,
            data: Value::Object(self.origin).to_string().into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_what_follows_the_scope() {
        assert_eq!(key_of("user/u/a/b"), "a/b");
        assert_eq!(key_of("project/u/p/a/b"), "a/b");
        assert_eq!(key_of("session/u/s/a"), "a");
        assert_eq!(key_of("odd"), "odd");
    }
}
