//! The connection to SQLite: how it is opened, hardened and stopped.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::error::StoreError;
use crate::{BUSY, MAX_KEY, MAX_VALUE, Quota, Stop};

/// `berS`, in the header of the file.
const APPLICATION: i32 = 0x6265_7253;
/// The version of the tables.
const VERSION: i32 = 1;

/// Instructions of SQLite's machine between two looks at the deadline.
const STEPS: i32 = 1000;

/// Bytes of a page of the file.
const PAGE: u64 = 4096;

/// Opens a store's file, or creates it.
pub(crate) fn open(path: &Path, quota: Quota) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // The row of an entry has its key and its value.
    let longest = i32::try_from(MAX_KEY + MAX_VALUE + 64).unwrap_or(i32::MAX);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest)?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 4096)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.busy_timeout(BUSY)?;
    // Readers don't wait for a writer. What a write has returned is on disk.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    // Entries take at most twice their size, and some pages for the index.
    let pages = quota.bytes.saturating_mul(2).saturating_add(quota.keys.saturating_mul(1024));
    connection.pragma_update(None, "max_page_count", (pages / PAGE).clamp(64, 1 << 30))?;
    prepare(&connection, path)?;
    Ok(connection)
}

/// Creates the tables of a new store, and checks those of an old one.
fn prepare(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let unusable = |reason| StoreError::Unavailable { path: path.to_owned(), reason };
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    if (number("application_id")?, number("user_version")?) == (0, 0) {
        // Two processes may create it at once: the second finds the tables.
        connection.execute_batch(
            "BEGIN IMMEDIATE;
             CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT;
             CREATE TABLE IF NOT EXISTS totals (
                 one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL, keys INTEGER NOT NULL
             ) STRICT;
             INSERT OR IGNORE INTO totals VALUES (1, 0, 0);
             PRAGMA application_id = 0x62657253;
             PRAGMA user_version = 1;
             COMMIT;",
        )?;
    }
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION, VERSION) => Ok(()),
        (APPLICATION, version) => Err(unusable(format!(
            "it has version {version}; this Berth reads version {VERSION}. Use a newer Berth"
        ))),
        _ => Err(unusable("another program has made it. Move it away".into())),
    }
}

/// Runs an operation that stops when `stop` is due, and waits at most `busy` for other processes.
pub(crate) fn bounded<T>(
    connection: &mut Connection,
    busy: Duration,
    stop: &Stop,
    operation: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.busy_timeout(busy)?;
    let watched = stop.clone();
    connection.progress_handler(STEPS, Some(move || watched.is_due()))?;
    let result = operation(connection);
    connection.progress_handler(STEPS, None::<fn() -> bool>)?;
    result
}
