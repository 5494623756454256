//! The records of Toolhold's own requests, and the interface that stores them.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use toolhold_contract::Failure;

/// The record of one hop: a request or a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorRecord {
    /// The purpose of the request, such as `plugin` or `oauth keys`. For a connection of a program
    /// of an upstream server, `mcp.` and the name of the server.
    pub purpose: Cow<'static, str>,
    /// The start of the hop.
    pub began: SystemTime,
    /// The method.
    pub method: String,
    /// Scheme, host and port.
    pub origin: String,
    /// The path without the query, which may contain a secret.
    pub path: String,
    /// The number of redirects before this hop.
    pub hop: usize,
    /// The address of the connection. `None` without a direct connection.
    pub address: Option<std::net::IpAddr>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Received bytes of the answer's body, or of the whole connection.
    pub bytes: u64,
    /// Bytes that a program sent over its connection. 0 for requests.
    pub sent: u64,
    /// The program of the connection. `None` for Toolhold's own requests.
    pub program: Option<String>,
    /// The names of the secrets that were put in place of their placeholders. Empty for Toolhold's
    /// own requests.
    pub secrets: Vec<String>,
    /// The duration of the hop.
    pub time: Duration,
    /// Whether a rule refused the hop before it was sent.
    pub refused: bool,
    /// The rule that refused the hop, or the reason of its failure.
    pub failed: Option<String>,
}

/// Stores the records.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// Stores a record. Called once at the end of each hop.
    ///
    /// # Errors
    ///
    /// Returns an error if the record can't be stored and the operator allows no request without a
    /// record.
    fn record(&self, record: &DoorRecord) -> Result<(), Failure>;
}
