//! The type of what plugins may know about the caller of a call.

/// Who makes a call, and where, as plugins may know it. The names are opaque: they can be compared,
/// and nothing else can be read from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerInfo {
    /// The person or principal. The calls of one have the same name.
    pub user: String,
    /// The working directory.
    pub project: String,
    /// The session.
    pub session: String,
    /// What the session came by: `mcp`, `agent` or another front end. One word.
    pub front_end: String,
    /// The agent that calls, unless it is the primary one.
    pub agent: Option<String>,
    /// Whether the session was given untrusted text before, so that a model may have written this
    /// call because of it. True if that can't be known.
    pub untrusted: bool,
}

/// Knows who makes a call. It is asked only if a plugin wants to know.
pub trait CallerSource: Send + Sync {
    /// Who makes the call. May read a file.
    fn caller(&self) -> CallerInfo;
}
