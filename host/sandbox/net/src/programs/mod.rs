//! Connections of programs in the sandbox.
//!
//! A command has a network of its own, in which only the loopback interface exists. A [`HostRelay`]
//! serves this network. Its resolver gives each host name a synthetic address, so the address of a
//! later connection stands for the name. The kernel stops each `connect` of the command, and a
//! [`HostGate`] decides. The gate connects an allowed socket to the relay. If no entry grants a host,
//! but a person can approve it, the relay holds the connection until the answer. The relay checks that the
//! program talks to the host that it has looked up, connects to a checked address of this host, and
//! passes the bytes on.
//!
//! Where this machine has no namespaces, a command is in the machine's network. Then the gate makes
//! each connection itself, also those to a resolver, and gives the program one end of it.
//!
//! TLS is passed on unread, unless a secret or a rule about methods or paths needs the requests. Then
//! the relay has a certificate of its own authority, which only programs in the sandbox trust.

mod access;
mod authority;
mod body;
mod connection;
mod connection_record;
mod failure_limit;
mod first_bytes;
mod gate;
mod host_questions;
mod http;
mod names;
mod pair;
mod placeholders;
mod redacted_body;
mod relay;
mod resolver;
mod serve;
mod terminated;
mod tunnel;

pub use access::HostAccess;
pub use gate::HostGate;
pub use host_questions::HostQuestions;
pub use relay::{HostRelay, drain_ended_relays};
