//! Connections of a command's programs, which the host makes for them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Decides on the connections of a command, and makes the allowed connections.
pub trait ConnectionGate: fmt::Debug + Send + Sync {
    /// Connects the socket of a program. The program waits for the result, so slow decisions are
    /// made after the connection.
    ///
    /// # Errors
    ///
    /// Returns the error that the program gets.
    fn connect(&self, connection: &ProgramConnection<'_>) -> io::Result<()>;

    /// Makes a connection for a program in the machine's network. Returns the connected socket,
    /// which replaces the program's own.
    ///
    /// # Errors
    ///
    /// Returns the error that the program gets.
    fn open(&self, address: SocketAddr, program: &str) -> io::Result<OwnedFd>;

    /// Returns how long connections have waited for a person. The command's time limit is extended
    /// by this time. By default, no connection waits.
    fn waited(&self) -> Duration {
        Duration::ZERO
    }
}

/// A TCP connection that a program requests.
#[derive(Debug)]
pub struct ProgramConnection<'a> {
    /// The program's own socket, in the network of the command.
    pub socket: BorrowedFd<'a>,
    /// The requested address. It isn't a loopback address.
    pub address: SocketAddr,
    /// The name of the program as the kernel lists it. Programs can change their names.
    pub program: String,
}
