//! Opens and protects a plugin's SQLite file, and stops its operations.

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

/// The version of the tables that [`DatabaseForm::tables`] creates. Each upgrade increases it by
/// one.
const FIRST_VERSION: i32 = 1;

/// The longest wait for another process that writes.
const BUSY: Duration = Duration::from_secs(5);

/// The pause between attempts to enable the write-ahead log, which SQLite itself doesn't repeat.
const PAUSE: Duration = Duration::from_millis(2);

/// SQLite's instructions between two checks of the deadline.
const STEPS: i32 = 1000;

/// Bytes of a page of the file.
const PAGE: u64 = 4096;

/// Pages of the smallest and of the largest limit for a file.
const MIN_PAGES: u64 = 64;
const MAX_PAGES: u64 = 1 << 30;

/// Bytes of the longest SQL statement.
const MAX_STATEMENT: i32 = 4096;

/// Most bytes that the write-ahead log keeps after its content was written into the file.
const MAX_LOG: i32 = 4 << 20;

/// The tables and limits of a database.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseForm {
    /// Identifies the kind of the file, in its header.
    pub application: i32,
    /// Statements that create the tables and set `application_id` and the `user_version` 1.
    pub tables: &'static str,
    /// Statements that upgrade the tables from version 1 to 2, and so on. They also run on a new
    /// file.
    pub upgrades: &'static [&'static str],
    /// The most bytes of a row.
    pub longest: usize,
    /// The most bytes of the file.
    pub bytes: u64,
    /// Whether the content can be created again. A write then doesn't wait for the disk, and a
    /// power failure may lose the last writes.
    pub is_derived: bool,
}

impl DatabaseForm {
    /// Opens or creates a file. The file must be in a folder that no other user can enter.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is of another kind, or SQLite fails.
    pub fn open(&self, path: &Path) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // If the number doesn't fit, SQLite's own limit applies, which is lower than `i32::MAX`.
        let longest = i32::try_from(self.longest).unwrap_or(i32::MAX);
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest)?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_STATEMENT)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;

        connection.busy_timeout(BUSY)?;
        // With a write-ahead log, readers don't wait for a writer.
        enable_log(&connection)?;
        let synchronous = if self.is_derived { "NORMAL" } else { "FULL" };
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.pragma_update(None, "journal_size_limit", MAX_LOG)?;
        let pages = (self.bytes / PAGE).clamp(MIN_PAGES, MAX_PAGES);
        connection.pragma_update(None, "max_page_count", pages)?;
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
    /// Makes the database of a plugin in one of Toolhold's own folders. `name` is the plugin's
    /// name, `[a-z0-9-]`. Opens no file.
    pub fn named(folder: impl Into<PathBuf>, name: impl Into<String>, form: DatabaseForm) -> Self {
        Self { folder: folder.into(), name: name.into(), form, connection: Mutex::new(None) }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.db", self.name))
    }

    /// Runs an operation until `stop` is due. Blocks.
    ///
    /// # Errors
    ///
    /// Returns the errors of the operation, or an error if the file can't be used or `stop` is due.
    pub fn run<T>(
        &self,
        stop: &Stop,
        operation: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // A panicked operation was rolled back, so the lock can still be used.
        let mut open_connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if stop.is_due() {
            return Err(StoreError::Stopped);
        }
        let path = self.path();
        let connection = match &mut *open_connection {
            Some(connection) => connection,
            none => none.insert(self.open(&path).map_err(|error| error.at(&path))?),
        };
        let time_left = stop.deadline.saturating_duration_since(Instant::now());
        let max_wait = time_left.min(BUSY);
        run_until(connection, max_wait, stop, operation).map_err(|error| error.at(&path))
    }

    /// Checks the name of the plugin, makes the folder, and opens the file.
    fn open(&self, path: &Path) -> Result<Connection, StoreError> {
        let has_valid_characters =
            self.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if self.name.is_empty() || !has_valid_characters {
            return Err(StoreError::unavailable(path, "a plugin's name is required"));
        }
        let private =
            PrivateFolder::make(&self.folder).map_err(|error| self.folder_error(&error))?;
        // SQLite opens the file by its path, so no other user may be able to enter the folder and
        // replace the file. Don't open the file itself for a check, because closing it would
        // release the locks of other connections in this process.
        private.check_closed().map_err(|error| self.folder_error(&error))?;
        self.form.open(path)
    }

    fn folder_error(&self, error: &io::Error) -> StoreError {
        StoreError::unavailable(&self.folder, error.to_string())
    }
}

/// Enables the write-ahead log. SQLite fails at once if several processes do this to a new file, so
/// the statement is repeated for some time.
fn enable_log(connection: &Connection) -> Result<(), rusqlite::Error> {
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

/// Creates the tables of a new file, or checks and upgrades the tables of an existing file.
fn prepare(connection: &Connection, path: &Path, form: &DatabaseForm) -> Result<(), StoreError> {
    // In a new file, both the application and the version are 0.
    let new_file = (0, 0);
    run_in_state(connection, new_file, form.tables)?;
    let mut newest = FIRST_VERSION;
    for upgrade in form.upgrades {
        let next_version = newest.saturating_add(1);
        let statements = format!("{upgrade};PRAGMA user_version = {next_version};");
        run_in_state(connection, (form.application, newest), &statements)?;
        newest = next_version;
    }

    let (application, version) = read_state(connection)?;
    if application != form.application {
        let reason = "another program created the file. Move the file away";
        return Err(StoreError::unavailable(path, reason));
    }
    if version != newest {
        let reason = format!(
            "the file has version {version}; this Toolhold reads version {newest}. Use a newer \
             Toolhold"
        );
        return Err(StoreError::unavailable(path, reason));
    }
    Ok(())
}

/// Runs statements if the application and the version of the file are those in `before`. Otherwise,
/// does nothing. If several processes do this at once, only the first one runs the statements.
fn run_in_state(
    connection: &Connection,
    before: (i32, i32),
    statements: &str,
) -> Result<(), rusqlite::Error> {
    if read_state(connection)? != before {
        return Ok(());
    }
    // Foreign keys are off, because replacing a table would delete the rows that refer to it.
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let result = match read_state(connection) {
        Ok(locked_state) if locked_state == before => connection.execute_batch(statements),
        // Another process has run the statements in the meantime.
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    connection.execute_batch(if result.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    result
}

fn read_state(connection: &Connection) -> Result<(i32, i32), rusqlite::Error> {
    let application = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok((application, version))
}

/// Runs an operation until `stop` is due, and waits at most `max_wait` for other processes.
fn run_until<T>(
    connection: &mut Connection,
    max_wait: Duration,
    stop: &Stop,
    operation: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.busy_timeout(max_wait)?;
    let stop = stop.clone();
    // SQLite calls the handler regularly, and ends the operation if it returns true.
    connection.progress_handler(STEPS, Some(move || stop.is_due()))?;
    let result = operation(connection);
    connection.progress_handler(STEPS, None::<fn() -> bool>)?;
    result
}
