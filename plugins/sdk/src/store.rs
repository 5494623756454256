//! The data that the plugin keeps between its calls: keys and values that no other plugin sees. The
//! plugin asks for the store in its manifest: `store = "reason"`.
//!
//! ```
//! # fn main() -> Result<(), toolhold_sdk::Failure> {
//! use toolhold_sdk::store::{self, Write};
//!
//! store::put("notes/1", "buy milk")?;
//! assert_eq!(store::get("notes/1")?.as_deref(), Some(&b"buy milk"[..]));
//!
//! // A counter that loses nothing when several calls change it at once.
//! loop {
//!     let old: Option<u32> = store::get_json("count")?;
//!     let text = old.map(|old| old.to_string());
//!     let new = (old.unwrap_or(0) + 1).to_string();
//!     let write = Write::new().expect("count", text.as_deref()).put("count", new);
//!     if write.commit()? {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Written data is on disk when a function returns. The operator bounds the bytes and the number of
//! keys. A key has 1 to 512 bytes, a value at most 1 MiB. A tool that is read-only can't write.
//!
//! In unit tests, each thread has a store of its own, which is empty at first.

use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Failure, HostError};

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
}

/// A key and a value, or none.
pub(crate) type Pair = (String, Option<Vec<u8>>);

/// The value of a key. `None`: there is none.
///
/// # Errors
///
/// An invalid key, or a store that can't be read.
pub fn get(key: &str) -> Result<Option<Vec<u8>>, HostError> {
    host::get(key)
}

/// The value of a key, decoded from JSON. `None`: there is none.
///
/// # Errors
///
/// The errors of [`get`], or the value has another type.
pub fn get_json<T: DeserializeOwned>(key: &str) -> Result<Option<T>, Failure> {
    let Some(value) = get(key)? else { return Ok(None) };
    let decoded: T = serde_json::from_slice(&value).map_err(|error| {
        Failure::permanent("store", format!("the value of {key:?} in the store: {error}"))
    })?;
    Ok(Some(decoded))
}

/// Writes a value.
///
/// # Errors
///
/// An invalid key or value, the operator's limit, a read-only tool, or a store that can't be
/// written.
pub fn put(key: &str, value: impl AsRef<[u8]>) -> Result<(), HostError> {
    Write::new().put(key, value).commit().map(drop)
}

/// Writes a value as JSON.
///
/// # Errors
///
/// The errors of [`put`], or the value has no JSON.
pub fn put_json<T: Serialize>(key: &str, value: &T) -> Result<(), Failure> {
    let text = serde_json::to_vec(value)
        .map_err(|error| Failure::permanent("store", format!("a value for {key:?}: {error}")))?;
    Ok(put(key, text)?)
}

/// Deletes a key. It need not exist.
///
/// # Errors
///
/// The errors of [`put`].
pub fn delete(key: &str) -> Result<(), HostError> {
    Write::new().delete(key).commit().map(drop)
}

/// The entries whose keys begin with `prefix`, sorted by the bytes of their keys. They are read
/// page by page. Entries that change meanwhile may be old or new.
pub fn list(prefix: &str) -> Entries {
    Entries { prefix: prefix.to_owned(), page: VecDeque::new(), next: Next::First }
}

/// The entries of a listing.
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

/// Changes that happen at once: all of them or none. At most 1,000 expectations and changes.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is written before `commit`"]
pub struct Write {
    expected: Vec<Pair>,
    changes: Vec<Pair>,
}

impl Write {
    /// No change yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the changes depend on a key: it has this value, or, with `None`, it is missing.
    pub fn expect(mut self, key: &str, value: Option<impl AsRef<[u8]>>) -> Self {
        self.expected.push((key.to_owned(), value.map(|value| value.as_ref().to_vec())));
        self
    }

    /// Writes a value.
    pub fn put(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.changes.push((key.to_owned(), Some(value.as_ref().to_vec())));
        self
    }

    /// Deletes a key. It need not exist.
    pub fn delete(mut self, key: &str) -> Self {
        self.changes.push((key.to_owned(), None));
        self
    }

    /// Makes the changes. False: a key isn't as expected, so nothing has changed. Read again, and
    /// try again.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](fn@put). Nothing has changed then.
    pub fn commit(self) -> Result<bool, HostError> {
        host::write(self.expected, self.changes)
    }
}

#[cfg(target_arch = "wasm32")]
mod host {
    use super::{Entry, HostError, Pair};
    use crate::contract::bindings::toolhold::host::store as wit;
    use crate::contract::bindings::toolhold::host::types::Error;

    pub(super) fn get(key: &str) -> Result<Option<Vec<u8>>, HostError> {
        wit::get(key).map_err(error)
    }

    pub(super) fn list(
        prefix: &str,
        cursor: Option<&str>,
    ) -> Result<(Vec<Entry>, Option<String>), HostError> {
        let page = wit::list(prefix, cursor, u32::MAX).map_err(error)?;
        let entries = page
            .entries
            .into_iter()
            .map(|entry| Entry { key: entry.key, value: entry.value })
            .collect();
        Ok((entries, page.cursor))
    }

