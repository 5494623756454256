//! A source's report of a call in addition to its outcome: notices, requests, and the files that
//! were read.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Denial;

/// A provider's report of a call in addition to its outcome. The audit log uses it, and the cache
/// uses it to check later whether an answer is still true.
///
/// The report is filled while the call runs, from any thread, and read after the call.
#[derive(Debug, Default)]
pub struct Report {
    entries: Mutex<ReportEntries>,
    watched: bool,
}

/// The entries of a report.
#[derive(Debug, Default)]
pub struct ReportEntries {
    /// The first refusal of an operation of the call.
    pub denial: Option<Denial>,
    /// Number of refused operations.
    pub denials: u64,
    /// Paths that listings and searches omitted because of rules about calls.
    pub left_out: LeftOut,
    /// The exit status of a program that the call started.
    pub exit_code: Option<i32>,
    /// The ID of the job that the call started.
    pub job: Option<String>,
    /// The host's notices about those programs, for the reader of the answer.
    pub notices: Vec<String>,
    /// Notices from outside the tool. They are added to the tool's answer.
    pub unsaid: Vec<String>,
    /// The variables of the session's later commands, which replace the variables of an earlier
    /// call. Only providers of the operator may set them. With `None`, the variables don't change.
    pub variables: Option<Vec<(String, String)>>,
    /// The earlier command whose output the answer shows.
    pub output_of: Option<CommandOutput>,
    /// The call's network requests in order, including denied requests. Each redirect is a separate
    /// request.
    pub requests: Vec<RequestRecord>,
    /// The number of further requests that aren't listed.
    pub more_requests: u64,
    /// The number of bytes that the component printed on standard output and standard error.
    pub printed: u64,
    /// The files from which the answer was made, if the report is [watching](Report::watching).
    pub seen: ReadFiles,
    /// Bytes of the paths in `seen`.
    bytes: usize,
}

/// The earlier command whose output an answer shows. The answer is untrusted, and filters treat it
/// like the answer of that command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// The tool that ran the command.
    pub tool: String,
    /// The command line.
    pub command: String,
    /// Whether filters may shorten the answer. Security filters always run.
    pub shorten: bool,
}

/// Paths that listings and searches of a call omitted because of rules about calls. Paths that the
/// grants don't allow aren't counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first path that a rule denies.
    pub denied: Option<Denial>,
    /// The first path that needs approval, with the number of these paths.
    pub asked: Option<(Denial, u64)>,
}

/// A request that a call made, or that was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The start of the request, since the Unix epoch.
    pub began: std::time::Duration,
    /// The method.
    pub method: String,
    /// The URL, without the parts that may contain secrets.
    pub url: String,
    /// The number of redirects before this request.
    pub hop: u32,
    /// The address of the connection, or the denied address.
    pub address: Option<std::net::IpAddr>,
    /// The job that served the request, on the session's loopback.
    pub job: Option<String>,
    /// The status of the response.
    pub status: Option<u16>,
    /// Bytes of the response body as received.
    pub received: u64,
    /// The duration of the request.
    pub time: std::time::Duration,
    /// Names of the secrets that were put in.
    pub secrets: Vec<String>,
    /// The rule that denied the request, or the error.
    pub failed: Option<String>,
    /// Whether a rule denied the request.
    pub refused: bool,
}

/// The files and directories that a call has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadFiles {
    /// Not reported.
    #[default]
    Untold,
    /// Exactly these files in order, each with its state before it was read. A path may occur more
    /// than once.
    Files(Vec<ReadFile>),
    /// The call read more files than can be stored, or something whose changes can't be detected
    /// later.
    Lost,
}

/// A file or directory in the state that a call found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadFile {
    /// How the path was followed.
    pub lookup: Lookup,
    /// The absolute path that was opened.
    pub path: PathBuf,
    /// The state.
    pub sight: PathState,
}

/// How a path was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// No part of the path is a link.
    Real,
    /// Links were followed, but not the last component.
    Itself,
    /// Links were followed.
    Followed,
}

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathState {
    /// The path doesn't exist.
    Nothing,
    /// The path exists. Its kind and content don't matter.
    Something,
    /// The path exists in this state.
    File(FileState),
}

/// Shows whether a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileState {
    /// Device and inode.
    pub identity: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// The last change of the contents: seconds and nanoseconds.
    pub modified: (i64, u64),
    /// The last change of the contents or the metadata: seconds and nanoseconds.
    pub changed: (i64, u64),
}

/// Maximum number of entries that are stored for one call. `MAX_PATHS` limits the bytes of their
/// paths. Together they need some megabytes.
const MAX_SEEN: usize = 16_384;
const MAX_PATHS: usize = 4 << 20;

/// Maximum number of notices of one call.
const MAX_NOTICES: usize = 16;

/// Maximum number of listed requests of one call.
const MAX_REQUESTS: usize = 1024;

