//! The inputs and results of a search, as `wit/host/search.wit` defines them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_contract::{CancellationToken, Denial};

/// Results of one answer. A higher limit of the caller is reduced to this number.
pub const MAX_RESULTS: u32 = 10_000;

/// Context lines on either side of a match. More lines aren't returned.
pub const MAX_CONTEXT: u32 = 100;

/// Characters of a line in a result. A longer line is cut.
pub const MAX_LINE_CHARS: usize = 2_000;

/// How long and with how many threads a search may run.
#[derive(Clone, Debug)]
pub struct Control {
    /// The time at which the search ends, even if it is incomplete.
    pub deadline: Instant,
    /// Cancels the search.
    pub cancel: CancellationToken,
    /// Threads, including the caller's own. 0 means 1. More than one thread runs only if there is
    /// enough work.
    pub threads: usize,
}

/// The root of a search, and the entries below the root that are searched.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Absolute path of a file or a directory.
    pub root: String,
    /// Globs as in a `.gitignore`, relative to the root. `!` excludes, and later globs take
    /// precedence. An empty list includes everything.
    ///
    /// A glob can't include an entry that an ignore file excludes. It can include hidden names: if
    /// a component of the glob begins with a dot, the search visits the hidden names that match the
    /// component. So `.github/**` finds files.
    pub globs: Vec<String>,
    /// Whether ignore files apply and hidden entries are excluded.
    pub ignore_rules: bool,
    /// Whether to list only regular files.
    pub files_only: bool,
    /// Levels below the root. 1 lists only the entries of the root itself.
    pub max_depth: Option<u32>,
}

/// The pattern to search for in files.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// A regex in the syntax of the `regex` crate.
    pub regex: String,
    /// Whether upper and lower case are different.
    pub case_sensitive: bool,
    /// Whether a match can span lines and `.` matches a line end. If so, each file is read into
    /// memory, up to 16 MiB.
    pub multiline: bool,
    /// Lines of context before a match, at most [`MAX_CONTEXT`].
    pub before: u32,
    /// Lines of context after a match, at most [`MAX_CONTEXT`].
    pub after: u32,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The root as the caller wrote it, and the path below the root.
    pub path: Arc<str>,
    /// The line number. The first line is 1.
    pub number: u64,
    /// The text without its line end, cut at [`MAX_LINE_CHARS`], with invalid UTF-8 replaced.
    pub text: String,
    /// Whether the line matches. False for a line of context.
    pub is_match: bool,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, whatever its target is.
    Symlink,
    /// A FIFO, a socket or a device.
    Other,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchEntry {
    /// The root as the caller wrote it, and the path below the root.
    pub path: String,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// The size in bytes, or 0 for an entry that isn't a regular file.
    pub size: u64,
    /// Time of the last change, in milliseconds since 1970, UTC.
    pub modified_ms: u64,
}

/// The reason why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnding {
    /// All results were found.
    Complete,
    /// The limit of results, or of the text in an answer (4 MiB), is reached.
    Limit,
    /// The deadline passed.
    Deadline,
    /// The caller cancelled the search.
    Cancelled,
}

/// Numbers of omitted entries, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkipCounts {
    /// Entries that the operator's rules deny. A denied directory counts once, without its content.
    pub denied: u64,
    /// Entries that can't be read, because of permissions, an I/O error, their size or depth, or
    /// because they were moved or removed during the search.
    pub unreadable: u64,
    /// Binary files of a search for text. As in ripgrep, the search of a file ends at its first NUL
    /// byte. Lines that end more than a buffer (64 KiB) before the NUL are returned.
    pub binary: u64,
}

impl SkipCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.denied += other.denied;
        self.unreadable += other.unreadable;
        self.binary += other.binary;
    }
}

/// The answer of [`find`](super::find).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// The entries, sorted by path.
    pub items: Vec<SearchEntry>,
    /// Why the search ended.
    pub ending: SearchEnding,
    /// The number of omitted entries.
    pub skipped: SkipCounts,
    /// CPU time of all threads but the caller's.
    pub cpu: Duration,
}

/// The answer of [`grep`](super::grep).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The lines, sorted by path, then by number.
    pub items: Vec<Line>,
    /// The number of files with at least one matching line in `items`.
    pub files_matched: u64,
    /// Files that were searched, including binary files.
    pub files_searched: u64,
    /// Why the search ended.
    pub ending: SearchEnding,
    /// The number of omitted entries.
    pub skipped: SkipCounts,
    /// CPU time of all threads but the caller's.
    pub cpu: Duration,
}

/// The answer of [`count`](super::count).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchCounts {
    /// The path and the number of matching lines of each file with a match, sorted by path.
    pub items: Vec<(String, u64)>,
    /// Files that were searched, including binary files.
    pub files_searched: u64,
    /// Why the search ended.
    pub ending: SearchEnding,
    /// The number of omitted entries.
    pub skipped: SkipCounts,
    /// CPU time of all threads but the caller's.
    pub cpu: Duration,
}

/// The reason why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The regex or a glob isn't valid. Contains the engine's explanation.
    #[error("{0}")]
    InvalidPattern(String),
    /// The root doesn't exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// A rule denies the root.
    #[error("{0}")]
    Denied(Box<Denial>),
    /// The root can't be opened, or is neither a file nor a directory.
    #[error("{0}")]
    Failed(String),
}
