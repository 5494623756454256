//! Sends the namespaces of a shared network to a helper that enters them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::messages;

/// The namespaces of a shared network.
#[derive(Debug)]
pub(super) struct NetworkNamespaces {
    /// The namespace of users that the network belongs to.
    pub(super) users: OwnedFd,
    pub(super) network: OwnedFd,
}

impl NetworkNamespaces {
    /// Sends the namespaces to a helper that enters them.
    pub(super) fn send(&self, control: &UnixStream) -> io::Result<()> {
        messages::send(control, &(), Some(self.users.as_fd()))?;
        messages::send(control, &(), Some(self.network.as_fd()))
    }
}
