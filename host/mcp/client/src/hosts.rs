//! Lets the program of a server reach the hosts that are granted to the server.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use toolhold_core::{Failure, ServerPlaces};
use toolhold_net::requests::{DoorRecord, Recorder};
use toolhold_net::{Egress, HostAccess, HostGate, HostRelay};
use toolhold_system::process::{Command, NetworkSockets, StartError};

use crate::naming::provider_name;

/// Refused and failed connections of a server that are recorded in each [`PERIOD`]. A server makes
/// such connections without any cost, and the audit log must not grow with each of them.
const MAX_FAILURES: u32 = 60;
const PERIOD: Duration = Duration::from_secs(60);

/// Gives the program a network of its own, in which it reaches the granted hosts. Returns the gate
/// of its connections. Returns `None` if no host is granted, or if this machine can't make the
/// network and the sandbox may lack it. `audit` records the connections. Blocks for a few
/// milliseconds.
pub(crate) fn relay_hosts(
    command: &mut Command,
    places: &ServerPlaces,
    server: &str,
    audit: Arc<dyn Recorder>,
) -> Result<Option<Arc<HostGate>>, StartError> {
    let Some(mut settings) = places.hosts.clone() else { return Ok(None) };
    let Some(network) = places.places.own_network()? else { return Ok(None) };
    let relay = network
        .relay(|sockets| {
            let NetworkSockets { v4, v6, dns_udp, dns_tcp } = sockets;
            HostRelay::start(v4, v6, dns_udp, dns_tcp, &Handle::current())
        })
        .map_err(StartError::Io)?;
    settings.network.log = Some(Arc::new(ServerRecorder::new(server, audit)));
    let access = HostAccess::new(Arc::new(Egress::new(settings)));
    let authority = access.authority();
    if let Some(certificate) = authority.map_err(|error| StartError::Io(io::Error::other(error)))? {
        command.trust(certificate);
    }
    // The server outlives each call, so its connections are recorded one by one.
    let report = None;
    let gate = Arc::new(HostGate::new(relay, Arc::new(access), report));
    command.connections = Some(Arc::clone(&gate) as _);
    command.shared_network = Some(network);
    Ok(Some(gate))
}

/// Names the server in the records of its connections, and limits the records of failures.
#[derive(Debug)]
struct ServerRecorder {
    purpose: String,
    audit: Arc<dyn Recorder>,
    /// The start of the current period, and the failures in it.
    failures: Mutex<(Instant, u32)>,
}

impl ServerRecorder {
    fn new(server: &str, audit: Arc<dyn Recorder>) -> Self {
        let failures = Mutex::new((Instant::now(), 0));
        Self { purpose: provider_name(server), audit, failures }
    }

    /// Counts a failure. Returns whether it is within the limit.
    fn count_failure(&self) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, count) = &mut *failures;
        if start.elapsed() >= PERIOD {
            *start = Instant::now();
            *count = 0;
        }
        *count = count.saturating_add(1);
        *count <= MAX_FAILURES
    }
}

impl Recorder for ServerRecorder {
    fn record(&self, record: &DoorRecord) -> Result<(), Failure> {
        if record.failed.is_some() && !self.count_failure() {
            return Ok(());
        }
        let purpose = self.purpose.clone().into();
        self.audit.record(&DoorRecord { purpose, ..record.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[derive(Debug, Default)]
    struct Records(Mutex<Vec<DoorRecord>>);

    impl Recorder for Records {
        fn record(&self, record: &DoorRecord) -> Result<(), Failure> {
            self.0.lock().expect("nobody panicked").push(record.clone());
            Ok(())
        }
    }

    #[test]
    fn records_name_the_server_and_failures_are_limited() {
        let records = Arc::new(Records::default());
        let recorder = ServerRecorder::new("time", Arc::clone(&records) as _);
        let made = DoorRecord {
            purpose: "program".into(),
            began: SystemTime::UNIX_EPOCH,
            method: "CONNECT".to_owned(),
            origin: "https://a.example".to_owned(),
            path: String::new(),
            hop: 0,
            address: None,
            status: None,
            bytes: 1,
            sent: 1,
            program: Some("node".to_owned()),
            time: Duration::ZERO,
            refused: false,
            failed: None,
        };
        let refused =
            DoorRecord { refused: true, failed: Some("hosts".to_owned()), ..made.clone() };
        let attempts = 2 * MAX_FAILURES;
        for _ in 0..attempts {
            recorder.record(&refused).expect("it is recorded");
            recorder.record(&made).expect("it is recorded");
        }
        let all = records.0.lock().expect("nobody panicked");
        assert!(all.iter().all(|record| record.purpose == "mcp.time"), "{all:?}");
        let failed = all.iter().filter(|record| record.refused).count();
        assert_eq!((failed, all.len() - failed), (MAX_FAILURES as usize, attempts as usize));
    }
}
