//! Finds files and matches text at native speed in everything that the plugin may read. The plugin
//! asks for this in its manifest: `search = "reason"`.
//!
//! Each path in an answer starts with the root as it was given. Paths are sorted by their bytes.
//! Symbolic links are listed, never followed.
//!
//! In unit tests a simple walk replaces the host's search. It follows the same rules, so a tool
//! finds the same files.

#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(target_arch = "wasm32")]
mod wasi;

use std::fmt::{self, Display};

use crate::{Category, Failure};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// A file or a directory, absolute.
    pub root: String,
    /// Globs as in a .gitignore, relative to the root: `*.rs` at any depth, `src/**` from the root,
    /// `!` excludes. An empty list means everything.
    pub globs: Vec<String>,
    /// Whether to honour .gitignore (inside a git repository), .ignore and .git/info/exclude, and
    /// to leave out hidden entries.
    pub ignore_rules: bool,
    /// Whether to list regular files only. Matching always reads regular files only.
    pub files_only: bool,
    /// The greatest depth. 1 means only the entries directly in the root.
    pub max_depth: Option<u32>,
}

/// The pattern of a search.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// The expression, in the syntax of the `regex` crate. Matching takes linear time.
    pub regex: String,
    /// Whether `a` and `A` differ.
    pub case_sensitive: bool,
    /// Whether a match can span lines, and `.` matches a line end.
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
    /// The line number, from 1.
    pub number: u64,
    /// The text without its line end, cut at 2,000 characters. Invalid UTF-8 is replaced.
    pub text: String,
    /// False for a line of context.
    pub is_match: bool,
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, whatever its target is.
    Symlink,
    /// A socket, a device, a pipe.
    Other,
}

/// A directory entry that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path.
    pub path: String,
    /// The kind.
    pub kind: Kind,
    /// The size of a regular file in bytes, 0 for other kinds.
    pub size: u64,
    /// The time of the last change, in milliseconds since 1970, UTC.
    pub modified_ms: u64,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The answer is complete.
    Complete,
    /// The limit was reached, and there is more.
    Limit,
    /// The time ran out.
    Deadline,
    /// The caller cancelled the call.
    Cancelled,
    /// A reason that this version of the SDK doesn't know. There may be more.
    Other,
}

/// The numbers of entries that were left out, so that an answer can say that it is incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Entries that the operator's rules deny.
    pub denied: u64,
    /// Entries that couldn't be read: no permission, an I/O error, too large, or deleted meanwhile.
    pub unreadable: u64,
    /// Files with a NUL byte, if the search matches text.
    pub binary: u64,
}

/// The answer of [`grep`].
#[derive(Clone, Debug)]
pub struct Lines {
    /// The lines, with context.
    pub items: Vec<Line>,
    /// The number of files with a match.
    pub files_matched: u64,
    /// The number of files that were read.
    pub files_searched: u64,
    /// Why the answer ends.
    pub ending: Ending,
    /// The numbers of entries that were left out.
    pub skipped: Skipped,
}

/// The answer of [`count`].
#[derive(Clone, Debug)]
pub struct Counts {
    /// The files and their numbers of matching lines.
    pub items: Vec<(String, u64)>,
    /// The number of files that were read.
    pub files_searched: u64,
    /// Why the answer ends.
    pub ending: Ending,
    /// The numbers of entries that were left out.
    pub skipped: Skipped,
}

/// The answer of [`find`].
#[derive(Clone, Debug)]
pub struct Entries {
    /// The entries.
    pub items: Vec<Entry>,
    /// Why the answer ends.
    pub ending: Ending,
    /// The numbers of entries that were left out.
    pub skipped: Skipped,
}

/// Why a search failed. `?` converts it to a [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchError {
    /// The pattern isn't valid. Holds the explanation of the regex or glob engine.
    InvalidPattern(String),
    /// The root wasn't found. Holds the root.
    NotFound(String),
    /// The search is denied. Holds the rule that decided.
    Denied(String),
    /// Any other error.
    Failed(String),
}

/// Finds at most `limit` entries below the root whose paths fit the scope. `limit` is at most
/// 10,000.
///
/// # Errors
///
/// If a glob isn't valid, or the root can't be searched.
pub fn find(scope: &Scope, limit: u32) -> Result<Entries, SearchError> {
    engine::find(scope, limit)
}

/// Finds at most `limit` matching lines and their context. Context lines aren't counted. `limit` is
/// at most 10,000.
///
/// # Errors
///
/// If the regex or a glob isn't valid, or the root can't be searched.
pub fn grep(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Lines, SearchError> {
    engine::grep(scope, pattern, limit)
}

/// Counts the matching lines of each of at most `limit` files. `limit` is at most 10,000.
///
/// # Errors
///
/// The same as [`grep`].
pub fn count(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Counts, SearchError> {
    engine::count(scope, pattern, limit)
}

#[cfg(not(target_arch = "wasm32"))]
use native as engine;
#[cfg(target_arch = "wasm32")]
use wasi as engine;

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