impl Report {
    /// Makes a report that also stores the files that the call reads.
    pub fn watching() -> Self {
        Self { watched: true, ..Self::default() }
    }

    /// Checks whether the report stores the files that the call reads. If not, the provider
    /// needn't report them.
    pub fn is_watching(&self) -> bool {
        self.watched
    }

    /// Starts the list of read files. From now on, the provider must report everything that the
    /// call reads, with [`add_read`](Self::add_read) or [`mark_incomplete`](Self::mark_incomplete).
    pub fn tracks_reads(&self) {
        let mut entries = self.entries();
        if self.watched && entries.seen == ReadFiles::Untold {
            entries.seen = ReadFiles::Files(Vec::new());
        }
    }

    /// Adds a file that the call has read, with its state before it was read.
    pub fn add_read(&self, file: ReadFile) {
        let mut entries = self.entries();
        entries.bytes += file.path.as_os_str().len();
        let has_room = entries.bytes <= MAX_PATHS;
        let ReadFiles::Files(files) = &mut entries.seen else { return };
        if files.len() < MAX_SEEN && has_room {
            files.push(file);
        } else {
            entries.seen = ReadFiles::Lost;
        }
    }

    /// Notes that the call has read something that can't be compared later.
    pub fn mark_incomplete(&self) {
        if self.watched {
            self.entries().seen = ReadFiles::Lost;
        }
    }

    /// Adds a notice about a program that the call started. Each notice is stored once.
    pub fn notice(&self, notice: &str) {
        let notices = &mut self.entries().notices;
        if notices.len() < MAX_NOTICES && !notices.iter().any(|known| known == notice) {
            notices.push(notice.to_owned());
        }
    }

    /// Adds a notice that the tool doesn't know of. Each notice is in the answer once.
    pub fn say(&self, notice: String) {
        let unsaid = &mut self.entries().unsaid;
        if unsaid.len() < MAX_NOTICES && !unsaid.contains(&notice) {
            unsaid.push(notice);
        }
    }

    /// Adds a request that the call makes, or that was denied. Returns its index in
    /// [`ReportEntries::requests`], or `None` if the list is full.
    pub fn requested(&self, request: RequestRecord) -> Option<usize> {
        let mut entries = self.entries();
        if entries.requests.len() >= MAX_REQUESTS {
            entries.more_requests += 1;
            return None;
        }
        entries.requests.push(request);
        Some(entries.requests.len() - 1)
    }

    /// Records that a listing or a search of the call omitted a path. A rule about calls denies the
    /// path or, with `asks`, requires approval for it. `explain` describes the first omitted path.
    pub fn left_out(&self, asks: bool, explain: impl FnOnce() -> Denial) {
        let mut entries = self.entries();
        let LeftOut { denied, asked } = &mut entries.left_out;
        if asks {
            match asked {
                Some((_, count)) => *count += 1,
                None => *asked = Some((explain(), 1)),
            }
        } else if denied.is_none() {
            *denied = Some(explain());
        }
    }

    /// Locks the entries.
    pub fn entries(&self) -> MutexGuard<'_, ReportEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(path: String) -> ReadFile {
        ReadFile { lookup: Lookup::Followed, path: path.into(), sight: PathState::Nothing }
    }

    #[test]
    fn lookups_are_stored_only_while_watching() {
        let report = Report::default();
        report.tracks_reads();
        report.add_read(nothing("/a".to_owned()));
        report.mark_incomplete();
        assert_eq!(report.entries().seen, ReadFiles::Untold);
    }

    #[test]
    fn incomplete_sights_stay_incomplete() {
        let report = Report::watching();
        report.add_read(nothing("/a".to_owned()));
        assert_eq!(report.entries().seen, ReadFiles::Untold);
        report.tracks_reads();
        report.add_read(nothing("/b".to_owned()));
        report.tracks_reads();
        assert_eq!(report.entries().seen, ReadFiles::Files(vec![nothing("/b".to_owned())]));
        report.mark_incomplete();
        report.tracks_reads();
        report.add_read(nothing("/c".to_owned()));
        assert_eq!(report.entries().seen, ReadFiles::Lost);
    }

    #[test]
    fn stored_lookups_are_bounded() {
        let many = Report::watching();
        many.tracks_reads();
        (0..MAX_SEEN).for_each(|number| many.add_read(nothing(format!("/{number}"))));
        assert!(matches!(&many.entries().seen, ReadFiles::Files(files) if files.len() == MAX_SEEN));
        many.add_read(nothing("/one more".to_owned()));
        assert_eq!(many.entries().seen, ReadFiles::Lost);
        let long = Report::watching();
        long.tracks_reads();
        (0..MAX_PATHS / 4096 + 1).for_each(|_| long.add_read(nothing("x".repeat(4096))));
        assert_eq!(long.entries().seen, ReadFiles::Lost);
    }
}
