//! The record of each of Toolhold's own requests, and the interface that stores it.

use std::fmt;
use std::time::{Duration, SystemTime};

use toolhold_contract::Failure;

/// The record of one hop of a request. Each redirect is a hop with its own record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorRecord {
    /// The purpose of the request, such as `plugin` or `oauth keys`. Toolhold defines these texts.
    pub purpose: &'static str,
    /// The start of the request.
    pub began: SystemTime,
    /// The method.
    pub method: String,
    /// Scheme, host and port.
    pub origin: String,
    /// The path without the query, which may contain a secret.
    pub path: String,
    /// The number of redirects before this hop.
    pub hop: usize,
    /// The address of the connection. `None` without a connection, or through a proxy.
    pub address: Option<std::net::IpAddr>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Bytes of the answer's body that came.
    pub bytes: u64,
    /// The duration of the hop.
    pub time: Duration,
    /// Whether a rule refused the request, so that it was not sent.
    pub refused: bool,
    /// The rule that refused the request, or the reason of its failure.
    pub failed: Option<String>,
}

/// Keeps the records.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// Stores a record. Called once for each hop, at the end of the hop.
    ///
    /// # Errors
    ///
    /// Returns an error if the record can't be stored, and the operator wants no request without a
    /// record.
    fn record(&self, record: &DoorRecord) -> Result<(), Failure>;
}
