//! The reasons why a plugin can't be fetched.

/// The reason why a plugin can't be fetched. After an error, no part of the plugin is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The text of a source isn't valid.
    #[error("`{text}` isn't a valid source: {why}")]
    Source {
        /// The text, cut and neutralised.
        text: String,
        /// The fault and the remedy.
        why: String,
    },
    /// A file or folder can't be used.
    #[error("{path}: {why}")]
    File {
        /// The path of the file.
        path: String,
        /// The fault.
        why: String,
    },
    /// A request failed.
    #[error(transparent)]
    Request(#[from] toolhold_net::requests::OutboundError),
    /// The server answered with an unexpected status.
    #[error("{origin} answered {status} to {what}{hint}")]
    Status {
        /// The server that answered.
        origin: String,
        /// The status.
        status: u16,
        /// The requested thing.
        what: String,
        /// The remedy, or an empty text.
        hint: String,
    },
    /// The registry needs a login.
    #[error("the registry {registry} needs a login: {hint}")]
    Login {
        /// The registry.
        registry: String,
        /// The remedy.
        hint: String,
    },
    /// The answer differs from the stated digest, length or media type.
    #[error("{what} from {from} is refused: {why}")]
    Refused {
        /// The name of the item, such as `the manifest`.
        what: String,
        /// The source of the item.
        from: String,
        /// The difference.
        why: String,
    },
    /// The file with logins can't be used.
    #[error("the logins in {path} can't be used: {why}")]
    Credentials {
        /// The file.
        path: String,
        /// The fault.
        why: String,
    },
}
