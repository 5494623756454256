//! The record of each request of Toolhold's own, and the interface that keeps it.

use std::fmt;
use std::time::{Duration, SystemTime};

use toolhold_contract::Failure;

/// The record of a request, or of one hop of it. Each redirect has a record of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorRecord {
    /// The purpose of the request, in Toolhold's own words: `plugin`, `oauth keys`, …
    pub purpose: &'static str,
    /// The start of the request.
    pub began: SystemTime,
    /// Its method.
    pub method: String,
    /// Scheme, host and port.
    pub origin: String,
    /// The path without the query, which may hold a secret.
    pub path: String,
    /// The number of redirects that led to it.
    pub hop: usize,
    /// The address that it was connected to. `None` without a connection, or through a proxy.
    pub address: Option<std::net::IpAddr>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Bytes of the answer's body that came.
    pub bytes: u64,
    /// The time until its end.
    pub time: Duration,
    /// Whether a rule refused it, so that it was not sent.
    pub refused: bool,
    /// The rule that refused it, or the fault.
    pub failed: Option<String>,
}

/// Keeps the records.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// Keeps a record. Called once for each hop, when it has ended.
    ///
    /// # Errors
    ///
    /// The record can't be kept, and the operator wants no request without a record.
    fn record(&self, record: &DoorRecord) -> Result<(), Failure>;
}
