//! Details about a call that its outcome doesn't contain: notices, requests and read files.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Denial;

/// Details about a call that its outcome doesn't contain. The audit log records the details. The
/// cache compares the read files with the disk to check whether an answer is still true.
///
/// Any thread may add entries while the call runs. The host reads the report after the call.
#[derive(Debug, Default)]
pub struct Report {
    entries: Mutex<ReportEntries>,
    stores_reads: bool,
}

/// The entries of a report.
#[derive(Debug, Default)]
pub struct ReportEntries {
    /// The first denied operation of the call.
    pub denial: Option<Denial>,
    /// Number of denied operations.
    pub denials: u64,
    /// Paths that listings and searches omitted because of rules about calls.
    pub left_out: LeftOut,
    /// The exit status of a program that the call started.
    pub exit_code: Option<i32>,
    /// The ID of the background job that the call started.
    pub job: Option<String>,
    /// Notices of the host about programs that the call started.
    pub notices: Vec<String>,
    /// Notices of the host that the tool doesn't know. The host adds them to the tool's answer.
    pub unsaid: Vec<String>,
    /// Environment variables for the session's later commands, which replace earlier variables.
    /// Only sources of the operator may set variables. With `None`, the variables don't change.
    pub variables: Option<Vec<(String, String)>>,
    /// The earlier command whose output the answer shows.
    pub output_of: Option<CommandOutput>,
    /// The call's network requests in order, including denied requests. Each redirect is a separate
    /// request.
    pub requests: Vec<RequestRecord>,
    /// The number of requests that didn't fit into `requests`.
    pub more_requests: u64,
    /// The number of bytes that the component printed on standard output and standard error.
    pub printed: u64,
    /// The files that the call read, if the report is [watching](Report::watching).
    pub seen: ReadFiles,
    /// Bytes of the paths in `seen`.
    bytes: usize,
}

/// The earlier command whose output an answer shows. Filters treat the answer like the output of
/// that command. The answer is untrusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// The tool that ran the command.
    pub tool: String,
    /// The command line.
    pub command: String,
    /// Whether filters may shorten the answer. Security filters always run.
    pub shorten: bool,
}

/// Paths that listings and searches of a call omitted because of rules about calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first path that a rule denies.
    pub denied: Option<Denial>,
    /// The first path that needs approval, with the number of these paths.
    pub asked: Option<(Denial, u64)>,
}

/// A network request of a call. A rule may have denied it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The start of the request, as time since the Unix epoch.
    pub began: std::time::Duration,
    /// The HTTP method.
    pub method: String,
    /// The URL, without the parts that may contain secrets.
    pub url: String,
    /// The number of redirects before this request.
    pub hop: u32,
    /// The address of the connection, or the denied address.
    pub address: Option<std::net::IpAddr>,
    /// The job that served the request, on the session's loopback.
    pub job: Option<String>,
    /// The HTTP status of the response.
    pub status: Option<u16>,
    /// Bytes of the response body as received. For a connection of a program, all bytes of the
    /// server.
    pub received: u64,
    /// Bytes that the program sent over its connection. 0 for requests.
    pub sent: u64,
    /// The program that made the request. `None` if the plugin made it.
    pub program: Option<String>,
    /// The duration of the request.
    pub time: std::time::Duration,
    /// Names of the secrets that the host inserted into the request.
    pub secrets: Vec<String>,
    /// The rule that denied the request, or the error message.
    pub failed: Option<String>,
    /// Whether a rule denied the request.
    pub refused: bool,
}

/// The files and directories that a call has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadFiles {
    /// The source doesn't report what the call reads.
    #[default]
    Untold,
    /// Exactly these files in the order of reading, each in its state before reading. A path may
    /// occur more than once.
    Files(Vec<ReadFile>),
    /// The list isn't complete: the call read too many files, or data whose changes can't be
    /// detected.
    Lost,
}

/// A file or directory in the state before the call read it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadFile {
    /// How links in the path were treated.
    pub lookup: Lookup,
    /// The absolute path that was opened.
    pub path: PathBuf,
    /// The state before the call read the file.
    pub sight: PathState,
}

/// How links in a path were treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// No part of the path is a link.
    Real,
    /// Links were followed, except in the last component.
    Itself,
    /// All links were followed.
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

/// The identity, size and times of a file. A changed file has other values.
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

/// Maximum number of files that are stored for one call. A list with more files isn't complete.
const MAX_SEEN: usize = 16_384;
/// Maximum number of bytes of all stored paths of one call.
const MAX_PATHS: usize = 4 << 20;

