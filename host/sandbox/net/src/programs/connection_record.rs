//! The record of a program's connection.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tokio::runtime::Handle;
use toolhold_contract::{Report, RequestRecord};
use toolhold_policy::egress::Target;

use super::failure_limit::FailureLimit;
use crate::record::Record;
use crate::requests::{DoorRecord, Recorder};

/// The method in the records of connections whose requests the relay can't see.
pub(super) const CONNECT: &str = "CONNECT";

/// The way of bytes between a program and its server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    ToServer,
    ToProgram,
}

impl Direction {
    /// Adds the bytes of a piece to the record. Pieces are counted before they are passed on, so a
    /// record never lacks bytes that have left.
    pub(super) fn count(self, record: &Record, length: usize) {
        match self {
            Self::ToServer => record.add_sent(length),
            Self::ToProgram => record.add_received(length),
        }
    }
}

/// The record of a connection, or of one request on it.
pub(super) struct ConnectionRecord {
    record: Record,
    /// The entries for the log. `None` if the report of the call has the record.
    entries: Option<LogEntries>,
}

impl ConnectionRecord {
    pub(super) fn new(record: Record, entries: Option<LogEntries>) -> Self {
        Self { record, entries }
    }

    /// Notes that the host is looked up or reached next, which may carry data of the program away.
    pub(super) fn set_reached_host(&self) {
        if let Some(entries) = &self.entries {
            entries.has_reached_host.store(true, Ordering::Relaxed);
        }
    }
}

impl Deref for ConnectionRecord {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Drop for ConnectionRecord {
    fn drop(&mut self) {
        self.record.set_time();
        let Some(entries) = self.entries.take() else { return };
        // Dropping the entries writes them, which blocks. On a thread of the runtime, other tasks
        // must not wait for the disk, so another thread writes. On other threads, the entries are
        // written right here, at the end of this function.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || drop(entries));
        }
    }
}

/// The records of a connection for the log. Dropping this value writes them, so they are also
/// written if the runtime shuts down and drops its tasks.
pub(super) struct LogEntries {
    log: Arc<dyn Recorder>,
    /// The report with the records.
    report: Arc<Report>,
    failures: Arc<FailureLimit>,
    /// Whether the host may have been reached, or a lookup of its name may have left. Such a
    /// failure always has an entry, because both can carry data of the program.
    has_reached_host: AtomicBool,
}

impl LogEntries {
    pub(super) fn new(
        log: Arc<dyn Recorder>,
        report: Arc<Report>,
        failures: Arc<FailureLimit>,
    ) -> Self {
        Self { log, report, failures, has_reached_host: AtomicBool::new(false) }
    }
}

impl Drop for LogEntries {
    fn drop(&mut self) {
        let has_reached_host = *self.has_reached_host.get_mut();
        let records = std::mem::take(&mut self.report.entries().requests);
        for record in &records {
            // Programs make such failures at no cost, so the log has only a limited number of them.
            let failed_before_host = record.failed.is_some() && !has_reached_host;
            if failed_before_host {
                let is_within_limit = self.failures.count_failure();
                if !is_within_limit {
                    continue;
                }
            }
            if let Err(failure) = self.log.record(&as_own_record(record)) {
                let why = failure.message;
                tracing::warn!(target: "toolhold::egress", "a connection isn't recorded: {why}");
            }
        }
    }
}

/// Returns the record of a connection in the form of Toolhold's own requests.
fn as_own_record(record: &RequestRecord) -> DoorRecord {
    // The query may contain a secret that wasn't recognised.
    let url = record.url.split_once('?').map_or(&*record.url, |(before_query, _)| before_query);
    let target = Target::with_url(url).ok();
    let (origin, path) = match &target {
        Some((target, url)) => {
            let origin = target.origin();
            let path = url.get(origin.len()..).unwrap_or_default().to_owned();
            (origin, path)
        }
        None => (url.to_owned(), String::new()),
    };
    DoorRecord {
        purpose: "program".into(),
        began: SystemTime::UNIX_EPOCH + record.began,
        method: record.method.clone(),
        origin,
        path,
        hop: 0,
        address: record.address,
        status: record.status,
        bytes: record.received,
        sent: record.sent,
        program: record.program.clone(),
        secrets: record.secrets.clone(),
        time: record.time,
        refused: record.refused,
        failed: record.failed.clone(),
    }
}
