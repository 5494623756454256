//! Lets the program of a server reach the hosts that are granted to the server.

use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;
use toolhold_core::{Failure, ServerPlaces};
use toolhold_net::requests::{DoorRecord, Recorder};
use toolhold_net::{Egress, HostAccess, HostGate, HostRelay};
use toolhold_system::process::{Command, NetworkSockets, StartError};

use crate::naming::provider_name;

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
    settings.network.log = Some(Arc::new(ServerRecorder { purpose: provider_name(server), audit }));
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

/// Names the server in the records of its connections.
#[derive(Debug)]
struct ServerRecorder {
    purpose: String,
    audit: Arc<dyn Recorder>,
}

impl Recorder for ServerRecorder {
    fn record(&self, record: &DoorRecord) -> Result<(), Failure> {
        let purpose = self.purpose.clone().into();
        self.audit.record(&DoorRecord { purpose, ..record.clone() })
    }
}
