//! The audit log. It records the intent, the approval and the outcome of each call.
//!
//! Each entry is a line of JSON in `audit/audit.jsonl` in Toolhold's data folder. Tools can't read
//! or write this folder. A call that can act is recorded before it runs. Every call is recorded
//! before its answer leaves the host. The entries form a hash chain with a key in the same folder.
//! [`Trail::verify`] finds changed, missing and truncated entries.

mod chain;
mod files;
mod follow;
mod head;
mod kind;
mod line;
mod lines;
mod log;
mod origin;
mod reader;
mod record;
mod stats;
mod time;
mod trail;
mod verify;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use toolhold_config::{self as config, OnFailure};
use toolhold_contract::{Category, Failure, HostError};

use self::chain::Key;
pub use self::follow::Follow;
use self::log::{Bounds, Log, Unsynced};
pub use self::origin::{EntryOrigin, User};
pub use self::reader::{LogPosition, LogRecord, ReadFrom, RecordReader};
pub use self::record::{
    AnswerRecord, CallRecord, FilteredRecord, InquiryRecord, JobRecord, OutcomeRecord,
    OwnRequestRecord, RollbackRecord, SnapshotRecord, SourceRecord, ToolRecord,
};
pub use self::stats::{FilterStats, ToolStats};
pub use self::trail::{ChainHead, Trail};
pub use self::verify::{Finding, Verification};

/// Time for which a process keeps the lock of the log for its next entries. Other processes wait at
/// most this long, and the file `head` is at most this old.
const HOLD: Duration = Duration::from_millis(10);

const MIB: u64 = 1 << 20;

/// Writes the entries. Each function returns after the operating system has the entry, so the entry
/// survives the end of this process. With `durable`, the functions wait until the entry also
/// survives a power failure.
pub struct Audit {
    /// The settings. `None` means that the log is disabled.
    settings: Option<Settings>,
    /// The configuration table of the settings, for error messages.
    table: String,
    data: PathBuf,
    origin: EntryOrigin,
    state: Arc<Mutex<LogState>>,
    /// The thread that releases the lock of the log. With `None`, the thread couldn't be started,
    /// and each entry releases the lock itself.
    releaser: OnceLock<Option<Thread>>,
    /// Number of entries that survive a power failure. The holder of this lock waits for the disk.
    synced: tokio::sync::Mutex<u64>,
    /// Whether a failure to write has been logged.
    warned: AtomicBool,
}

#[derive(Default)]
struct LogState {
    /// The open log. `None` before the first entry and after an error.
    log: Option<Log>,
    count: u64,
    /// Unsynced files of logs that are closed.
    unsynced: Unsynced,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    on_failure: OnFailure,
    durable: bool,
    bounds: Bounds,
}

impl Audit {
    /// Creates the log for entries of one origin. Files are opened when the first entry is
    /// written.
    pub fn new(config: &config::Config, data: &Path, origin: EntryOrigin) -> Self {
        let config::Audit { enabled, on_failure, durable, max_mib, keep } = config.values.audit;
        let settings = Settings {
            on_failure,
            durable,
            bounds: Bounds { file: max_mib.get() * MIB, keep: keep.get(), durable },
        };
        Self {
            settings: if enabled { Some(settings) } else { None },
            table: config.own_table("audit").to_string(),
            data: data.to_owned(),
            origin,
            state: Arc::default(),
            releaser: OnceLock::new(),
            synced: tokio::sync::Mutex::new(0),
            warned: AtomicBool::new(false),
        }
    }

    /// Returns the user of the entries. `None` means that several users share the log.
    pub fn user(&self) -> Option<&User> {
        self.origin.user.as_ref()
    }

    /// Records a call that is about to run.
    ///
    /// # Errors
    ///
    /// Returns an error if the call can't be recorded. The call then must not run.
    pub async fn intent(&self, call: &CallRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self.write(settings, |key| record::intent(key, call, &self.origin)).await;
        self.check_write(settings, written, "The call was not run")
    }

