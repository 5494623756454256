//! Opens the SQLite database of the scheduled tasks, and creates its tables.

use std::path::Path;

use rusqlite::Connection;
use toolhold_store::{DatabaseForm, StoreError};

use crate::error::ScheduleError;

/// Times are milliseconds of Unix time.
const FORM: DatabaseForm = DatabaseForm {
    // In ASCII: `berT`.
    application: 0x6265_7254,
    tables: "
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
        PRAGMA user_version = 1;",
    // In version 1, all directories of a user shared the names of tasks. The upgrade keeps the
    // numbers of tasks, because runs refer to them.
    upgrades: &["
        CREATE TABLE moved (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            owner TEXT NOT NULL, principal TEXT NOT NULL, directory TEXT NOT NULL,
            name TEXT NOT NULL,
            maker TEXT NOT NULL, made INTEGER NOT NULL,
            kind TEXT NOT NULL, spec TEXT NOT NULL, zone TEXT, missed TEXT NOT NULL,
            action TEXT NOT NULL,
            next INTEGER, last INTEGER,
            paused INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0,
            UNIQUE (owner, principal, directory, name)
        ) STRICT;
        INSERT INTO moved SELECT id, owner, principal,
            coalesce(CASE WHEN json_valid(maker) THEN maker ->> '$.directory' END, ''),
            name, maker, made, kind, spec, zone, missed, action, next, last, paused, asked
            FROM tasks;
        DELETE FROM sqlite_sequence WHERE name = 'moved';
        INSERT INTO sqlite_sequence (name, seq)
            SELECT 'moved', seq FROM sqlite_sequence WHERE name = 'tasks';
        DROP TABLE tasks;
        ALTER TABLE moved RENAME TO tasks;
        CREATE INDEX tasks_next ON tasks (next);"],
    // The longest value is a task with its arguments and bounds.
    longest: 1 << 20,
    // All tasks with all their runs need less.
    bytes: 1 << 30,
    is_derived: false,
};

pub(crate) fn open(path: &Path) -> Result<Connection, ScheduleError> {
    let connection = FORM.open(path).map_err(|error| match error {
        StoreError::Sqlite(error) => ScheduleError::Sqlite(error),
        StoreError::Unavailable { path, reason } => ScheduleError::Unavailable { path, reason },
        other => ScheduleError::Unavailable { path: path.to_owned(), reason: other.to_string() },
    })?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}