    pub(super) fn write(expected: Vec<Pair>, changes: Vec<Pair>) -> Result<bool, HostError> {
        let expected: Vec<_> =
            expected.into_iter().map(|(key, value)| wit::Expectation { key, value }).collect();
        let changes: Vec<_> =
            changes.into_iter().map(|(key, value)| wit::Change { key, value }).collect();
        wit::write(&expected, &changes).map_err(error)
    }

    fn error(error: Error) -> HostError {
        HostError::new("store", error.code, error.message)
    }
}

/// The stand-in for the host in unit tests. It has the host's limits for keys, values and writes.
#[cfg(not(target_arch = "wasm32"))]
mod host {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::{Entry, HostError, Pair};

    const MAX_KEY: usize = 512;
    const MAX_VALUE: usize = 1 << 20;
    const MAX_CHANGES: usize = 1000;

    /// Entries of a page. Few, so that tests meet several pages.
    const PAGE: usize = 3;

    thread_local! {
        static ENTRIES: RefCell<BTreeMap<String, Vec<u8>>> = RefCell::default();
    }

    fn invalid(message: String) -> HostError {
        HostError::new("store", "invalid", message)
    }

    fn check(key: &str) -> Result<(), HostError> {
        match key.len() {
            0 => Err(invalid("a key is empty; it needs 1 byte or more".to_owned())),
            size if size > MAX_KEY => {
                Err(invalid(format!("a key is {size} bytes; the limit is {MAX_KEY}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn get(key: &str) -> Result<Option<Vec<u8>>, HostError> {
        check(key)?;
        Ok(ENTRIES.with_borrow(|entries| entries.get(key).cloned()))
    }

    pub(super) fn list(
        prefix: &str,
        cursor: Option<&str>,
    ) -> Result<(Vec<Entry>, Option<String>), HostError> {
        ENTRIES.with_borrow(|entries| {
            let found = entries
                .iter()
                .filter(|(key, _)| key.starts_with(prefix))
                .filter(|(key, _)| cursor.is_none_or(|cursor| key.as_str() > cursor));
            let mut page: Vec<Entry> = found
                .take(PAGE + 1)
                .map(|(key, value)| Entry { key: key.clone(), value: value.clone() })
                .collect();
            let more = page.len() > PAGE;
            page.truncate(PAGE);
            let cursor = if more { page.last().map(|last| last.key.clone()) } else { None };
            Ok((page, cursor))
        })
    }

    pub(super) fn write(expected: Vec<Pair>, changes: Vec<Pair>) -> Result<bool, HostError> {
        let count = expected.len() + changes.len();
        if count > MAX_CHANGES {
            return Err(invalid(format!(
                "the write has {count} expectations and changes; the limit is {MAX_CHANGES}"
            )));
        }
        for (key, value) in expected.iter().chain(&changes) {
            check(key)?;
            let size = value.as_ref().map_or(0, Vec::len);
            if size > MAX_VALUE {
                return Err(invalid(format!("a value is {size} bytes; the limit is {MAX_VALUE}")));
            }
        }
        ENTRIES.with_borrow_mut(|entries| {
            if expected.iter().any(|(key, value)| entries.get(key) != value.as_ref()) {
                return Ok(false);
            }
            for (key, value) in changes {
                match value {
                    Some(value) => entries.insert(key, value),
                    None => entries.remove(&key),
                };
            }
            Ok(true)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_has_all_pages_in_order() {
        let keys = ["a/1", "a/10", "a/2", "a/3", "a/4", "a/5", "a/6"];
        for key in keys.iter().rev().chain(&["b", "a"]) {
            put(key, key).unwrap();
        }
        let listed: Vec<String> = list("a/").map(|entry| entry.unwrap().key).collect();
        assert_eq!(listed, keys);
        assert_eq!(list("c").count(), 0);
        assert_eq!(list("").count(), 9);
    }

    #[test]
    fn write_is_whole_or_nothing() {
        put("a", "1").unwrap();
        let write = || Write::new().put("a", "2").put("b", "2");
        assert!(!write().expect("b", Some("1")).commit().unwrap());
        assert!(!write().expect("a", None::<&str>).commit().unwrap());
        assert_eq!(get("a").unwrap().as_deref(), Some(&b"1"[..]));
        assert!(write().expect("a", Some("1")).expect("b", None::<&str>).commit().unwrap());
        assert_eq!(get("b").unwrap().as_deref(), Some(&b"2"[..]));
        delete("b").unwrap();
        assert_eq!(get("b").unwrap(), None);
    }

    #[test]
    fn values_can_be_json() {
        put_json("n", &[1, 2]).unwrap();
        assert_eq!(get_json::<Vec<u8>>("n").unwrap(), Some(vec![1, 2]));
        let failure = get_json::<bool>("n").unwrap_err();
        assert!(failure.message.contains("the value of \"n\""), "{failure}");
    }

    #[test]
    fn invalid_keys_and_values_are_refused() {
        assert_eq!(put("", "").unwrap_err().code, "invalid");
        assert_eq!(put(&"k".repeat(513), "").unwrap_err().code, "invalid");
        assert_eq!(put("k", vec![0; (1 << 20) + 1]).unwrap_err().code, "invalid");
        let failure = Failure::from(get("").unwrap_err());
        assert_eq!(failure.code.as_deref(), Some("store-invalid"));
    }
}
