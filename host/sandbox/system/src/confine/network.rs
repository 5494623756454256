//! Makes and enters the network that the commands of a session share, on the helper's side.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::exit;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::{namespaces, raw};
use crate::messages;

/// The second command-line argument of a helper that makes a network, or makes sockets in a
/// network.
pub(crate) const NETWORK: &str = "network";
pub(crate) const SOCKETS: &str = "sockets";

/// An answer of a helper for networks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NetworkAnswer {
    /// The descriptor comes with this message.
    Opened,
    /// The helper has no descriptor. The text gives the reason.
    Failed(String),
}

/// Makes a network, sends its user namespace and its network namespace, and ends.
pub(super) fn serve(control: &UnixStream) -> ! {
    // If sending fails, no process waits for the answer.
    let _ = match make_network() {
        Ok([users, network]) => {
            answer(control, Ok(users)).and_then(|()| answer(control, Ok(network)))
        }
        Err(error) => answer(control, Err(error)),
    };
    exit(0)
}

/// Enters a network, and sends the descriptors that it opens in the network: for each version of
/// the protocol, a socket and the kernel's list of sockets. Then it ends.
pub(super) fn serve_sockets(control: &UnixStream) -> ! {
    // Nothing is opened outside of the network.
    let _ = match enter(control) {
        Ok(()) => send_side(control, AddressFamily::INET, "tcp")
            .and_then(|()| send_side(control, AddressFamily::INET6, "tcp6")),
        Err(error) => answer(control, Err(error)),
    };
    exit(0)
}

/// Opens a socket of one protocol version and the list of its sockets, and sends both.
fn send_side(control: &UnixStream, family: AddressFamily, list: &str) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    answer(control, Ok(socket))?;
    let list = File::open(format!("/proc/self/net/{list}"));
    answer(control, list.map(OwnedFd::from))
}

fn answer(control: &UnixStream, opened: io::Result<OwnedFd>) -> io::Result<()> {
    match opened {
        Ok(opened) => messages::send(control, &NetworkAnswer::Opened, Some(opened.as_fd())),
        Err(error) => messages::send(control, &NetworkAnswer::Failed(error.to_string()), None),
    }
}

/// Makes a network in a user namespace with a single user, and returns both namespaces. They exist
/// as long as a process in them or a descriptor.
fn make_network() -> io::Result<[OwnedFd; 2]> {
    namespaces::enter_users(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
    // If the interface can't be enabled, programs report it, as in a command's own network.
    let _ = raw::loopback_up();
    let users = File::open("/proc/self/ns/user")?;
    let network = File::open("/proc/self/ns/net")?;
    Ok([users.into(), network.into()])
}

/// Enters the network whose namespaces arrive next over the socket.
///
/// The creator of a user namespace has all rights in it, and so may enter its networks. The process
/// gives these rights up when it enters its own user namespace.
pub(super) fn enter(control: &UnixStream) -> io::Result<()> {
    for kind in [LinkNameSpaceType::User, LinkNameSpaceType::Network] {
        let ((), namespace) = messages::receive::<()>(control)?;
        let namespace = namespace.ok_or_else(|| io::Error::other("the namespace didn't come"))?;
        move_into_link_name_space(namespace.as_fd(), Some(kind))?;
    }
    Ok(())
}