    /// Records the answer to a request for approval, and how long the answer is valid.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer can't be recorded. The answer then must not apply.
    pub async fn approval(
        &self,
        call: &CallRecord<'_>,
        by: &str,
        answer: &str,
        scope: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self
            .write(settings, |key| record::approval(key, call, &self.origin, by, answer, scope))
            .await;
        self.check_write(settings, written, "The call was not run")
    }

    /// Records the decision on a command that a plugin chose during a call. `chosen_by` is the
    /// call's tool.
    ///
    /// # Errors
    ///
    /// Returns an error if the decision can't be recorded. The command then must not be started.
    pub async fn command(
        &self,
        command: &CallRecord<'_>,
        chosen_by: &str,
        is_allowed: bool,
    ) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self
            .write(settings, |key| {
                record::command(key, command, &self.origin, chosen_by, is_allowed)
            })
            .await;
        self.check_write(settings, written, "The command was not started")
    }

    /// Records the outcome of a call before it is passed on.
    ///
    /// # Errors
    ///
    /// Returns an error if the outcome can't be recorded. The outcome then must not be passed on.
    /// There is no error for a call that only reads or didn't run.
    pub async fn outcome(&self, outcome: &OutcomeRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let requests_written = self.append_requests(settings, outcome);
        let outcome_written =
            self.write(settings, |key| record::outcome(key, outcome, &self.origin)).await;
        let written = requests_written.and(outcome_written);
        let checked = self.check_write(
            settings,
            written,
            "The call has run, and its effects remain; its answer is withheld",
        );
        let has_acted = outcome.acts && outcome.attempts > 0;
        if has_acted { checked } else { Ok(()) }
    }

    /// Records a tool's own question to the person, or the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the entry can't be written. The question or answer must then be dropped.
    pub async fn inquiry(&self, inquiry: &InquiryRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self.write(settings, |key| record::inquiry(key, inquiry, &self.origin)).await;
        let what = "The question of the tool was not passed on";
        self.check_write(settings, written, what)
    }

    /// Records the undo of a call.
    ///
    /// # Errors
    ///
    /// Returns an error if the undo can't be recorded. The outcome of the call then must not be
    /// passed on.
    pub async fn rollback(&self, rollback: &RollbackRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written =
            self.write(settings, |key| record::rollback(key, rollback, &self.origin)).await;
        let what = "The call has run and was undone; its answer is withheld";
        self.check_write(settings, written, what)
    }

    /// Records the undo of a job's changes. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the undo can't be recorded.
    pub fn rollback_now(&self, rollback: &RollbackRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self.append(settings, |key| record::rollback(key, rollback, &self.origin));
        self.check_write(settings, written.map(drop), "The job was undone")
    }

    /// Records a network request of Toolhold itself. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the request can't be recorded. Its response then must not be used.
    pub fn own_request(&self, request: &OwnRequestRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self.append(settings, |key| record::own_request(key, request, &self.origin));
        let what = "The response to a request of Toolhold is discarded";
        self.check_write(settings, written.map(drop), what)
    }

    /// Records the start or the end of a job. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the job can't be recorded. The job then must not start.
    pub fn job(&self, job: &JobRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self.append(settings, |key| record::job(key, job, &self.origin));
        self.check_write(settings, written.map(drop), "The job was not started")
    }

    /// Records the outcome of a call whose caller no longer waits. Blocks.
    pub fn dropped(&self, outcome: &OutcomeRecord<'_>) {
        let Some(settings) = self.settings else { return };
        let requests_written = self.append_requests(settings, outcome);
        let outcome_written =
            self.append(settings, |key| record::outcome(key, outcome, &self.origin));
        let written = requests_written.and(outcome_written.map(drop));
        let _ = self.check_write(settings, written, "");
    }

    fn append_requests(&self, settings: Settings, outcome: &OutcomeRecord<'_>) -> io::Result<()> {
        let mut report = outcome.report.entries();
        let requests = std::mem::take(&mut report.requests);
        let unlisted_count = std::mem::take(&mut report.more_requests);
        drop(report);
        if requests.is_empty() {
            return Ok(());
        }
        let key = self.key(settings)?;
        for record in record::requests(&key, &outcome.call, &self.origin, &requests, unlisted_count)
        {
            self.append(settings, |_| record)?;
        }
        Ok(())
    }

    /// Appends an entry. With `durable`, waits until the entry survives a power failure.
    async fn write(
        &self,
        settings: Settings,
        body: impl FnOnce(&Key) -> Vec<u8>,
    ) -> io::Result<()> {
        let count = self.append(settings, body)?;
        if settings.durable {
            self.sync(count).await.map_err(files::at(&self.file()))
        } else {
            Ok(())
        }
    }

    /// Appends an entry, and returns the number of entries so far. Writes on the caller's thread,
    /// because switching to another thread takes longer than writing.
    fn append(&self, settings: Settings, format: impl FnOnce(&Key) -> Vec<u8>) -> io::Result<u64> {
        let body = format(&self.key(settings)?);
        let mut state = self.lock_state();
        let is_appended = match &mut state.log {
            Some(log) => log.append(&body).is_ok(),
            None => false,
        };
        if !is_appended {
            // The folder may have moved, or the disk may have room again, so the log is opened
            // again for a second attempt.
            state.close();
            let mut log = Log::open(&self.data, settings.bounds)?;
            let result = log.append(&body);
            state.log = Some(log);
            if result.is_err() {
                state.close();
            }
            result.map_err(files::at(&self.file()))?;
        }
        state.count += 1;
        if let Some(log) = &mut state.log {
            self.hold_lock(log);
        }
        Ok(state.count)
    }

    /// Keeps the lock of the log for a short time if this process writes many entries in a row.
    fn hold_lock(&self, log: &mut Log) {
        if log.can_hold()
            && let Some(releaser) = self.releaser.get_or_init(|| start_releaser(&self.state))
        {
            log.hold();
            releaser.unpark();
        }
    }

    /// Returns the key of the log. Opens the log if necessary.
    fn key(&self, settings: Settings) -> io::Result<Key> {
        let mut state = self.lock_state();
        let log = match &mut state.log {
            Some(log) => log,
            empty => empty.insert(Log::open(&self.data, settings.bounds)?),
        };
        Ok(log.key().clone())
    }

    /// Waits until `count` entries survive a power failure. One caller syncs for all callers that
    /// have arrived before its sync.
    async fn sync(&self, count: u64) -> io::Result<()> {
        let mut synced = self.synced.lock().await;
        if *synced >= count {
            return Ok(());
        }
        let (unsynced, written_count) = {
            let mut state = self.lock_state();
            (state.take_unsynced(), state.count)
        };
        tokio::task::spawn_blocking(move || unsynced.sync()).await.map_err(io::Error::other)??;
        *synced = written_count;
        Ok(())
    }

    fn lock_state(&self) -> MutexGuard<'_, LogState> {
        lock(&self.state)
    }

    fn file(&self) -> PathBuf {
        self.data.join(files::FOLDER).join(files::CURRENT)
    }

    /// Returns a failure if an entry couldn't be written and calls require entries.
    ///
    /// An error is logged only once until the next success. `what` is the consequence for the call.
    fn check_write(
        &self,
        settings: Settings,
        written: io::Result<()>,
        what: &str,
    ) -> Result<(), Failure> {
        let Err(why) = written else {
            self.warned.store(false, Ordering::Relaxed);
            return Ok(());
        };
        let has_warned = self.warned.swap(true, Ordering::Relaxed);
        if !has_warned {
            warn_of_missing_entries(settings.on_failure, &why);
        }
        let message = format!("{what}, because writing the audit log failed: {why}");
        let suggestion = format!(
            "`toolhold doctor` shows the fix. With `on_failure = \"continue\"` in {}, calls run \
             without a record.",
            self.table
        );
        let failure = Failure::new(Category::PermanentFailure, message)
            .with_code("audit")
            .with_suggestion(suggestion);
        match settings.on_failure {
            OnFailure::Stop => Err(failure),
            OnFailure::Continue => Ok(()),
        }
    }
}

