//! The audit log. It records the intent, the approval and the outcome of each call, and returns
//! after the system has the entry.
//!
//! Each entry is a line of JSON in `audit/audit.jsonl` in Toolhold's data folder, which tools can't
//! read or write. A call that can act is recorded before it runs, and every call is recorded before
//! its answer leaves the host. The lines form a hash chain with a key that is stored next to them.
//! [`Trail::verify`] finds changed, missing and truncated entries.

mod chain;
mod files;
mod follow;
mod head;
mod kind;
mod line;
mod lines;
mod log;
mod reader;
mod record;
mod stats;
mod time;
mod trail;
mod verify;

use std::borrow::Cow;
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
pub use self::reader::{LogPosition, LogRecord, ReadFrom, RecordReader};
pub use self::record::{
    AnswerRecord, CallRecord, FilteredRecord, InquiryRecord, JobRecord, OutcomeRecord,
    OwnRequestRecord, RollbackRecord, SnapshotRecord, SourceRecord, ToolRecord,
};
pub use self::stats::{FilterStats, ToolStats};
pub use self::trail::{ChainHead, Trail};
pub use self::verify::{Finding, Verification};

/// How long a process keeps the lock of the log for its next entries. Another process waits at most
/// this long, and the file `head` is at most this old.
const HOLD: Duration = Duration::from_millis(10);

/// Writes the entries. Each function returns when the system has the entry, which then survives
/// this process. If the configuration requires it, the function returns when the entry survives a
/// power failure.
pub struct Audit {
    /// The settings. `None` means that nothing is recorded.
    settings: Option<Settings>,
    /// The table of the settings, for remedies.
    table: String,
    /// Toolhold's data folder.
    data: PathBuf,
    front_end: Cow<'static, str>,
    written: Arc<Mutex<LogState>>,
    /// The thread that releases the lock of the log. `None` means that there is no thread, so the
    /// lock isn't kept.
    releaser: OnceLock<Option<Thread>>,
    /// How many records survive a power failure. The holder of the lock waits for the disk, for all
    /// records before.
    synced: tokio::sync::Mutex<u64>,
    /// Whether a failure to record has been logged.
    warned: AtomicBool,
}

#[derive(Default)]
struct LogState {
    /// The log, which is opened for the first entry and again after an error.
    log: Option<Log>,
    /// Number of records that this process has written.
    count: u64,
    /// Unsynced files of logs that were open before.
    unsynced: Unsynced,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    on_failure: OnFailure,
    durable: bool,
    bounds: Bounds,
}

impl Audit {
    /// Records as the configuration says, for calls by a front end. Opens nothing yet.
    pub fn new(config: &config::Config, data: &Path, front_end: Cow<'static, str>) -> Self {
        let config::Audit { enabled, on_failure, durable, max_mib, keep } = config.values.audit;
        let settings = Settings {
            on_failure,
            durable,
            bounds: Bounds { file: max_mib.get() << 20, keep: keep.get(), durable },
        };
        Self {
            settings: enabled.then_some(settings),
            table: config.own_table("audit").to_string(),
            data: data.to_owned(),
            front_end,
            written: Arc::default(),
            releaser: OnceLock::new(),
            synced: tokio::sync::Mutex::new(0),
            warned: AtomicBool::new(false),
        }
    }

    /// Records a call that is about to run.
    ///
    /// # Errors
    ///
    /// Returns an error if the call can't be recorded and must not run.
    pub async fn intent(&self, call: &CallRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self.write(settings, |key| record::intent(key, call, &self.front_end)).await;
        self.check_write(settings, written, "The call was not run").map_or(Ok(()), Err)
    }

    /// Records the answer to a question about a call, and how long the answer is valid.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer can't be recorded and must not apply.
    pub async fn approval(
        &self,
        call: &CallRecord<'_>,
        by: &str,
        answer: &str,
        scope: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self
            .write(settings, |key| record::approval(key, call, &self.front_end, by, answer, scope))
            .await;
        self.check_write(settings, written, "The call was not run").map_or(Ok(()), Err)
    }

