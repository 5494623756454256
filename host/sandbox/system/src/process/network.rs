//! Makes the network that the commands of a session share, and opens its loopback for the host. The
//! host has many threads, so it can't enter a user namespace itself. A helper enters the namespace
//! and sends the opened descriptors.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::helper;
use super::network_namespaces::NetworkNamespaces;
use crate::confine::{NETWORK, NetworkAnswer, SOCKETS};
use crate::messages;

/// A network with only a loopback interface, which commands share. It exists as long as one of its
/// processes or this value.
#[derive(Debug)]
pub struct SharedNetwork {
    /// The number of the network, which is unique in this process.
    pub(super) number: u64,
    /// The helper program that enters the network.
    helper: PathBuf,
    namespaces: NetworkNamespaces,
}

impl SharedNetwork {
    /// Makes a network. Blocks for a few milliseconds.
    ///
    /// # Errors
    ///
    /// Returns an error if this machine doesn't support the namespaces.
    pub(super) fn make(helper: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        helper::ask_about_network(helper, NETWORK, |control| {
            let users = receive_descriptor(control)?;
            let network = receive_descriptor(control)?;
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let namespaces = NetworkNamespaces { users, network };
            Ok(Self { number, helper: helper.to_owned(), namespaces })
        })
    }

    /// Opens the loopback for one connection, with IPv4, and with IPv6 if it is available. Blocks
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

    /// Returns the namespaces that a helper enters.
    pub(super) fn namespaces(&self) -> &NetworkNamespaces {
        &self.namespaces
    }
}

/// One IP version in a network.
#[derive(Debug)]
pub struct LoopbackSide {
    /// A socket in the network, which isn't connected and doesn't block.
    pub socket: OwnedFd,
    /// The file `/proc/net/tcp` or `tcp6` of the network, in which listening sockets come first.
    pub list: OwnedFd,
}

fn receive_side(control: &UnixStream) -> io::Result<LoopbackSide> {
    Ok(LoopbackSide { socket: receive_descriptor(control)?, list: receive_descriptor(control)? })
}

/// Receives a descriptor that a helper has opened.
fn receive_descriptor(control: &UnixStream) -> io::Result<OwnedFd> {
    match messages::receive(control)? {
        (NetworkAnswer::Opened, Some(descriptor)) => Ok(descriptor),
        (NetworkAnswer::Opened, None) => Err(io::Error::other("the helper sent no descriptor")),
        (NetworkAnswer::Failed(reason), _) => Err(io::Error::other(reason)),
    }
}