/// Maximum number of notices of one call. More notices are dropped.
const MAX_NOTICES: usize = 16;

/// Maximum number of listed requests of one call. More requests are only counted.
const MAX_REQUESTS: usize = 1024;

impl Report {
    /// Creates a report that also stores the files that the call reads.
    pub fn watching() -> Self {
        Self { stores_reads: true, ..Self::default() }
    }

    /// Checks whether the report stores the files that the call reads.
    pub fn is_watching(&self) -> bool {
        self.stores_reads
    }

    /// Starts the list of read files. From now on, the source must report all reads of the call
    /// with [`add_read`](Self::add_read) or [`mark_incomplete`](Self::mark_incomplete).
    pub fn start_read_list(&self) {
        let mut entries = self.entries();
        if self.stores_reads && entries.seen == ReadFiles::Untold {
            entries.seen = ReadFiles::Files(Vec::new());
        }
    }

    /// Adds a file that the call reads, in its state before reading.
    pub fn add_read(&self, file: ReadFile) {
        let mut entries = self.entries();
        entries.bytes += file.path.as_os_str().len();
        let has_room_for_path = entries.bytes <= MAX_PATHS;
        let ReadFiles::Files(files) = &mut entries.seen else { return };
        if files.len() < MAX_SEEN && has_room_for_path {
            files.push(file);
        } else {
            // The list can't be complete any more.
            entries.seen = ReadFiles::Lost;
        }
    }

    /// Notes that the call has read data whose changes can't be detected.
    pub fn mark_incomplete(&self) {
        if self.stores_reads {
            self.entries().seen = ReadFiles::Lost;
        }
    }

    /// Adds a notice about a program that the call started. A repeated notice is dropped.
    pub fn notice(&self, notice: &str) {
        let notices = &mut self.entries().notices;
        if notices.len() < MAX_NOTICES && !notices.iter().any(|known| known == notice) {
            notices.push(notice.to_owned());
        }
    }

    /// Adds a notice that the tool doesn't know. A repeated notice is dropped.
    pub fn say(&self, notice: String) {
        let unsaid = &mut self.entries().unsaid;
        if unsaid.len() < MAX_NOTICES && !unsaid.contains(&notice) {
            unsaid.push(notice);
        }
    }

    /// Adds a request. Returns its index in [`ReportEntries::requests`], or `None` if the list is
    /// full.
    pub fn requested(&self, request: RequestRecord) -> Option<usize> {
        let mut entries = self.entries();
        if entries.requests.len() >= MAX_REQUESTS {
            entries.more_requests += 1;
            return None;
        }
        entries.requests.push(request);
        Some(entries.requests.len() - 1)
    }

    /// Records that a listing or a search omitted a path. `asks` says whether the rule requires
    /// approval for the path or denies it. `explain` describes the rule and is called only for the
    /// first path of each kind.
    pub fn left_out(&self, asks: bool, explain: impl FnOnce() -> Denial) {
        let mut entries = self.entries();
        let LeftOut { denied, asked } = &mut entries.left_out;
        if asks {
            match asked {
                Some((_first_denial, count)) => *count += 1,
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
        report.start_read_list();
        report.add_read(nothing("/a".to_owned()));
        report.mark_incomplete();
        assert_eq!(report.entries().seen, ReadFiles::Untold);
    }

    #[test]
    fn incomplete_sights_stay_incomplete() {
        let report = Report::watching();
        report.add_read(nothing("/a".to_owned()));
        assert_eq!(report.entries().seen, ReadFiles::Untold);
        report.start_read_list();
        report.add_read(nothing("/b".to_owned()));
        report.start_read_list();
        assert_eq!(report.entries().seen, ReadFiles::Files(vec![nothing("/b".to_owned())]));
        report.mark_incomplete();
        report.start_read_list();
        report.add_read(nothing("/c".to_owned()));
        assert_eq!(report.entries().seen, ReadFiles::Lost);
    }

    #[test]
    fn stored_lookups_are_bounded() {
        let many = Report::watching();
        many.start_read_list();
        (0..MAX_SEEN).for_each(|number| many.add_read(nothing(format!("/{number}"))));
        assert!(matches!(&many.entries().seen, ReadFiles::Files(files) if files.len() == MAX_SEEN));
        many.add_read(nothing("/one more".to_owned()));
        assert_eq!(many.entries().seen, ReadFiles::Lost);
        let long = Report::watching();
        long.start_read_list();
        (0..MAX_PATHS / 4096 + 1).for_each(|_| long.add_read(nothing("x".repeat(4096))));
        assert_eq!(long.entries().seen, ReadFiles::Lost);
    }
}
