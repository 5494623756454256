//! Makes the network that the commands of a session share, and opens its loopback for the host. The
//! host has several threads, so it can't enter a user namespace. A helper enters the namespace and
//! sends the opened descriptors.

use std::any::Any;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::helper;
use super::network_namespaces::NetworkNamespaces;
use crate::confine::{NETWORK, NetworkAnswer, SOCKETS};
use crate::messages;

/// A network with only a loopback interface, which commands share. It exists as long as this value
/// or a process in it.
#[derive(Debug)]
pub struct SharedNetwork {
    /// The number of the network, which is unique in this process.
    pub(super) number: u64,
    helper: PathBuf,
    namespaces: NetworkNamespaces,
    /// The sockets for a relay. `None` after they were taken, or if the network has none.
    sockets: Mutex<Option<NetworkSockets>>,
    /// Keeps the relay of the network running.
    relay: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// Sockets in a network, with which the host serves the network.
#[derive(Debug)]
pub struct NetworkSockets {
    /// Listens at a loopback address of IPv4.
    pub v4: TcpListener,
    /// Listens at a loopback address of IPv6. `None` if this machine has no IPv6.
    pub v6: Option<TcpListener>,
    /// The socket for DNS queries.
    pub dns_udp: UdpSocket,
    /// The listener for DNS queries.
    pub dns_tcp: TcpListener,
}

impl SharedNetwork {
    /// Makes a network. Blocks for a few milliseconds. Fails if this machine doesn't support the
    /// namespaces.
    pub(super) fn make(helper: &Path) -> io::Result<Self> {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
        helper::ask_about_network(helper, NETWORK, |control| {
            let users = receive_descriptor(control)?;
            let network = receive_descriptor(control)?;
            let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
            let namespaces = NetworkNamespaces { users, network };
            let sockets = Mutex::new(receive_sockets(control).ok());
            let helper = helper.to_owned();
            Ok(Self { number, helper, namespaces, sockets, relay: OnceLock::new() })
        })
    }

    /// Returns the relay that serves this network. The first call makes it with `make`.
    ///
    /// # Errors
    ///
    /// Returns an error if the network has no sockets for a relay, or if `make` fails.
    pub fn relay<R: Any + Send + Sync>(
        &self,
        make: impl FnOnce(NetworkSockets) -> io::Result<R>,
    ) -> io::Result<Arc<R>> {
        // The lock also keeps other calls from making a second relay.
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sockets) = sockets.take() {
            let _ = self.relay.set(Arc::new(make(sockets)?));
        }
        let relay = self.relay.get().cloned();
        relay
            .and_then(|relay| relay.downcast().ok())
            .ok_or_else(|| io::Error::other("the network has no sockets for a relay"))
    }

    /// Opens the loopback for one connection with IPv4, and with IPv6 if it is available. Blocks
    /// for a few milliseconds.
    ///
    /// # Errors
    ///
    /// Returns an error if a helper can't enter the network.
    pub fn loopback(&self) -> io::Result<(LoopbackSide, Option<LoopbackSide>)> {
        helper::ask_about_network(&self.helper, SOCKETS, |control| {
            self.namespaces.send(control)?;
            let version_4 = receive_side(control)?;
            let version_6 = receive_side(control).ok();
            Ok((version_4, version_6))
        })
    }

    pub(super) fn namespaces(&self) -> &NetworkNamespaces {
        &self.namespaces
    }
}

/// The loopback of one IP version.
#[derive(Debug)]
pub struct LoopbackSide {
    /// A socket in the network. It isn't connected and doesn't block.
    pub socket: OwnedFd,
    /// The file `/proc/net/tcp` or `tcp6` of the network. Listening sockets come first in it.
    pub list: OwnedFd,
}

fn receive_sockets(control: &UnixStream) -> io::Result<NetworkSockets> {
    let v4 = receive_descriptor(control)?.into();
    let v6 = receive_descriptor(control).ok().map(TcpListener::from);
    let dns_udp = receive_descriptor(control)?.into();
    let dns_tcp = receive_descriptor(control)?.into();
    Ok(NetworkSockets { v4, v6, dns_udp, dns_tcp })
}

fn receive_side(control: &UnixStream) -> io::Result<LoopbackSide> {
    Ok(LoopbackSide { socket: receive_descriptor(control)?, list: receive_descriptor(control)? })
}

fn receive_descriptor(control: &UnixStream) -> io::Result<OwnedFd> {
    match messages::receive(control)? {
        (NetworkAnswer::Opened, Some(descriptor)) => Ok(descriptor),
        (NetworkAnswer::Opened, None) => Err(io::Error::other("the helper sent no descriptor")),
        (NetworkAnswer::Failed(reason), _) => Err(io::Error::other(reason)),
    }
}
