//! The reasons why a session of the agent can't be used, for the person.

use toolhold_core::HostError;
use toolhold_models::choice::ChoiceError;

/// The reason why a session can't be used, for the person.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no such session.
    #[error("there is no session `{0}`; `toolhold run sessions list` lists them")]
    Unknown(String),
    /// Another process has the session open.
    #[error("the session `{0}` is running in another process")]
    Running(String),
    /// The session belongs to another directory.
    #[error(
        "the session `{id}` belongs to {directory}; to continue the session, change to that \
         directory"
    )]
    Elsewhere {
        /// The session's ID.
        id: String,
        /// The session's working directory.
        directory: String,
    },
    /// The session's file would be larger than the limit.
    #[error(
        "the session `{id}` would be {bytes} bytes; the limit is {limit} (`session_mib` in [agent])"
    )]
    TooLarge {
        /// The session's ID.
        id: String,
        /// The size that the session would have with the refused entry.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An entry of the session would be larger than the limit.
    #[error("the session `{id}` would have an entry of {bytes} bytes; the limit is {limit}")]
    LargeEntry {
        /// The session's ID.
        id: String,
        /// The size of the refused entry.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The session file can't be read or written.
    #[error("the session `{id}`: {source}")]
    Io {
        /// The session's ID.
        id: String,
        /// The system's error, or a message about the damage.
        source: std::io::Error,
    },
    /// No model can be asked.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// The host can't be used.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl AgentError {
    /// Returns a function for `map_err`.
    pub(crate) fn io(id: &str) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let id = id.to_owned();
        move |source| Self::Io { id, source }
    }
}
