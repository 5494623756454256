//! The caller of a call, in the form that plugins get.

/// The caller of a call and its session. Names are opaque: plugins can only compare them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerInfo {
    /// The person or principal. All calls of one person have the same name.
    pub user: String,
    /// The working directory.
    pub project: String,
    /// The session.
    pub session: String,
    /// The front end that opened the session, in one word, such as `mcp` or `agent`.
    pub front_end: String,
    /// The name of the agent that makes the call. `None` means the primary agent.
    pub agent: Option<String>,
    /// Whether the session has received untrusted text, which may have made a model write this
    /// call. `true` if the host doesn't know.
    pub untrusted: bool,
}

/// Finds the caller of a call. The host asks only if a plugin requests the caller.
pub trait CallerSource: Send + Sync {
    /// Returns the caller. The function may read a file.
    fn caller(&self) -> CallerInfo;
}
