//! The caller of a call, as plugins may know it.

/// The caller of a call and its place, as plugins may know them. The names are opaque: they can be
/// compared, and nothing else can be read from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerInfo {
    /// The person or principal. The calls of one have the same name.
    pub user: String,
    /// The working directory.
    pub project: String,
    /// The session.
    pub session: String,
    /// The front end that opened the session: `mcp`, `agent` or another one. One word.
    pub front_end: String,
    /// The agent that calls, unless it is the primary one.
    pub agent: Option<String>,
    /// Whether the session was given untrusted text before, so that a model may have written this
    /// call because of it. True if that can't be known.
    pub untrusted: bool,
}

/// Knows who makes a call. It is asked only if a plugin wants to know.
pub trait CallerSource: Send + Sync {
    /// Returns who makes the call. May read a file.
    fn caller(&self) -> CallerInfo;
}