/// Records the answer to a stored request for approval immediately, because the call may never run.
/// Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if the answer can't be recorded. The answer then must not apply.
pub fn record_answer(
    config: &config::Config,
    folders: &config::Folders,
    answer: &AnswerRecord<'_>,
    origin: EntryOrigin,
) -> Result<(), HostError> {
    let message = "recording the answer failed, so the answer has no effect";
    record_now(config, folders, origin, message, |key, origin| record::answer(key, answer, origin))
}

/// Records an undo of a call. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if the undo can't be recorded.
pub fn record_rollback(
    config: &config::Config,
    folders: &config::Folders,
    rollback: &RollbackRecord<'_>,
    origin: EntryOrigin,
) -> Result<(), HostError> {
    record_now(config, folders, origin, "recording the undo failed", |key, origin| {
        record::rollback(key, rollback, origin)
    })
}

fn warn_of_missing_entries(on_failure: OnFailure, error: &io::Error) {
    match on_failure {
        OnFailure::Stop => {
            tracing::warn!("calls are not recorded, so calls that can act are denied: {error}");
        }
        OnFailure::Continue => tracing::warn!("calls are not recorded: {error}"),
    }
}

/// Records one entry. `message` is the beginning of the error message.
fn record_now(
    config: &config::Config,
    folders: &config::Folders,
    origin: EntryOrigin,
    message: &str,
    line: impl FnOnce(&Key, &EntryOrigin) -> Vec<u8>,
) -> Result<(), HostError> {
    let audit = Audit::new(config, folders.operator_data(), origin);
    let Some(settings) = audit.settings else { return Ok(()) };
    let mut result = audit.append(settings, |key| line(key, &audit.origin)).map(drop);
    if result.is_ok() && settings.durable {
        result = audit.lock_state().take_unsynced().sync();
    }
    match result {
        Err(why) if settings.on_failure == OnFailure::Stop => Err(HostError::io(message)(why)),
        _ => Ok(()),
    }
}

