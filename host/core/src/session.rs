//! Sessions: what outlives a call for one caller, and is nobody else's.

use std::fmt;
use std::sync::Arc;

/// What belongs together of one caller's calls: approvals, counters, answers that may serve again, and kept output.
///
/// A session belongs to a principal: a connection, a user in a directory, an authenticated caller. Clones are the same session.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    name: Arc<str>,
}

impl Session {
    /// A session that lives in memory, as long as the last clone of it. `name` says whose it is; what calls keep on disk (the audit, kept
    /// output) goes by it, so no two callers have the same one.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Inner { name: name.into() }))
    }

    /// Whose it is.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.0.name).finish()
    }
}
