//! The interface that finds servers among the jobs of a session.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Finds servers among the jobs of one session. The servers listen on the session's own loopback.
pub trait JobServers: fmt::Debug + Send + Sync + 'static {
    /// Returns the server at the first of `addresses` where only jobs of the session listen. Blocks
    /// until about `until` at the latest.
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
    /// An `OwnedFd` of an unconnected non-blocking socket. The socket belongs to the session's
    /// network and reaches only the session's loopback.
    pub socket: Box<dyn Any + Send>,
}

/// Why no server was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoJobServer {
    /// No job of the session listens at the address, or another process listens there, too.
    #[error("no job of this session listens at this address")]
    NotListening,
    /// The search itself failed.
    #[error("{0}")]
    Failed(String),
}
