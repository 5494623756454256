use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Denial;

/// What a provider tells of a call beside its outcome: for the audit, and for those who want to
/// know whether an answer is still true.
///
/// It is filled while the call runs, from whatever thread does, and read when the call is over.
#[derive(Debug, Default)]
pub struct Report {
    told: Mutex<ReportEntries>,
    watched: bool,
}

/// What was told.
#[derive(Debug, Default)]
pub struct ReportEntries {
    /// The first refusal of an operation of the call.
    pub denial: Option<Denial>,
    /// How many operations were refused.
    pub denials: u64,
    /// What its listings and searches left out, since rules about calls are against it.
    pub left_out: LeftOut,
    /// What a program that the call started ended with.
    pub exit_code: Option<i32>,
    /// What the host has to say of those programs, for whoever reads the answer.
    pub notices: Vec<String>,
    /// Its requests to the network, in their order, each hop for itself; those that were refused,
    /// too.
    pub requests: Vec<RequestRecord>,
    /// Requests beside those, of which nothing more is told.
    pub more_requests: u64,
    /// What the answer was made of, where somebody [watches](Report::watching).
    pub seen: Seen,
    /// Bytes of the paths in `seen`.
    bytes: usize,
}

/// What listings and searches of a call left out since rules about calls are against it. What the
/// grants don't let be read is not told here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first of what a rule denies.
    pub denied: Option<Denial>,
    /// The first of what a rule asks for, and how many there were.
    pub asked: Option<(Denial, u64)>,
}

/// A request that a call has made, or was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// When it began, since the Unix epoch.
    pub began: std::time::Duration,
    /// The method.
    pub method: String,
    /// The URL, without what secrets may stand in.
    pub url: String,
    /// How many redirects led to it.
    pub hop: u32,
    /// The address that was connected to, or that was refused.
    pub address: Option<std::net::IpAddr>,
    /// The answer's status.
    pub status: Option<u16>,
    /// Bytes of the answer's body as they came.
    pub received: u64,
    /// How long it took.
    pub time: std::time::Duration,
    /// Names of the secrets that were put in.
    pub secrets: Vec<String>,
    /// The rule that refused it, or what went wrong.
    pub failed: Option<String>,
    /// Whether a rule refused it.
    pub refused: bool,
}

/// The files and directories that a call has looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// Nobody has told.
    #[default]
    Untold,
    /// These, each as it was before it was read, and nothing else. In the order in which they were
    /// seen, some of them perhaps more than once.
    Files(Vec<SeenFile>),
    /// More than is remembered, or something of which nobody can tell later whether it has changed.
    Lost,
}

/// A file or directory as a call found it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenFile {
    /// How the path was followed.
    pub lookup: Lookup,
    /// The absolute path by which it was looked for.
    pub path: PathBuf,
    /// What was there.
    pub sight: Sight,
}

/// How a path was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// No part of it is a link.
    Real,
    /// Links were followed, but not the last component.
    Itself,
    /// Links were followed.
    Followed,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// Nothing has that name.
    Nothing,
    /// Something has, and what it is doesn't matter.
    Something,
    /// This.
    File(FileState),
}

/// What shows that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileState {
    /// Device and inode.
    pub identity: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// Last change of the contents: seconds and nanoseconds.
    pub modified: (i64, u64),
    /// Last change of anything: seconds and nanoseconds.
    pub changed: (i64, u64),
}

/// The most that is remembered of one call, in things and in bytes of their paths: some megabytes.
const MAX_SEEN: usize = 16_384;
const MAX_PATHS: usize = 4 << 20;

/// Notices of one call.
const MAX_NOTICES: usize = 16;

/// Requests of one call that are told one by one.
const MAX_REQUESTS: usize = 1024;

impl Report {
    /// A report for somebody who wants to know what the call looks at.
    pub fn watching() -> Self {
        Self { watched: true, ..Self::default() }
    }

    /// Whether somebody wants to know what the call looks at. Where nobody does, telling it is a
    /// waste.
    pub fn is_watching(&self) -> bool {
        self.watched
    }

