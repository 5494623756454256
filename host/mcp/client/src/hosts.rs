//! Lets the program of a server reach the hosts that are granted to the server.

use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;
use toolhold_core::{Failure, ServerPlaces, SessionNetwork};
use toolhold_net::requests::{DoorRecord, Recorder};
use toolhold_net::{Egress, HostAccess, HostGate, HostRelay};
use toolhold_system::process::{Command, NetworkSockets, StartError};

use crate::naming::provider_name;

/// Lets the program reach the granted hosts, in a network of its own if this machine has
/// namespaces. Returns the gate of its connections. Returns `None` if no host is granted, or if there
/// is no sandbox. `audit` records the connections. Blocks for a few milliseconds.
pub(crate) fn relay_hosts(
    command: &mut Command,
    places: &ServerPlaces,
    server: &str,
    audit: Arc<dyn Recorder>,
) -> Result<Option<Arc<HostGate>>, StartError> {
    let Some(mut settings) = places.hosts.clone() else { return Ok(None) };
    // No other program shares the network.
    let session = SessionNetwork::default();
    let started = places.places.relay(&session, start_relay)?;
    let Some((network, relay)) = started else { return Ok(None) };
    settings.network.log = Some(Arc::new(ServerRecorder { purpose: provider_name(server), audit }));
    let access = HostAccess::new(Arc::new(Egress::new(settings)));
    let authority = access.authority().map_err(|error| StartError::Io(io::Error::other(error)))?;
    if let (Some(certificate), Some(_)) = (authority, &network) {
        command.trust(certificate);
    }
    // The server outlives each call, so its connections are recorded one by one.
    let report = None;
    let gate = Arc::new(HostGate::new(relay, Arc::new(access), report));
    command.connections = Some(Arc::clone(&gate) as _);
    command.shared_network = network;
    Ok(Some(gate))
}

/// Starts the relay of the program. `sockets` are in the network of the program, if it has one.
fn start_relay(sockets: Option<NetworkSockets>) -> io::Result<HostRelay> {
    let runtime = Handle::current();
    match sockets {
        Some(NetworkSockets { v4, v6, dns_udp, dns_tcp }) => {
            HostRelay::start(v4, v6, dns_udp, dns_tcp, &runtime)
        }
        None => Ok(HostRelay::without_network(&runtime)),
    }
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
