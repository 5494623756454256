//! Ranked search in documents that the plugin keeps between its calls, and no other plugin sees.
//! The plugin asks for it in its manifest: `index = "reason"`.
//!
//! ```
//! # fn main() -> Result<(), toolhold_sdk::Failure> {
//! use toolhold_sdk::index::{self, Document, Query};
//!
//! index::put(vec![
//!     Document::new("notes/1", "The tests need a database").tagged("project"),
//!     Document::new("notes/2", "The user likes short answers"),
//! ])?;
//! let hits = index::search(Query::words("which database?").tagged("project").limit(5))?;
//! assert_eq!(hits[0].key, "notes/1");
//! # Ok(())
//! # }
//! ```
//!
//! A query is words, never syntax. Documents with more and with rarer words come first. With a
//! vector, the host ranks by it too. What was written is on disk when a function returns. The
//! operator bounds the bytes and the number of documents. A tool that is read-only can't write.
//!
//! In unit tests, each thread has an index of its own, which is empty at first, and which ranks by
//! the number of words alone.

use std::collections::VecDeque;

use crate::HostError;

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Its key, 1 to 512 bytes. A document replaces the one with the same key.
    pub key: String,
    /// The text that is searched for words, at most 1 MiB.
    pub text: String,
    /// Tags that a query can ask for exactly: at most 16, of 1 to 256 bytes.
    pub tags: Vec<String>,
    /// A vector of 1 to 4,096 numbers. It is compared with vectors that have as many.
    pub vector: Option<Vec<i8>>,
    /// Data that is kept with it and not searched, at most 64 KiB.
    pub data: Vec<u8>,
}

impl Document {
    /// A document with a text.
    pub fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { key: key.into(), text: text.into(), ..Self::default() }
    }

    /// Adds a tag.
    pub fn tagged(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }
}

/// A document in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The data that is kept with it.
    pub data: Vec<u8>,
}

/// A query. A query without words and without a vector finds the latest documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Words, at most 4 KiB.
    pub words: String,
    /// At most 16 tags, which a hit all has.
    pub tags: Vec<String>,
    /// The beginning of the key of a hit.
    pub prefix: String,
    /// A vector. A hit has a vector near it.
    pub vector: Option<Vec<i8>>,
    /// Hits, at most 1,000.
    pub limit: u32,
}

impl Query {
    /// A query for words, with at most 10 hits.
    pub fn words(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            tags: Vec::new(),
            prefix: String::new(),
            vector: None,
            limit: 10,
        }
    }

    /// Adds a tag that a hit has.
    pub fn tagged(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets the number of hits.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }
}

/// A document that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Its key.
    pub key: String,
    /// Higher is better. Only hits of one query can be compared.
    pub score: f64,
    /// Whether it was found by its words.
    pub by_words: bool,
    /// Whether it was found by its vector.
    pub by_vector: bool,
}

/// Writes documents, all of them or none: at most 1,000, and at most 8 MiB.
///
/// # Errors
///
/// Invalid documents, the operator's limit, a read-only tool, or an index that can't be written.
/// Nothing has changed then.
pub fn put(documents: Vec<Document>) -> Result<(), HostError> {
    host::put(documents)
}

/// Deletes documents, all of them or none: at most 1,000. They need not exist.
///
/// # Errors
///
/// The errors of [`put`].
pub fn delete(keys: &[String]) -> Result<(), HostError> {
    host::delete(keys)
}

/// Deletes the documents whose keys begin with `prefix`, and returns their number. Many of them are
/// deleted step by step, so those that are left after an error are whole.
///
/// # Errors
///
/// The errors of [`put`].
pub fn delete_prefix(prefix: &str) -> Result<u64, HostError> {
    let mut all = 0;
    loop {
        let deleted = host::delete_prefix(prefix)?;
        all += deleted;
        if deleted == 0 {
            return Ok(all);
        }
    }
}

/// The documents with these keys, in their order: at most 1,000, and at most 4 MiB.
///
/// # Errors
///
/// Invalid keys, too many bytes, or an index that can't be read.
pub fn get(keys: &[String]) -> Result<Vec<Option<Document>>, HostError> {
    host::get(keys)
}

/// The documents whose keys begin with `prefix`, without texts and vectors, sorted by the bytes of
/// their keys. They are read page by page. Documents that change meanwhile may be old or new.
pub fn list(prefix: &str) -> Entries {
    Entries { prefix: prefix.to_owned(), page: VecDeque::new(), next: Next::First }
}