    /// Records the decision on a command that a plugin chose during a call. The entry is that of a
    /// `bash` call with the same ID. `chosen_by` is the call's tool.
    ///
    /// # Errors
    ///
    /// Returns an error if the decision can't be recorded and the command must not be started.
    pub async fn command(
        &self,
        command: &CallRecord<'_>,
        chosen_by: &str,
        is_allowed: bool,
    ) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self
            .write(settings, |key| {
                record::command(key, command, &self.front_end, chosen_by, is_allowed)
            })
            .await;
        self.check_write(settings, written, "The command was not started").map_or(Ok(()), Err)
    }

    /// Records the outcome of a call before it is passed on.
    ///
    /// # Errors
    ///
    /// Returns an error if the outcome can't be recorded and must not be passed on. A call that
    /// only reads or that didn't run never returns this error.
    pub async fn outcome(&self, outcome: &OutcomeRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let requests = self.requests(settings, outcome);
        let written =
            self.write(settings, |key| record::outcome(key, outcome, &self.front_end)).await;
        let written = requests.and(written);
        let failure = self.check_write(
            settings,
            written,
            "The call has run, and its effects remain; its answer is withheld",
        );
        match failure {
            Some(failure) if outcome.acts && outcome.attempts > 0 => Err(failure),
            _ => Ok(()),
        }
    }

    /// Records a tool's own question to the person, or the answer to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the entry can't be written. The question must then not be asked, or its
    /// answer must not apply.
    pub async fn inquiry(&self, inquiry: &InquiryRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written =
            self.write(settings, |key| record::inquiry(key, inquiry, &self.front_end)).await;
        let what = "The question of the tool was not passed on";
        self.check_write(settings, written, what).map_or(Ok(()), Err)
    }

    /// Records the undo of a call.
    ///
    /// # Errors
    ///
    /// Returns an error if the undo can't be recorded and the outcome of the call must not be
    /// passed on.
    pub async fn rollback(&self, rollback: &RollbackRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written =
            self.write(settings, |key| record::rollback(key, rollback, &self.front_end)).await;
        let what = "The call has run and was undone; its answer is withheld";
        self.check_write(settings, written, what).map_or(Ok(()), Err)
    }

    /// Records the undo of a job's changes. Returns when the system has the entry.
    ///
    /// # Errors
    ///
    /// Returns an error if the undo can't be recorded.
    pub fn rollback_now(&self, rollback: &RollbackRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self.append(settings, |key| record::rollback(key, rollback, &self.front_end));
        self.check_write(settings, written.map(drop), "The job was undone").map_or(Ok(()), Err)
    }

    /// Records a request of Toolhold itself. Returns when the system has the entry.
    ///
    /// # Errors
    ///
    /// Returns an error if the request can't be recorded and its answer must not be used.
    pub fn own_request(&self, request: &OwnRequestRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written =
            self.append(settings, |key| record::own_request(key, request, &self.front_end));
        let what = "The answer to a request of Toolhold is not used";
        self.check_write(settings, written.map(drop), what).map_or(Ok(()), Err)
    }

    /// Records the start or the end of a job. Returns when the system has the entry.
    ///
    /// # Errors
    ///
    /// Returns an error if the job can't be recorded and must not start.
    pub fn job(&self, job: &JobRecord<'_>) -> Result<(), Failure> {
        let Some(settings) = self.settings else { return Ok(()) };
        let written = self.append(settings, |key| record::job(key, job, &self.front_end));
        self.check_write(settings, written.map(drop), "The job was not started").map_or(Ok(()), Err)
    }

    /// Records the outcome of a call whose caller no longer waits. Returns when the system has the
    /// entry.
    pub fn dropped(&self, outcome: &OutcomeRecord<'_>) {
        let Some(settings) = self.settings else { return };
        let requests = self.requests(settings, outcome);
        let written = self.append(settings, |key| record::outcome(key, outcome, &self.front_end));
        let _ = self.check_write(settings, requests.and(written.map(drop)), "");
    }

    /// Appends an entry for each reported request of a call.
    fn requests(&self, settings: Settings, outcome: &OutcomeRecord<'_>) -> io::Result<()> {
        let mut report = outcome.report.entries();
        let requests = std::mem::take(&mut report.requests);
        let more = std::mem::take(&mut report.more_requests);
        drop(report);
        if requests.is_empty() {
            return Ok(());
        }
        let key = self.key(settings)?;
        for record in record::requests(&key, &outcome.call, &self.front_end, &requests, more) {
            self.append(settings, |_| record)?;
        }
        Ok(())
    }

    /// Appends an entry. If the configuration requires it, waits until the entry survives a power
    /// failure.
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

    /// Appends an entry, and returns the number of entries including it. Runs on the caller's
    /// thread, because switching to another thread would take longer than these microseconds.
    fn append(&self, settings: Settings, body: impl FnOnce(&Key) -> Vec<u8>) -> io::Result<u64> {
        // The record is formatted outside of the lock.
        let body = body(&self.key(settings)?);
        let mut state = self.lock_state();
        let is_appended = match &mut state.log {
            Some(log) => log.append(&body).is_ok(),
            None => false,
        };
        if !is_appended {
            // The folder may have moved, or the disk may have room again. So the log is opened
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
        if let Some(log) = &mut state.log
            && log.can_hold()
            && let Some(releaser) = self.releaser.get_or_init(|| start_releaser(&self.written))
        {
            log.hold();
            releaser.unpark();
        }
        Ok(state.count)
    }

    /// Opens the log and returns its key.
    fn key(&self, settings: Settings) -> io::Result<Key> {
        let mut written = self.lock_state();
        let log = match &mut written.log {
            Some(log) => log,
            none => none.insert(Log::open(&self.data, settings.bounds)?),
        };
        Ok(log.key().clone())
    }

    /// Waits until this number of entries survives a power failure. One caller syncs. Callers that
    /// arrive meanwhile share the next sync.
    async fn sync(&self, count: u64) -> io::Result<()> {
        let mut synced = self.synced.lock().await;
        if *synced >= count {
            return Ok(());
        }
        let (unsynced, all) = {
            let mut written = self.lock_state();
            (written.take_unsynced(), written.count)
        };
        tokio::task::spawn_blocking(move || unsynced.sync()).await.map_err(io::Error::other)??;
        *synced = all;
        Ok(())
    }

    fn lock_state(&self) -> MutexGuard<'_, LogState> {
        lock(&self.written)
    }

    /// Returns the current file.
    fn file(&self) -> PathBuf {
        self.data.join(files::FOLDER).join(files::CURRENT)
    }

    /// Returns a failure if an entry couldn't be written and the configuration requires entries for
    /// calls.
    ///
    /// The error is logged once until an entry is written again. `what` is the consequence for the
    /// call.
    fn check_write(
        &self,
        settings: Settings,
        written: io::Result<()>,
        what: &str,
    ) -> Option<Failure> {
        let Err(why) = written else {
            self.warned.store(false, Ordering::Relaxed);
            return None;
        };
        if !self.warned.swap(true, Ordering::Relaxed) {
            match settings.on_failure {
                OnFailure::Stop => tracing::warn!(
                    "calls are not recorded, so calls that can act are denied: {why}"
                ),
                OnFailure::Continue => tracing::warn!("calls are not recorded: {why}"),
            }
        }
        let message = format!("{what}, since it can't be recorded: {why}");
        let suggestion = format!(
            "`toolhold doctor` says how to fix it. With `on_failure = \"continue\"` in {}, calls run without a record.",
            self.table
        );
        let failure = Failure::new(Category::PermanentFailure, message)
            .with_code("audit")
            .with_suggestion(suggestion);
        (settings.on_failure == OnFailure::Stop).then_some(failure)
    }
}

