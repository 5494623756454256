//! The store of a plugin: keys and values that persist between calls, within a quota.
//!
//! Each plugin has an SQLite file in Toolhold's own data folder. A guest can't inject SQL: all
//! statements are constants of this crate, and a guest's data is only bound as a parameter. Several
//! processes may use a store at the same time.
//!
//! [`index`] stores and searches documents.

mod database;
mod error;
pub mod index;

use std::path::PathBuf;
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use toolhold_contract::CancellationToken;

pub use database::{Database, DatabaseForm};
pub use error::StoreError;

/// Most bytes of a key. An empty key is refused.
pub const MAX_KEY: usize = 512;
/// Most bytes of a value.
pub const MAX_VALUE: usize = 1 << 20;
/// Most expectations and changes of one write, added together.
pub const MAX_CHANGES: usize = 1000;
/// Most entries of a page.
pub const MAX_ENTRIES: usize = 1000;
/// Most bytes of a page. A page with one entry may be larger.
pub const MAX_PAGE: usize = 4 << 20;

/// The limits of a plugin's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The bytes of all keys and values.
    pub bytes: u64,
    /// The number of keys.
    pub keys: u64,
}

/// The conditions that end an operation.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The latest time at which the operation ends.
    pub deadline: Instant,
    /// Cancelled when the caller no longer waits.
    pub cancel: CancellationToken,
}

impl Stop {
    /// Checks whether the operation must stop now.
    pub fn is_due(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, 1 to [`MAX_KEY`] bytes.
    pub key: String,
    /// The value, at most [`MAX_VALUE`] bytes.
    pub value: Vec<u8>,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The entries, sorted by the bytes of their keys.
    pub entries: Vec<Entry>,
    /// The start of the next page. `None` for the last page.
    pub cursor: Option<String>,
}

/// A key and its value, as an expectation or a change of a write.
#[derive(Clone, Copy, Debug)]
pub struct KeyValue<'a> {
    /// The key.
    pub key: &'a str,
    /// The value. `None` means that an expected key must be missing, or that a changed key is
    /// deleted.
    pub value: Option<&'a [u8]>,
}

/// Identifies a store in the header of its file: `berS`.
const APPLICATION: i32 = 0x6265_7253;

/// Bytes of SQLite's header of a row.
const ROW_HEADER: usize = 64;