/// The best documents for a query, the best first.
///
/// # Errors
///
/// An invalid query, or an index that can't be read.
pub fn search(query: Query) -> Result<Vec<Hit>, HostError> {
    host::search(query)
}

/// The documents of a listing.
#[derive(Debug)]
pub struct Entries {
    prefix: String,
    page: VecDeque<Entry>,
    next: Next,
}

#[derive(Debug)]
enum Next {
    First,
    From(String),
    End,
}

impl Iterator for Entries {
    type Item = Result<Entry, HostError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.page.is_empty() {
            let cursor = match std::mem::replace(&mut self.next, Next::End) {
                Next::First => None,
                Next::From(cursor) => Some(cursor),
                Next::End => return None,
            };
            match host::list(&self.prefix, cursor.as_deref()) {
                Ok((entries, cursor)) => {
                    self.page = entries.into();
                    self.next = cursor.map_or(Next::End, Next::From);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        self.page.pop_front().map(Ok)
    }
}

#[cfg(target_arch = "wasm32")]
mod host {
    use super::{Document, Entry, Hit, HostError, Query};
    use crate::contract::bindings::toolhold::host::index as wit;
    use crate::contract::bindings::toolhold::host::types::Error;

    pub(super) fn put(documents: Vec<Document>) -> Result<(), HostError> {
        let documents: Vec<_> = documents
            .into_iter()
            .map(|one| wit::Document {
                key: one.key,
                text: one.text,
                tags: one.tags,
                vector: one.vector,
                data: one.data,
                meta: None,
            })
            .collect();
        wit::put(&documents).map_err(error)
    }

    pub(super) fn delete(keys: &[String]) -> Result<(), HostError> {
        wit::delete(keys).map_err(error)
    }

    pub(super) fn delete_prefix(prefix: &str) -> Result<u64, HostError> {
        wit::delete_prefix(prefix).map_err(error)
    }

    pub(super) fn get(keys: &[String]) -> Result<Vec<Option<Document>>, HostError> {
        let found = wit::get(keys).map_err(error)?;
        Ok(found.into_iter().map(|one| one.map(convert_document)).collect())
    }

    fn convert_document(one: wit::Document) -> Document {
        Document {
            key: one.key,
            text: one.text,
            tags: one.tags,
            vector: one.vector,
            data: one.data,
        }
    }

    pub(super) fn list(
        prefix: &str,
        cursor: Option<&str>,
    ) -> Result<(Vec<Entry>, Option<String>), HostError> {
        let page = wit::list(prefix, cursor, u32::MAX).map_err(error)?;
        let entries = page
            .entries
            .into_iter()
            .map(|one| Entry { key: one.key, tags: one.tags, data: one.data })
            .collect();
        Ok((entries, page.cursor))
    }

    pub(super) fn search(query: Query) -> Result<Vec<Hit>, HostError> {
        let hits = wit::search(&wit::Query {
            words: query.words,
            tags: query.tags,
            prefix: query.prefix,
            vector: query.vector,
            limit: query.limit,
            meta: None,
        });
        Ok(hits.map_err(error)?.into_iter().map(convert_hit).collect())
    }

    fn convert_hit(one: wit::Hit) -> Hit {
        Hit {
            by_words: one.found_by.iter().any(|by| by == "words"),
            by_vector: one.found_by.iter().any(|by| by == "vector"),
            key: one.key,
            score: one.score,
        }
    }

    fn error(error: Error) -> HostError {
        HostError::new("index", error.code, error.message)
    }
}

/// The stand-in for the host in unit tests. It has the host's limits for keys and their number.
#[cfg(not(target_arch = "wasm32"))]
mod host {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::{Document, Entry, Hit, HostError, Query};

    const MAX_KEY: usize = 512;
    const MAX_DOCUMENTS: usize = 1000;

    /// Entries of a page, and documents deleted at once. Few, so that tests meet several rounds.
    const PAGE: usize = 3;

    thread_local! {
        static DOCUMENTS: RefCell<BTreeMap<String, Document>> = RefCell::default();
    }

    fn check<'k>(keys: impl ExactSizeIterator<Item = &'k String>) -> Result<(), HostError> {
        if keys.len() > MAX_DOCUMENTS {
            let message = format!("there are {}; the limit is {MAX_DOCUMENTS}", keys.len());
            return Err(HostError::new("index", "invalid", message));
        }
        for key in keys {
            if key.is_empty() || key.len() > MAX_KEY {
                let message = format!("a key is {} bytes; it needs 1 to {MAX_KEY}", key.len());
                return Err(HostError::new("index", "invalid", message));
            }
        }
        Ok(())
    }

    pub(super) fn put(documents: Vec<Document>) -> Result<(), HostError> {
        check(documents.iter().map(|document| &document.key))?;
        DOCUMENTS.with_borrow_mut(|kept| {
            kept.extend(documents.into_iter().map(|document| (document.key.clone(), document)));
        });
        Ok(())
    }

    pub(super) fn delete(keys: &[String]) -> Result<(), HostError> {
        check(keys.iter())?;
        DOCUMENTS.with_borrow_mut(|kept| kept.retain(|key, _| !keys.contains(key)));
        Ok(())
    }

    pub(super) fn delete_prefix(prefix: &str) -> Result<u64, HostError> {
        let keys: Vec<String> = DOCUMENTS.with_borrow(|kept| {
            kept.keys().filter(|key| key.starts_with(prefix)).take(PAGE).cloned().collect()
        });
        delete(&keys)?;
        Ok(keys.len() as u64)
    }

    pub(super) fn get(keys: &[String]) -> Result<Vec<Option<Document>>, HostError> {
        check(keys.iter())?;
        Ok(DOCUMENTS.with_borrow(|kept| keys.iter().map(|key| kept.get(key).cloned()).collect()))
    }

    pub(super) fn list(
        prefix: &str,
        cursor: Option<&str>,
    ) -> Result<(Vec<Entry>, Option<String>), HostError> {
        DOCUMENTS.with_borrow(|kept| {
            let found = kept
                .values()
                .filter(|one| one.key.starts_with(prefix))
                .filter(|one| cursor.is_none_or(|cursor| one.key.as_str() > cursor));
            let mut page: Vec<Entry> = found
                .take(PAGE + 1)
                .map(|one| Entry {
                    key: one.key.clone(),
                    tags: one.tags.clone(),
                    data: one.data.clone(),
                })
                .collect();
            let more = page.len() > PAGE;
            page.truncate(PAGE);
            let cursor = if more { page.last().map(|last| last.key.clone()) } else { None };
            Ok((page, cursor))
        })
    }

    fn words(text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    }

    fn cosine(a: &[i8], b: &[i8]) -> f64 {
        product(a, b) / (product(a, a) * product(b, b)).sqrt()
    }

    fn product(a: &[i8], b: &[i8]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    pub(super) fn search(query: Query) -> Result<Vec<Hit>, HostError> {
        let asked = words(&query.words);
        let is_open = asked.is_empty() && query.vector.is_none();
        DOCUMENTS.with_borrow(|kept| {
            let mut hits: Vec<Hit> = kept
                .values()
                .filter(|one| {
                    one.key.starts_with(&query.prefix)
                        && query.tags.iter().all(|tag| one.tags.contains(tag))
                })
                .map(|one| {
                    let own = words(&one.text);
                    let shared = asked.iter().filter(|word| own.contains(word)).count();
                    let near = match (&query.vector, &one.vector) {
                        (Some(asked), Some(own)) if asked.len() == own.len() => cosine(asked, own),
                        _ => 0.0,
                    };
                    Hit {
                        key: one.key.clone(),
                        score: shared as f64 + near.max(0.0),
                        by_words: shared > 0,
                        by_vector: near > 0.0,
                    }
                })
                .filter(|hit| is_open || hit.by_words || hit.by_vector)
                .collect();
            hits.sort_by(|a, b| b.score.total_cmp(&a.score));
            hits.truncate(query.limit as usize);
            Ok(hits)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn documents_are_found_listed_and_deleted() {
        let keys = ["a/1", "a/2", "a/3", "a/4", "b"];
        let documents = keys.map(|key| Document::new(key, format!("word {key}")).tagged(&key[..1]));
        put(documents.to_vec()).unwrap();
        let listed: Vec<String> = list("a/").map(|entry| entry.unwrap().key).collect();
        assert_eq!(listed, keys[..4]);
        assert_eq!(search(Query::words("word").tagged("b")).unwrap().len(), 1);
        assert_eq!(search(Query::words("Word, 2?").limit(2)).unwrap()[0].key, "a/2");
        assert_eq!(search(Query::words("nothing")).unwrap(), []);
        assert_eq!(delete_prefix("a/").unwrap(), 4);
        assert_eq!(get(&["a/1".to_owned(), "b".to_owned()]).unwrap()[0], None);
        assert_eq!(search(Query::words("")).unwrap().len(), 1);
    }

    #[test]
    fn invalid_keys_are_refused() {
        let failure = Failure::from(put(vec![Document::new("", "x")]).unwrap_err());
        assert_eq!(failure.code.as_deref(), Some("index-invalid"));
    }
}
