//! The network that the commands of a session share, from the side of the host. The host has many
//! threads, so it can't enter a namespace of users itself: a helper does, and sends what it opened.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::helper;
use crate::confine::NetworkAnswer;
use crate::messages;

/// A network with nothing but a loopback, which commands share. It lasts as long as one of its
/// processes or this value.
#[derive(Debug)]
pub struct SharedNetwork {
    /// Its number, which no other network of this process has.
    pub(super) number: u64,
    /// The namespace of users that it belongs to.
    users: OwnedFd,
    /// The namespace of the network.
    network: OwnedFd,
}

impl SharedNetwork {
    /// Makes a network. Blocks for a few milliseconds.
    ///
    /// # Errors
    ///
    /// This machine has no such namespaces.
    pub(super) fn make(helper: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        helper::ask_for_network(helper, |control| {
            let (users, network) = (answer(control)?, answer(control)?);
            Ok(Self { number: NEXT.fetch_add(1, Ordering::Relaxed), users, network })
        })
    }

    /// Sends its namespaces to a helper that enters it.
    pub(super) fn send(&self, control: &UnixStream) -> io::Result<()> {
        messages::send(control, &(), Some(self.users.as_fd()))?;
        messages::send(control, &(), Some(self.network.as_fd()))
    }
}

fn answer(control: &UnixStream) -> io::Result<OwnedFd> {
    let (answer, descriptor) = messages::receive::<NetworkAnswer>(control)?;
    answer.map_err(io::Error::other)?;
    descriptor.ok_or_else(|| io::Error::other("the helper sent no descriptor"))
}
