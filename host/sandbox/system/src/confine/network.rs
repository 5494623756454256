//! The helper's side of a network that the commands of a session share.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::exit;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::{namespaces, raw};
use crate::messages;

/// The second argument of a helper that makes a network, or makes sockets in a network.
pub(crate) const NETWORK: &str = "network";
pub(crate) const SOCKETS: &str = "sockets";

/// The port of DNS servers.
const DNS: u16 = 53;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NetworkAnswer {
    Opened,
    Failed(String),
}

/// Makes a network. Sends its user namespace, its network namespace, and the sockets of a relay in
/// it. Then exits.
pub(super) fn serve(control: &UnixStream) -> ! {
    // If sending fails, no process waits for the answer.
    let _ = match make_network() {
        Ok([users, network]) => send_answer(control, Ok(users))
            .and_then(|()| send_answer(control, Ok(network)))
            .and_then(|()| send_relay_sockets(control)),
        Err(error) => send_answer(control, Err(error)),
    };
    exit(0)
}

/// Sends the sockets of a relay: its listeners, and the sockets for DNS queries. This process may
/// use port 53, which the programs in the network may not.
fn send_relay_sockets(control: &UnixStream) -> io::Result<()> {
    send_answer(control, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(OwnedFd::from))?;
    send_answer(control, TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).map(OwnedFd::from))?;
    send_answer(control, bind_udp(Ipv4Addr::LOCALHOST, DNS))?;
    send_answer(control, TcpListener::bind((Ipv4Addr::LOCALHOST, DNS)).map(OwnedFd::from))
}

fn bind_udp(address: Ipv4Addr, port: u16) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(address, port))?;
    Ok(socket)
}

/// Enters a network, and sends a socket and the kernel's list of sockets for each version of IP.
/// Then exits.
pub(super) fn serve_sockets(control: &UnixStream) -> ! {
    // After an error, no socket is opened, because it would belong to the machine's network. If
    // sending fails, no process waits for the answer.
    let _ = match enter(control) {
        Ok(()) => send_side(control, AddressFamily::INET, "tcp")
            .and_then(|()| send_side(control, AddressFamily::INET6, "tcp6")),
        Err(error) => send_answer(control, Err(error)),
    };
    exit(0)
}

fn send_side(control: &UnixStream, family: AddressFamily, list: &str) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    send_answer(control, Ok(socket))?;
    let list = File::open(format!("/proc/self/net/{list}"));
    send_answer(control, list.map(OwnedFd::from))
}

fn send_answer(control: &UnixStream, opened: io::Result<OwnedFd>) -> io::Result<()> {
    match opened {
        Ok(opened) => messages::send(control, &NetworkAnswer::Opened, Some(opened.as_fd())),
        Err(error) => messages::send(control, &NetworkAnswer::Failed(error.to_string()), None),
    }
}

/// Makes a network in a user namespace with only this user. The namespaces exist as long as a
/// process or a descriptor uses them.
fn make_network() -> io::Result<[OwnedFd; 2]> {
    namespaces::enter_users(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
    // If the interface can't be enabled, the programs that need it report the error.
    let _ = raw::loopback_up().and_then(|()| raw::add_loopback_address());
    let users = File::open("/proc/self/ns/user")?;
    let network = File::open("/proc/self/ns/net")?;
    Ok([users.into(), network.into()])
}

/// Receives a user namespace and its network namespace, and enters both.
///
/// The user who created the user namespace has all rights in it, and so may enter its networks. The
/// process gives up these rights when it enters its own user namespace.
pub(super) fn enter(control: &UnixStream) -> io::Result<()> {
    for kind in [LinkNameSpaceType::User, LinkNameSpaceType::Network] {
        let ((), namespace) = messages::receive::<()>(control)?;
        let namespace =
            namespace.ok_or_else(|| io::Error::other("the network namespace was not received"))?;
        move_into_link_name_space(namespace.as_fd(), Some(kind))?;
    }
    Ok(())
}
