//! Opens, hardens, shares and stops an SQLite file of a plugin.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use toolhold_data_dir::PrivateFolder;

use crate::Stop;
use crate::error::StoreError;

/// The version of the tables of a new form. Each upgrade increases it by one.
const FIRST_VERSION: i32 = 1;

/// How long an operation waits for another process that writes, at most.
const BUSY: Duration = Duration::from_secs(5);

/// The pause before a step is retried that SQLite itself doesn't retry.
const PAUSE: Duration = Duration::from_millis(2);

/// Instructions of SQLite's machine between two looks at the deadline.
const STEPS: i32 = 1000;

/// Bytes of a page of the file.
const PAGE: u64 = 4096;

/// The form of a database.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseForm {
    /// The number in the file's header that identifies the kind of the file.
    pub application: i32,
    /// Statements that create the tables and set `application_id` and the `user_version` 1.
    pub tables: &'static str,
    /// Statements that upgrade the tables from version 1 to version 2, and so on. A new file runs
    /// them too.
    pub upgrades: &'static [&'static str],
    /// Most bytes of a row.
    pub longest: usize,
    /// Most bytes of the file.
    pub bytes: u64,
    /// Whether the content can be created again, so that a write needn't wait for the disk. After a
    /// power failure, the file is intact, but the last writes may be missing.
    pub is_derived: bool,
}

impl DatabaseForm {
    /// Opens a file. Creates it if it doesn't exist. The file must be in one of Toolhold's own
    /// folders, which no other user can enter.
    ///
    /// # Errors
    ///
    /// Returns an error if the file doesn't have this form, or SQLite fails.
    pub fn open(&self, path: &Path) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        let longest = i32::try_from(self.longest).unwrap_or(i32::MAX);
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest)?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 4096)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.busy_timeout(BUSY)?;
        // Readers don't wait for a writer. A finished write is on disk.
        keep_log(&connection)?;
        let synchronous = if self.is_derived { "NORMAL" } else { "FULL" };
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
        connection.pragma_update(None, "max_page_count", (self.bytes / PAGE).clamp(64, 1 << 30))?;
        prepare(&connection, path, self)?;
        Ok(connection)
    }
}

/// A database of one plugin. The first operation opens or creates its file.
#[derive(Debug)]
pub struct Database {
    folder: PathBuf,
    name: String,
    form: DatabaseForm,
    connection: Mutex<Option<Connection>>,
}

impl Database {
    /// Returns the database `name` in one of Toolhold's own folders. `name`: a plugin's name,
    /// `[a-z0-9-]`.
    pub fn named(folder: impl Into<PathBuf>, name: impl Into<String>, form: DatabaseForm) -> Self {
        Self { folder: folder.into(), name: name.into(), form, connection: Mutex::new(None) }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.db", self.name))
    }

    /// Runs an operation until `stop`. Blocks.
    ///
    /// # Errors
    ///
    /// The errors of the operation, a file that can't be used, or the stop.
    pub fn run<T>(
        &self,
        stop: &Stop,
        operation: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // An operation that panicked has rolled back.
        let mut kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if stop.is_due() {
            return Err(StoreError::Stopped);
        }
        let path = self.path();
        let connection = match &mut *kept {
            Some(connection) => connection,
            none => none.insert(self.open(&path).map_err(|error| error.at(&path))?),
        };
        let time_left = stop.deadline.saturating_duration_since(Instant::now());
        bounded(connection, time_left.min(BUSY), stop, operation).map_err(|error| error.at(&path))
    }

    fn open(&self, path: &Path) -> Result<Connection, StoreError> {
        let is_valid_name = !self.name.is_empty()
            && self.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !is_valid_name {
            return Err(StoreError::unavailable(path, "it needs the name of a plugin"));
        }
        let private =
            PrivateFolder::make(&self.folder).map_err(|error| self.folder_error(&error))?;
        // SQLite opens the file by its path. No other user can enter the folder, so no other user
        // can exchange the file. The file is not opened here, because closing it would end the
        // locks of other connections of this process.
        private.check_closed().map_err(|error| self.folder_error(&error))?;
        self.form.open(path)
    }

    /// Returns the error for a fault of the folder, not of the file.
    fn folder_error(&self, error: &io::Error) -> StoreError {
        StoreError::unavailable(&self.folder, error.to_string())
    }
}

/// Enables the write-ahead log of the file. SQLite fails immediately if several processes do this
/// to a new file, so this is retried until it succeeds.
fn keep_log(connection: &Connection) -> Result<(), rusqlite::Error> {
    let deadline = Instant::now() + BUSY;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Creates the tables of a new file, or checks and upgrades those of an old file.
fn prepare(connection: &Connection, path: &Path, form: &DatabaseForm) -> Result<(), StoreError> {
    step(connection, (0, 0), form.tables)?;
    let mut newest = FIRST_VERSION;
    for upgrade in form.upgrades {
        let next = newest.saturating_add(1);
        let upgrade = format!("{upgrade};PRAGMA user_version = {next};");
        step(connection, (form.application, newest), &upgrade)?;
        newest = next;
    }
    match state(connection)? {
        (application, _) if application != form.application => {
            Err(StoreError::unavailable(path, "another program has made the file. Move it away"))
        }
        (_, version) if version != newest => {
            let reason = format!(
                "the file has version {version}; this Toolhold reads version {newest}. Use a newer \
                 Toolhold"
            );
            Err(StoreError::unavailable(path, reason))
        }
        _ => Ok(()),
    }
}

/// Runs statements on a file in the state `before`. Does nothing in another state. If several
/// processes call this at the same time, only the first one runs the statements.
fn step(
    connection: &Connection,
    before: (i32, i32),
    statements: &str,
) -> Result<(), rusqlite::Error> {
    if state(connection)? != before {
        return Ok(());
    }
    // With foreign keys, replacing a table would delete the rows that refer to it.
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let result = match state(connection) {
        Ok(now) if now == before => connection.execute_batch(statements),
        // Another process has run the statements meanwhile.
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    connection.execute_batch(if result.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    result
}

/// Reads the application number of the file, and the version of its tables.
fn state(connection: &Connection) -> Result<(i32, i32), rusqlite::Error> {
    let application = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok((application, version))
}

/// Runs an operation that stops when `stop` is due, and waits at most `busy` for other processes.
fn bounded<T>(
    connection: &mut Connection,
    busy: Duration,
    stop: &Stop,
    operation: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.busy_timeout(busy)?;
    let stop = stop.clone();
    connection.progress_handler(STEPS, Some(move || stop.is_due()))?;
    let result = operation(connection);
    connection.progress_handler(STEPS, None::<fn() -> bool>)?;
    result
}
