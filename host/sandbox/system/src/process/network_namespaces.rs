//! Sends the namespaces of a shared network to a helper that enters them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::messages;

#[derive(Debug)]
pub(super) struct NetworkNamespaces {
    pub(super) users: OwnedFd,
    pub(super) network: OwnedFd,
}

impl NetworkNamespaces {
    pub(super) fn send(&self, control: &UnixStream) -> io::Result<()> {
        messages::send(control, &(), Some(self.users.as_fd()))?;
        messages::send(control, &(), Some(self.network.as_fd()))
    }
}
