//! The connection to SQLite: how it is opened and hardened.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::error::ScheduleError;

/// `berT`, in the header of the file.
const APPLICATION: i32 = 0x6265_7254;
/// The version of the tables.
const VERSION: i32 = 1;

/// How long an operation waits for another process that writes, at most.
const BUSY: Duration = Duration::from_secs(5);

/// Most bytes of a row: a task has its arguments and what bounds it.
const LONGEST: i32 = 1 << 20;

/// Pages of 4 KiB: 1 GiB, more than all tasks with all their runs take.
const PAGES: i32 = 1 << 18;

/// Opens the file, or creates it.
pub(crate) fn open(path: &Path) -> Result<Connection, ScheduleError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 4096)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.busy_timeout(BUSY)?;
    // What a step has returned is on disk before the next one begins.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    connection.pragma_update(None, "max_page_count", PAGES)?;
    prepare(&connection, path)?;
    Ok(connection)
}

/// Creates the tables of a new file, and checks those of an old one.
fn prepare(connection: &Connection, path: &Path) -> Result<(), ScheduleError> {
    let unusable = |reason| ScheduleError::Unavailable { path: path.to_owned(), reason };
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    if (number("application_id")?, number("user_version")?) == (0, 0) {
        // Two processes may create it at once: the second finds the tables. Times are milliseconds
        // of Unix time.
        connection.execute_batch(
            "BEGIN IMMEDIATE;
             CREATE TABLE IF NOT EXISTS tasks (
                 id INTEGER PRIMARY KEY AUTOINCREMENT,
                 owner TEXT NOT NULL, principal TEXT NOT NULL, name TEXT NOT NULL,
                 maker TEXT NOT NULL, made INTEGER NOT NULL,
                 kind TEXT NOT NULL, spec TEXT NOT NULL, zone TEXT, missed TEXT NOT NULL,
                 action TEXT NOT NULL,
                 next INTEGER, last INTEGER,
                 paused INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0,
                 UNIQUE (owner, principal, name)
             ) STRICT;
             CREATE INDEX IF NOT EXISTS tasks_next ON tasks (next);
             CREATE TABLE IF NOT EXISTS runs (
                 id INTEGER PRIMARY KEY AUTOINCREMENT,
                 task INTEGER NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
                 due INTEGER NOT NULL, started INTEGER, ended INTEGER,
                 state TEXT NOT NULL, missed INTEGER NOT NULL, output TEXT NOT NULL
             ) STRICT;
             CREATE INDEX IF NOT EXISTS runs_task ON runs (task, id);
             CREATE INDEX IF NOT EXISTS runs_open ON runs (state) WHERE ended IS NULL;
             PRAGMA application_id = 0x62657254;
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
