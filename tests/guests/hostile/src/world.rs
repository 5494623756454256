//! Attacks that reach the network, and data of the host's process.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};

use wasip2::filesystem::preopens::get_directories;
use wasip2::sockets::network::{IpAddressFamily, IpSocketAddress, Ipv4SocketAddress};
use wasip2::sockets::{instance_network, ip_name_lookup, tcp_create_socket, udp_create_socket};

use crate::arguments::Arguments;
use crate::attempts::Attempts;
use hostile_support::Loot;

pub(crate) fn reach_the_network(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    let port = u16::try_from(arguments.count).unwrap_or_default();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    attempts.note("std connect", TcpStream::connect(address).map(|_| "connected"));
    attempts.note("std listen", TcpListener::bind("127.0.0.1:0").map(|_| "listening"));
    attempts.note(
        "std udp",
        UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", address)),
    );
    attempts.note("std lookup", ("localhost", port).to_socket_addrs().map(|found| found.count()));

    let network = instance_network::instance_network();
    let remote = IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address: (127, 0, 0, 1) });
    for family in [IpAddressFamily::Ipv4, IpAddressFamily::Ipv6] {
        if let Ok(socket) = tcp_create_socket::create_tcp_socket(family) {
            attempts
                .note("tcp connect", socket.start_connect(&network, remote).map(|()| "started"));
        }
        if let Ok(socket) = udp_create_socket::create_udp_socket(family) {
            attempts.note("udp bind", socket.start_bind(&network, remote).map(|()| "started"));
            attempts.note("udp stream", socket.stream(Some(remote)).map(|_| "streaming"));
        }
    }
    let lookup = ip_name_lookup::resolve_addresses(&network, "localhost").and_then(|found| {
        found.subscribe().block();
        found.resolve_next_address()
    });
    attempts.note("lookup", lookup.map(|address| format!("{address:?}")));
    attempts.loot()
}

pub(crate) fn tell_the_environment(_: &Arguments) -> Loot {
    let variables = std::env::vars_os().map(|pair| format!("{pair:?}"));
    let arguments = std::env::args_os().map(|argument| format!("{argument:?}"));
    let mut known: Vec<String> = variables.chain(arguments).collect();
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    known.extend((!input.is_empty()).then_some(input));
    if known.is_empty() { Err("there is nothing".into()) } else { Ok(known.join("\n").into()) }
}

pub(crate) fn tell_the_grants(_: &Arguments) -> Loot {
    let names: Vec<String> = get_directories().into_iter().map(|(_, name)| name).collect();
    if names.is_empty() { Err("there are none".into()) } else { Ok(names.join("\n").into()) }
}
