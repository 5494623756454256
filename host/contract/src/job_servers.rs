//! The interface that finds servers that run as jobs of a session, for requests to the session's
//! loopback.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Finds the servers that run as jobs of one session, on the loopback that the session's commands
/// share.
pub trait JobServers: fmt::Debug + Send + Sync + 'static {
    /// Finds the server at the first of these addresses at which only jobs of the session listen.
    /// Blocks until about `until`.
    ///
    /// # Errors
    ///
    /// Returns the reason why no server was found.
    fn find(
        &self,
        addresses: &[IpAddr],
        port: u16,
        until: Instant,
    ) -> Result<JobServer, NoJobServer>;
}

/// A server that runs as a job.
#[derive(Debug)]
pub struct JobServer {
    /// The job's ID.
    pub job: String,
    /// The address at which the server listens.
    pub address: SocketAddr,
    /// An `OwnedFd` of a non-blocking socket without a connection. The socket belongs to the
    /// session's network, so it reaches only the session's loopback.
    pub socket: Box<dyn Any + Send>,
}

/// Why no server was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoJobServer {
    /// No job of the session listens at the address, or other processes listen there, too.
    #[error("no job of this session listens there")]
    NotListening,
    /// The search itself failed.
    #[error("{0}")]
    Failed(String),
}
