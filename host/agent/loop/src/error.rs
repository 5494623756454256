//! The reasons why a session of the agent can't be used, for the person.

use toolhold_core::HostError;
use toolhold_models::choice::ChoiceError;

/// The reason why a session can't be used, for the person.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no such session.
    #[error("there is no session `{0}`; `toolhold run sessions` lists them")]
    Unknown(String),
    /// Another process has it open.
    #[error("the session `{0}` is running in another process")]
    Running(String),
    /// The session belongs to another directory.
    #[error("the session `{id}` works in {directory}; go there to go on with it")]
    Elsewhere {
        /// Its ID.
        id: String,
        /// Its working directory.
        directory: String,
    },
    /// The session's file would be larger than the limit.
    #[error(
        "the session `{id}` would be {bytes} bytes; the limit is {limit}: `session_mib` in [agent]"
    )]
    TooLarge {
        /// Its ID.
        id: String,
        /// Its size with the entry that wasn't written.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An entry of the session would be larger than the limit.
    #[error("the session `{id}` would have an entry of {bytes} bytes; the limit is {limit}")]
    LargeEntry {
        /// Its ID.
        id: String,
        /// The size of the entry, which wasn't written.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Its file can't be read or written.
    #[error("the session `{id}`: {source}")]
    Io {
        /// Its ID.
        id: String,
        /// The system's answer, or what is damaged.
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
    /// For `map_err`: an I/O error with the session's ID.
    pub(crate) fn io(id: &str) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let id = id.to_owned();
        move |source| Self::Io { id, source }
    }
}