    /// The provider's promise to tell everything that the call looks at from now on: by
    /// [`saw`](Self::saw), or that it can't.
    pub fn tells_what_it_sees(&self) {
        let mut told = self.entries();
        if self.watched && told.seen == Seen::Untold {
            told.seen = Seen::Files(Vec::new());
        }
    }

    /// The call has looked at something. To be told with its state from before it was read.
    pub fn saw(&self, file: SeenFile) {
        let mut told = self.entries();
        let bytes = told.bytes + file.path.as_os_str().len();
        told.bytes = bytes;
        let Seen::Files(files) = &mut told.seen else { return };
        if files.len() < MAX_SEEN && bytes <= MAX_PATHS {
            files.push(file);
        } else {
            told.seen = Seen::Lost;
        }
    }

    /// The call has looked at something that can't be looked at again for comparison.
    pub fn lost_sight(&self) {
        if self.watched {
            self.entries().seen = Seen::Lost;
        }
    }

    /// The host has something to say of a program that the call started. It is said once.
    pub fn notice(&self, notice: &str) {
        let notices = &mut self.entries().notices;
        if notices.len() < MAX_NOTICES && !notices.iter().any(|known| known == notice) {
            notices.push(notice.to_owned());
        }
    }

    /// The call makes a request, or would. Its place among [`ReportEntries::requests`]; None where
    /// it has made so many that no more are told one by one.
    pub fn requested(&self, requested: RequestRecord) -> Option<usize> {
        let mut told = self.entries();
        if told.requests.len() >= MAX_REQUESTS {
            told.more_requests += 1;
            return None;
        }
        told.requests.push(requested);
        Some(told.requests.len() - 1)
    }

    /// A listing or a search of the call left something out, since a rule about calls denies it, or
    /// `asks` for it. `explain` puts the first of them into words.
    pub fn left_out(&self, asks: bool, explain: impl FnOnce() -> Denial) {
        let mut told = self.entries();
        let LeftOut { denied, asked } = &mut told.left_out;
        match (asks, asked) {
            (true, Some((_, count))) => *count += 1,
            (true, asked @ None) => *asked = Some((explain(), 1)),
            (false, _) => drop(denied.get_or_insert_with(explain)),
        }
    }

    /// What was told so far.
    pub fn entries(&self) -> MutexGuard<'_, ReportEntries> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(path: String) -> SeenFile {
        SeenFile { lookup: Lookup::Followed, path: path.into(), sight: Sight::Nothing }
    }

    #[test]
    fn only_who_watches_is_told() {
        let report = Report::default();
        report.tells_what_it_sees();
        report.saw(nothing("/a".to_owned()));
        report.lost_sight();
        assert_eq!(report.entries().seen, Seen::Untold);
    }

    #[test]
    fn what_was_lost_stays_lost() {
        let report = Report::watching();
        report.saw(nothing("/a".to_owned()));
        assert_eq!(report.entries().seen, Seen::Untold);
        report.tells_what_it_sees();
        report.saw(nothing("/b".to_owned()));
        report.tells_what_it_sees();
        assert_eq!(report.entries().seen, Seen::Files(vec![nothing("/b".to_owned())]));
        report.lost_sight();
        report.tells_what_it_sees();
        report.saw(nothing("/c".to_owned()));
        assert_eq!(report.entries().seen, Seen::Lost);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let many = Report::watching();
        many.tells_what_it_sees();
        (0..MAX_SEEN).for_each(|number| many.saw(nothing(format!("/{number}"))));
        assert!(matches!(&many.entries().seen, Seen::Files(files) if files.len() == MAX_SEEN));
        many.saw(nothing("/one more".to_owned()));
        assert_eq!(many.entries().seen, Seen::Lost);
        let long = Report::watching();
        long.tells_what_it_sees();
        (0..MAX_PATHS / 4096 + 1).for_each(|_| long.saw(nothing("x".repeat(4096))));
        assert_eq!(long.entries().seen, Seen::Lost);
    }
}
