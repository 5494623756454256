//! What goes into a search and what comes out, as `wit/host/search.wit` has it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_contract::{CancellationToken, Denial};

/// The most results of one answer, whatever limit was asked for.
pub const MAX_RESULTS: u32 = 10_000;

/// The most context lines on either side of a match.
pub const MAX_CONTEXT: u32 = 100;

/// The most characters of a line that are shown.
pub const MAX_LINE_CHARS: usize = 2_000;

/// When a search has to end, and how many threads it may use.
#[derive(Clone, Debug)]
pub struct Control {
    /// Nothing new is begun after this.
    pub deadline: Instant,
    /// Set when nobody waits any more.
    pub cancel: CancellationToken,
    /// The most threads, the caller's own among them; 0 is taken as 1. More than one run only where
    /// there is work to share.
    pub threads: usize,
}

/// Where to search, and what to leave out.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// A file or a directory, absolute.
    pub root: String,
    /// Globs as in a `.gitignore`, relative to the root; `!` excludes, a later match wins. None:
    /// everything.
    ///
    /// They narrow what the ignore rules leave, with one exception: a hidden name is found where a
    /// component of a glob that begins with a dot matches it, so that `.github/**` finds something.
    pub globs: Vec<String>,
    /// Honour ignore files, and leave out hidden entries.
    pub ignore_rules: bool,
    /// List regular files only.
    pub files_only: bool,
    /// 1: only what is directly in the root.
    pub max_depth: Option<u32>,
}

/// What to look for in files.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// In the syntax of the `regex` crate.
    pub regex: String,
    /// Whether upper and lower case differ.
    pub case_sensitive: bool,
    /// Lets a match span lines, and `.` match a line end. Such a search holds each file in memory,
    /// at most 16 MiB of it.
    pub multiline: bool,
    /// Lines of context before a match; more than [`MAX_CONTEXT`] is taken as that.
    pub before: u32,
    /// Lines of context after a match; more than [`MAX_CONTEXT`] is taken as that.
    pub after: u32,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// As the caller spelled the root, and the rest.
    pub path: Arc<str>,
    /// From 1.
    pub number: u64,
    /// Without its line end, cut at [`MAX_LINE_CHARS`]; invalid UTF-8 replaced.
    pub text: String,
    /// False for a line of context.
    pub is_match: bool,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, whatever it points to.
    Symlink,
    /// A FIFO, a socket, a device.
    Other,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchEntry {
    /// As the caller spelled the root, and the rest.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes; 0 for what is not a regular file.
    pub size: u64,
    /// Milliseconds since 1970, UTC.
    pub modified_ms: u64,
}

/// Why there is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnding {
    /// There is no more.
    Complete,
    /// The limit, or the bound on the text of an answer (4 MiB), left something out.
    Limit,
    /// Time was up.
    Deadline,
    /// Nobody waits any more.
    Cancelled,
}

/// What was met and left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkipCounts {
    /// By the operator's rules. A refused directory counts once, whatever it holds.
    pub denied: u64,
    /// No permission, an I/O error, too large to hold, too deep, moved or gone meanwhile.
    pub unreadable: u64,
    /// Files with a NUL byte, where matching looks for text. The search of a file ends where its
    /// first NUL is seen, as ripgrep's does: lines found more than a buffer (64 KiB) before it are
    /// kept.
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
    /// Sorted by path.
    pub items: Vec<SearchEntry>,
    /// Why there is no more.
    pub ending: SearchEnding,
    /// What was left out.
    pub skipped: SkipCounts,
    /// CPU time of the threads beside the caller's.
    pub cpu: Duration,
}

/// The answer of [`grep`](super::grep).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Sorted by path, then by number.
    pub items: Vec<Line>,
    /// Files with at least one line in `items` that matches.
    pub files_matched: u64,
    /// Files that were looked into, the binary ones included.
    pub files_searched: u64,
    /// Why there is no more.
    pub ending: SearchEnding,
    /// What was left out.
    pub skipped: SkipCounts,
    /// CPU time of the threads beside the caller's.
    pub cpu: Duration,
}

/// The answer of [`count`](super::count).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchCounts {
    /// Path and number of matching lines, for each file that has one; sorted by path.
    pub items: Vec<(String, u64)>,
    /// Files that were looked into, the binary ones included.
    pub files_searched: u64,
    /// Why there is no more.
    pub ending: SearchEnding,
    /// What was left out.
    pub skipped: SkipCounts,
    /// CPU time of the threads beside the caller's.
    pub cpu: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The regex or a glob is none; the engine's own explanation.
    #[error("{0}")]
    InvalidPattern(String),
    /// The root does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// A rule refuses the root.
    #[error("{0}")]
    Denied(Box<Denial>),
    /// The root can't be opened or is neither file nor directory.
    #[error("{0}")]
    Failed(String),
}
