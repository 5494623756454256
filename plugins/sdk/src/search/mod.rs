//! Walking and matching at native speed over what the plugin may read. The plugin asks for it in
//! its manifest: `search = "reason"`.
//!
//! Paths come back as the root was given, plus the rest, sorted by their bytes. Symbolic links are
//! listed, never followed.
//!
//! In unit tests a simple walk takes the place of the host's search. It knows the same rules, so a
//! tool finds the same there.

#[cfg(not(target_arch = "wasm32"))]
mod native;

use std::fmt::{self, Display};

use crate::{Category, Failure};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// A file or a directory, absolute.
    pub root: String,
    /// Globs as in a .gitignore, relative to the root: `*.rs` at any depth, `src/**` from the root,
    /// `!` excludes. None: everything.
    pub globs: Vec<String>,
    /// Honour .gitignore (inside a git repository), .ignore and .git/info/exclude, and leave out
    /// hidden entries.
    pub ignore_rules: bool,
    /// Leave out directories and everything else that is not a regular file. Matching always reads
    /// regular files only.
    pub files_only: bool,
    /// 1: only what is directly in the root.
    pub max_depth: Option<u32>,
}

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// In the syntax of the `regex` crate, which runs in linear time.
    pub regex: String,
    /// Whether `a` and `A` differ.
    pub case_sensitive: bool,
    /// Lets a match span lines, and `.` match a line end.
    pub multiline: bool,
    /// Lines of context before a match, at most 100.
    pub before: u32,
    /// Lines of context after a match, at most 100.
    pub after: u32,
}

/// A line that matches, or is near one that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file.
    pub path: String,
    /// From 1.
    pub number: u64,
    /// Without its line end, cut at 2,000 characters; invalid UTF-8 replaced.
    pub text: String,
    /// False for a line of context.
    pub is_match: bool,
}

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, to whatever.
    Symlink,
    /// A socket, a device, a pipe.
    Other,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes; 0 for what is not a regular file.
    pub size: u64,
    /// Milliseconds since 1970, UTC.
    pub modified_ms: u64,
}

/// Why there is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// This is all.
    Complete,
    /// There was more than asked for.
    Limit,
    /// The time ran out.
    Deadline,
    /// The caller cancelled the call.
    Cancelled,
}

/// What was left out, so that an answer can say that it is incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// By the operator's rules.
    pub denied: u64,
    /// Permission, I/O, too large to hold, gone meanwhile.
    pub unreadable: u64,
    /// Files with a NUL byte, where matching looks for text.
    pub binary: u64,
}

/// The answer of [`grep`].
#[derive(Clone, Debug)]
pub struct Lines {
    /// The lines, with context.
    pub items: Vec<Line>,
    /// Files with a match.
    pub files_matched: u64,
    /// Files that were read.
    pub files_searched: u64,
    /// Why there is no more.
    pub ending: Ending,
    /// What was left out.
    pub skipped: Skipped,
}

/// The answer of [`count`].
#[derive(Clone, Debug)]
pub struct Counts {
    /// Files and their number of matching lines.
    pub items: Vec<(String, u64)>,
    /// Files that were read.
    pub files_searched: u64,
    /// Why there is no more.
    pub ending: Ending,
    /// What was left out.
    pub skipped: Skipped,
}

/// The answer of [`find`].
#[derive(Clone, Debug)]
pub struct Entries {
    /// The entries.
    pub items: Vec<Entry>,
    /// Why there is no more.
    pub ending: Ending,
    /// What was left out.
    pub skipped: Skipped,
}

/// Why a search failed. `?` makes a [`Failure`] of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchError {
    /// With the regex or glob engine's own explanation.
    InvalidPattern(String),
    /// The root.
    NotFound(String),
    /// The rule that decided.
    Denied(String),
    /// Anything else.
    Failed(String),
}

/// At most `limit` entries below the root, whose paths fit the scope. `limit` is at most 10,000.
///
/// # Errors
///
/// A bad glob, or a root that can't be searched.
pub fn find(scope: &Scope, limit: u32) -> Result<Entries, SearchError> {
    engine::find(scope, limit)
}

/// At most `limit` matching lines, and their context, which is not counted. `limit` is at most
/// 10,000.
///
/// # Errors
///
/// A bad regex or glob, or a root that can't be searched.
pub fn grep(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Lines, SearchError> {
    engine::grep(scope, pattern, limit)
}

/// The number of matching lines for each of at most `limit` files. `limit` is at most 10,000.
///
/// # Errors
///
/// As [`grep`].
pub fn count(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Counts, SearchError> {
    engine::count(scope, pattern, limit)
}

#[cfg(target_arch = "wasm32")]
use crate::guest::search as engine;
#[cfg(not(target_arch = "wasm32"))]
use native as engine;

impl Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidPattern(why) => write!(f, "invalid pattern: {why}"),
            Self::NotFound(what) => write!(f, "{what}: not found"),
            Self::Denied(why) => write!(f, "denied: {why}"),
            Self::Failed(why) => write!(f, "search failed: {why}"),
        }
    }
}

impl std::error::Error for SearchError {}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        let (category, code) = match &error {
            SearchError::InvalidPattern(_) => (Category::InvalidParameters, "invalid-pattern"),
            SearchError::NotFound(_) => (Category::PermanentFailure, "not-found"),
            SearchError::Denied(_) => (Category::PermanentFailure, "not-permitted"),
            SearchError::Failed(_) => (Category::PermanentFailure, "search"),
        };
        Self::new(category, error.to_string()).with_code(code)
    }
}