/// Bytes in the file for each key, in addition to the key and its value.
const BYTES_PER_KEY: u64 = 1024;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS totals (
        one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL, keys INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO totals VALUES (1, 0, 0);
    PRAGMA application_id = 0x62657253;
    PRAGMA user_version = 1;";

/// The store of a plugin. The first operation opens or creates its file. All operations block.
#[derive(Debug)]
pub struct Store {
    database: Database,
    quota: Quota,
}

impl Store {
    /// Makes the store of a plugin in a folder of Toolhold. `name` is the plugin's name,
    /// `[a-z0-9-]`.
    pub fn named(folder: impl Into<PathBuf>, name: impl Into<String>, quota: Quota) -> Self {
        let form = DatabaseForm {
            application: APPLICATION,
            tables: TABLES,
            upgrades: &[],
            // A row has a key, a value, and the header of SQLite.
            longest: MAX_KEY + MAX_VALUE + ROW_HEADER,
            // Entries need at most twice their size, and some pages for SQLite's index.
            bytes: quota
                .bytes
                .saturating_mul(2)
                .saturating_add(quota.keys.saturating_mul(BYTES_PER_KEY)),
            is_derived: false,
        };
        Self { database: Database::named(folder, name, form), quota }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.database.path()
    }

    /// Returns the value of a key. Returns `None` if the key is missing.
    ///
    /// # Errors
    ///
    /// Fails if the key isn't valid, if the store can't be read, or if the operation is stopped.
    pub fn get(&self, key: &str, stop: &Stop) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        self.database.run(stop, |connection| {
            let mut statement =
                connection.prepare_cached("SELECT value FROM entries WHERE key = ?1")?;
            let value = statement.query_row([key.as_bytes()], |row| row.get(0)).optional()?;
            Ok(value)
        })
    }

    /// Returns a page of the entries whose keys begin with `prefix`. A page ends at `limit` or
    /// [`MAX_ENTRIES`] entries, or at [`MAX_PAGE`] bytes. `cursor` is the start of the page, from
    /// the previous page.
    ///
    /// # Errors
    ///
    /// Fails if the prefix or cursor is too long, if the store can't be read, or if the operation
    /// is stopped.
    pub fn list(
        &self,
        prefix: &str,
        cursor: Option<&str>,
        limit: usize,
        stop: &Stop,
    ) -> Result<Page, StoreError> {
        for text in [prefix, cursor.unwrap_or_default()] {
            if text.len() > MAX_KEY {
                return Err(key_too_long(text.len()));
            }
        }
        let limit = limit.clamp(1, MAX_ENTRIES);
        self.database.run(stop, |connection| {
            // SQLite uses its index for only one lower bound, so `max` combines the bounds. With
            // two bounds, SQLite might choose the prefix and read all earlier keys again. The `+`
            // keeps the second condition from being such a bound.
            let mut statement = connection.prepare_cached(
                "SELECT key, value FROM entries
                 WHERE key >= max(?1, ?2) AND +key > ?2 ORDER BY key",
            )?;
            let after = cursor.unwrap_or_default();
            let mut rows = statement.query(params![prefix.as_bytes(), after.as_bytes()])?;
            let mut entries = Vec::<Entry>::new();
            let mut bytes = 0;
            while let Some(row) = rows.next()? {
                let key = row.get_ref(0)?.as_bytes().map_err(rusqlite::Error::from)?;
                if !key.starts_with(prefix.as_bytes()) {
                    break;
                }
                let value = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
                bytes += key.len() + value.len();
                if entries.len() == limit || (bytes > MAX_PAGE && !entries.is_empty()) {
                    let cursor = entries.last().map(|last| last.key.clone());
                    return Ok(Page { entries, cursor });
                }
                let key = String::from_utf8_lossy(key).into_owned();
                entries.push(Entry { key, value: value.to_vec() });
            }
            Ok(Page { entries, cursor: None })
        })
    }

    /// Makes all `changes` if all keys in `expected` have their values. If a value differs, changes
    /// nothing and returns `false`. The changes are on disk when this function returns.
    ///
    /// # Errors
    ///
    /// Returns an error if a key or value isn't valid, the quota is exhausted, the store can't be
    /// written, or the operation is stopped. Nothing is changed then.
    pub fn write(
        &self,
        expected: &[KeyValue<'_>],
        changes: &[KeyValue<'_>],
        stop: &Stop,
    ) -> Result<bool, StoreError> {
        let count = expected.len() + changes.len();
        if count > MAX_CHANGES {
            return Err(StoreError::Invalid(format!(
                "the write has {count} expectations and changes; the limit is {MAX_CHANGES}"
            )));
        }
        for KeyValue { key, value } in expected.iter().chain(changes) {
            check_key(key)?;
            let size = value.map_or(0, <[u8]>::len);
            if size > MAX_VALUE {
                return Err(StoreError::Invalid(format!(
                    "a value is {size} bytes; the limit is {MAX_VALUE}"
                )));
            }
        }
        self.database.run(stop, |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if !has_values(&transaction, expected)? {
                return Ok(false);
            }
            apply(&transaction, changes, self.quota)?;
            transaction.commit()?;
            Ok(true)
        })
    }

    /// Returns the number of keys, and the bytes of keys and values.
    ///
    /// # Errors
    ///
    /// Fails if the store can't be read, or if the operation is stopped.
    pub fn used(&self, stop: &Stop) -> Result<Quota, StoreError> {
        self.database.run(stop, |connection| totals(connection))
    }
}

fn check_key(key: &str) -> Result<(), StoreError> {
    match key.len() {
        0 => Err(StoreError::Invalid("a key is empty; it needs 1 byte or more".into())),
        size if size > MAX_KEY => Err(key_too_long(size)),
        _ => Ok(()),
    }
}

fn key_too_long(size: usize) -> StoreError {
    StoreError::Invalid(format!("a key is {size} bytes; the limit is {MAX_KEY}"))
}

/// Checks whether all keys have the expected values. A key with the expected value `None` must be
/// missing.
fn has_values(
    transaction: &Transaction<'_>,
    expected: &[KeyValue<'_>],
) -> Result<bool, StoreError> {
    let mut statement =
        transaction.prepare_cached("SELECT value = ?2 FROM entries WHERE key = ?1")?;
    for KeyValue { key, value } in expected {
        // The outer option is `None` if the key is missing. The inner option is `None` if `value`
        // is, because a comparison with NULL is NULL.
        let is_equal: Option<Option<bool>> =
            statement.query_row(params![key.as_bytes(), value], |row| row.get(0)).optional()?;
        let is_as_expected = match value {
            Some(_) => is_equal == Some(Some(true)),
            None => is_equal.is_none(),
        };
        if !is_as_expected {
            return Ok(false);
        }
    }
    Ok(true)
}

fn apply(
    transaction: &Transaction<'_>,
    changes: &[KeyValue<'_>],
    quota: Quota,
) -> Result<(), StoreError> {
    let before = totals(transaction)?;
    let mut after = before;
    let mut select_size =
        transaction.prepare_cached("SELECT length(value) FROM entries WHERE key = ?1")?;
    let mut put = transaction.prepare_cached(
        "INSERT INTO entries (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    )?;
    let mut delete = transaction.prepare_cached("DELETE FROM entries WHERE key = ?1")?;
    for KeyValue { key, value } in changes {
        let name = key.as_bytes();
        let old_value_size: Option<u64> =
            select_size.query_row([name], |row| row.get(0)).optional()?;
        if let Some(old_value_size) = old_value_size {
            let key_size = entry_size(key, 0);
            after.bytes = after.bytes.saturating_sub(key_size.saturating_add(old_value_size));
            after.keys = after.keys.saturating_sub(1);
        }
        match value {
            Some(value) => {
                after.bytes = after.bytes.saturating_add(entry_size(key, value.len()));
                after.keys += 1;
                put.execute(params![name, value])?;
            }
            None => {
                delete.execute([name])?;
            }
        }
    }
    if exceeds(after.bytes, before.bytes, quota.bytes) {
        return Err(StoreError::Limit(format!(
            "the store would have {} bytes; the limit is {}",
            after.bytes, quota.bytes
        )));
    }
    if exceeds(after.keys, before.keys, quota.keys) {
        return Err(StoreError::Limit(format!(
            "the store would have {} keys; the limit is {}",
            after.keys, quota.keys
        )));
    }
    transaction
        .prepare_cached("UPDATE totals SET bytes = ?1, keys = ?2")?
        .execute(params![after.bytes, after.keys])?;
    Ok(())
}

fn entry_size(key: &str, value_size: usize) -> u64 {
    u64::try_from(key.len() + value_size).unwrap_or(u64::MAX)
}

/// Checks whether a quota refuses a change. A change to fewer bytes, keys or documents is always
/// allowed, because the quota may have been lowered below what is stored already.
fn exceeds(after: u64, before: u64, quota: u64) -> bool {
    after > quota && after > before
}

fn totals(connection: &Connection) -> Result<Quota, StoreError> {
    Ok(connection
        .prepare_cached("SELECT bytes, keys FROM totals")?
        .query_row([], |row| Ok(Quota { bytes: row.get(0)?, keys: row.get(1)? }))?)
}
