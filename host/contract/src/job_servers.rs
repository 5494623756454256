//! The interface that finds servers running as jobs of a session, for requests to its loopback.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Finds the servers that run as jobs of one session, on the loopback that its commands share.
pub trait JobServers: fmt::Debug + Send + Sync + 'static {
    /// Finds the server at the first of these addresses at which only jobs of the session listen.
    /// Blocks, but hardly longer than `until`.
    ///
    /// # Errors
    ///
    /// Why no server was found.
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
    /// Where it listens.
    pub address: SocketAddr,
    /// An `OwnedFd`: a socket that is connected to nothing yet, and doesn't block. It is one of the
    /// session's network, so it reaches that loopback and nothing else.
    pub socket: Box<dyn Any + Send>,
}

/// Why no server was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoJobServer {
    /// No job of the session listens there, or others listen there too.
    #[error("no job of this session listens there")]
    NotListening,
    /// The search itself failed.
    #[error("{0}")]
    Failed(String),
}
