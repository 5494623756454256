//! Builds the client for Toolhold's own requests.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use toolhold_audit::{Audit, EntryOrigin, OwnRequestRecord};
use toolhold_config::{Config, Folders};
use toolhold_contract::Failure;
use toolhold_net::requests::{DoorRecord, OutboundClient, Recorder};

/// Creates the client for Toolhold's own requests, with the settings in `[network]`. Each request
/// gets an entry in the audit log with the name `front_end`. The function opens no connection.
pub fn outbound_client(config: &Config, folders: &Folders, front_end: &str) -> OutboundClient {
    let network = config.network(folders, &config.directory());
    let origin = EntryOrigin::new(front_end.to_owned(), folders);
    OutboundClient::new(network, recorder(config, folders, origin))
}

/// Creates the recorder that makes an entry in the audit log for each request.
pub(crate) fn recorder(
    config: &Config,
    folders: &Folders,
    origin: EntryOrigin,
) -> Arc<dyn Recorder> {
    Arc::new(AuditRecorder(Audit::new(config, folders.operator_data(), origin)))
}

#[derive(Debug)]
struct AuditRecorder(Audit);

impl Recorder for AuditRecorder {
    fn record(&self, record: &DoorRecord) -> Result<(), Failure> {
        // With a clock before 1970, the start is recorded as 1970.
        let began = record.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let url = format!("{}{}", record.origin, record.path);
        self.0.own_request(&OwnRequestRecord {
            purpose: &record.purpose,
            began,
            method: &record.method,
            url: &url,
            hop: record.hop as u64,
            address: record.address,
            status: record.status,
            received: record.bytes,
            sent: record.sent,
            program: record.program.as_deref(),
            secrets: &record.secrets,
            time: record.time,
            refused: record.refused,
            failed: record.failed.as_deref(),
        })
    }
}