/// Records the answer to a posted question when the answer is given, because the call may never
/// run. Blocks.
///
/// # Errors
///
/// [`HostError::Io`] if the answer can't be recorded and must not apply.
pub fn record_answer(
    config: &config::Config,
    folders: &config::Folders,
    answer: &AnswerRecord<'_>,
    front_end: &str,
) -> Result<(), HostError> {
    record_now(
        config,
        folders,
        front_end,
        "recording the answer failed, so the answer has no effect",
        |key| record::answer(key, answer, front_end),
    )
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
    front_end: &str,
) -> Result<(), HostError> {
    record_now(config, folders, front_end, "recording the undo failed", |key| {
        record::rollback(key, rollback, front_end)
    })
}

/// Records one line with a separate log. `failed` is the beginning of the error message.
fn record_now(
    config: &config::Config,
    folders: &config::Folders,
    front_end: &str,
    failed: &str,
    line: impl FnOnce(&Key) -> Vec<u8>,
) -> Result<(), HostError> {
    let audit = Audit::new(config, &folders.data, Cow::Owned(front_end.to_owned()));
    let Some(settings) = audit.settings else { return Ok(()) };
    let mut result = audit.append(settings, line).map(drop);
    if result.is_ok() && settings.durable {
        result = audit.lock_state().take_unsynced().sync();
    }
    match result {
        Err(why) if settings.on_failure == OnFailure::Stop => Err(HostError::io(failed)(why)),
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
        // Without the state, the thread ends.
        self.written = Arc::default();
        if let Some(Some(releaser)) = self.releaser.get() {
            releaser.unpark();
        }
    }
}

fn lock(written: &Mutex<LogState>) -> MutexGuard<'_, LogState> {
    written.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that releases the lock of the log a short time after it is woken. The thread
/// ends when the state is dropped. Returns `None` if the thread can't be started.
fn start_releaser(written: &Arc<Mutex<LogState>>) -> Option<Thread> {
    let written: Weak<Mutex<LogState>> = Arc::downgrade(written);
    let builder = std::thread::Builder::new().name("toolhold-record".to_owned());
    let thread = builder.spawn(move || {
        loop {
            std::thread::park();
            std::thread::sleep(HOLD);
            let Some(state) = written.upgrade() else { return };
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