impl LogState {
    fn close(&mut self) {
        if let Some(mut log) = self.log.take() {
            self.unsynced.add(log.take_unsynced());
        }
    }

    fn take_unsynced(&mut self) -> Unsynced {
        let mut unsynced = std::mem::take(&mut self.unsynced);
        if let Some(log) = &mut self.log {
            unsynced.add(log.take_unsynced());
        }
        unsynced
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        // The thread only has a weak reference to the state. Without the state, it ends when it is
        // woken up.
        self.state = Arc::default();
        if let Some(Some(releaser)) = self.releaser.get() {
            releaser.unpark();
        }
    }
}

fn lock(state: &Mutex<LogState>) -> MutexGuard<'_, LogState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that releases the lock of the log. Each time the thread is unparked, it waits
/// for [`HOLD`] and then releases the lock. It ends if the state was dropped in the meantime.
/// Returns `None` if the thread can't be started.
fn start_releaser(state: &Arc<Mutex<LogState>>) -> Option<Thread> {
    let weak_state: Weak<Mutex<LogState>> = Arc::downgrade(state);
    let builder = std::thread::Builder::new().name("toolhold-record".to_owned());
    let thread = builder.spawn(move || {
        loop {
            std::thread::park();
            std::thread::sleep(HOLD);
            let Some(state) = weak_state.upgrade() else { return };
            let mut locked_state = lock(&state);
            if let Some(log) = &mut locked_state.log
                && let Err(error) = log.release()
            {
                tracing::warn!("writing the end of the audit log into `head` failed: {error}");
            }
        }
    });
    thread.ok().map(|thread| thread.thread().clone())
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit")
            .field("settings", &self.settings)
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
