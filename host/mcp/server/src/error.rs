//! The reasons why serving MCP clients ended before the client did.

/// The reason why serving ended before the client did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The system refuses something that serving needs.
    #[error("{what}: {error}")]
    Io {
        /// The attempted step.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// The settings can't be used. The text names the line to change.
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
    /// The client's first message isn't the protocol's.
    #[error("the client does not speak the protocol: {0}")]
    Protocol(String),
}
