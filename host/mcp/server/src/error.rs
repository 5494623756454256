//! The errors that end a server.

/// An error that ends a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An operation of the system failed.
    #[error("{what}: {error}")]
    Io {
        /// A sentence about the failed operation.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// The settings are invalid. The text names the key to change.
    #[error("{0}")]
    Settings(String),
    /// The address can't be listened on.
    #[error("can't listen at {place}: {error}")]
    Listen {
        /// The address.
        place: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// Stored state can't be read or written.
    #[error(transparent)]
    Kept(#[from] toolhold_core::HostError),
    /// The client's first message is invalid.
    #[error("the client does not speak the protocol: {0}")]
    Protocol(String),
}
