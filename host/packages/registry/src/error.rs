//! Why a plugin can't be fetched, as the person is told.

/// Why a plugin can't be fetched. Nothing of it is used then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The text of a source isn't valid.
    #[error("`{text}` isn't a valid source: {why}")]
    Source {
        /// The text, cut and neutralised.
        text: String,
        /// What is wrong, and what to write.
        why: String,
    },
    /// A file or folder can't be used.
    #[error("{path}: {why}")]
    File {
        /// Its path.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A request failed.
    #[error(transparent)]
    Request(#[from] toolhold_net::requests::OutboundError),
    /// The server answered with another status than expected.
    #[error("{origin} answered {status} to {what}{hint}")]
    Status {
        /// Who answered.
        origin: String,
        /// The status.
        status: u16,
        /// What was asked for.
        what: String,
        /// What to do, or nothing.
        hint: String,
    },
    /// The registry wants a login.
    #[error("{registry} wants a login: {hint}")]
    Login {
        /// The registry.
        registry: String,
        /// What to do.
        hint: String,
    },
    /// What came isn't what was promised: a digest, a length, a media type.
    #[error("{what} from {from} is refused: {why}")]
    Refused {
        /// What it is: `the manifest`, `the component`, …
        what: String,
        /// The place that it came from.
        from: String,
        /// What was expected and what came.
        why: String,
    },
    /// The file with logins can't be used.
    #[error("the logins in {path} can't be used: {why}")]
    Credentials {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
}
