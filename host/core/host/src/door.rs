//! Builds the client for Toolhold's own requests, with the settings of `[network]` and a record in
//! the audit log.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use toolhold_audit::{Audit, OwnRequestRecord};
use toolhold_config::{Config, Folders};
use toolhold_contract::Failure;
use toolhold_net::requests::{DoorRecord, OutboundClient, Recorder};

/// Creates the client for Toolhold's own requests, with the settings of `[network]`. The audit log
/// gets an entry for each request, with the name `front_end`. The function opens no connection.
pub fn door(config: &Config, folders: &Folders, front_end: &str) -> OutboundClient {
    let network = config.network(folders, &config.directory());
    let audit = Audit::new(config, &folders.data, Cow::Owned(front_end.to_owned()));
    OutboundClient::new(network, Arc::new(AuditRecorder(audit)))
}

#[derive(Debug)]
struct AuditRecorder(Audit);

impl Recorder for AuditRecorder {
    fn record(&self, record: &DoorRecord) -> Result<(), Failure> {
        let began = record.began.duration_since(SystemTime::UNIX_EPOCH);
        self.0.own_request(&OwnRequestRecord {
            purpose: record.purpose,
            began: began.unwrap_or(Duration::ZERO),
            method: &record.method,
            url: &format!("{}{}", record.origin, record.path),
            hop: record.hop as u64,
            address: record.address,
            status: record.status,
            received: record.bytes,
            time: record.time,
            refused: record.refused,
            failed: record.failed.as_deref(),
        })
    }
}
