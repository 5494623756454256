/// Why serving ended before the client did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The system refuses what serving takes.
    #[error("{what}: {error}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// The system's words.
        error: std::io::Error,
    },
    /// What the operator said can't be done; it says which line would mend it.
    #[error("{0}")]
    Settings(String),
    /// Nobody can be awaited there.
    #[error("can't listen at {place}: {error}")]
    Place {
        /// The place.
        place: String,
        /// The system's words.
        error: std::io::Error,
    },
    /// What is kept from one run to the next can't be read or written.
    #[error(transparent)]
    Kept(#[from] berth_core::HostError),
    /// The client began with something else than the protocol has.
    #[error("the client does not speak the protocol: {0}")]
    Protocol(String),
}
