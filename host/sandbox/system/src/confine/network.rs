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

/// The second argument of a helper that makes a network, and of one that makes sockets in it.
pub(crate) const NETWORK: &str = "network";
pub(crate) const SOCKETS: &str = "sockets";

/// An answer of such a helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NetworkAnswer {
    /// The descriptor comes with this message.
    Opened,
    /// There is no descriptor, for this reason.
    Failed(String),
}

/// Makes a network, answers with its namespaces, of users and of the network, and ends.
pub(super) fn serve(control: &UnixStream) -> ! {
    // If an answer can't be sent, no process waits for it.
    let _ = match make_network() {
        Ok([users, network]) => {
            answer(control, Ok(users)).and_then(|()| answer(control, Ok(network)))
        }
        Err(error) => answer(control, Err(error)),
    };
    exit(0)
}

/// Enters a network, and answers with the descriptors that it opened there: for each version of the
/// protocol, a socket, and the kernel's list of the sockets there. Then it ends.
pub(super) fn serve_sockets(control: &UnixStream) -> ! {
    // Nothing is opened outside of the network.
    let _ = match enter(control) {
        Ok(()) => send_side(control, AddressFamily::INET, "tcp")
            .and_then(|()| send_side(control, AddressFamily::INET6, "tcp6")),
        Err(error) => answer(control, Err(error)),
    };
    exit(0)
}

/// Opens a socket of one version of the protocol and its list, and sends both.
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

/// Makes a network in a namespace of users with a single user, and returns both. They last as long
/// as a process in them or a descriptor.
fn make_network() -> io::Result<[OwnedFd; 2]> {
    namespaces::enter_users(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
    // As in a network of a command's own: if it can't be switched on, programs see that.
    let _ = raw::loopback_up();
    let users = File::open("/proc/self/ns/user")?;
    let network = File::open("/proc/self/ns/net")?;
    Ok([users.into(), network.into()])
}

/// Enters the network whose namespaces come next over the socket. Whoever made a namespace of users
/// has all rights in it, and so may enter its networks. The process gives them up when it enters a
/// namespace of users of its own.
pub(super) fn enter(control: &UnixStream) -> io::Result<()> {
    for kind in [LinkNameSpaceType::User, LinkNameSpaceType::Network] {
        let ((), namespace) = messages::receive::<()>(control)?;
        let namespace = namespace.ok_or_else(|| io::Error::other("the namespace didn't come"))?;
        move_into_link_name_space(namespace.as_fd(), Some(kind))?;
    }
    Ok(())
}
