//! The caller of a call, in the form that plugins get.

/// The caller of a call and its session, in the form that plugins get. Names are opaque: plugins
/// can compare them, and can't read anything else from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerInfo {
    /// The person or principal. All calls of one person have the same name.
    pub user: String,
    /// The working directory.
    pub project: String,
    /// The session.
    pub session: String,
    /// The front end that opened the session, in one word: `mcp`, `agent` or another front end.
    pub front_end: String,
    /// The agent that calls. `None` means the primary agent.
    pub agent: Option<String>,
    /// Whether the session has received untrusted text. This text may have made a model write this
    /// call. The value is `true` if this isn't known.
    pub untrusted: bool,
}

/// Finds the caller of a call. It is used only if a plugin requests the caller.
pub trait CallerSource: Send + Sync {
    /// Returns the caller. May read a file.
    fn caller(&self) -> CallerInfo;
}
