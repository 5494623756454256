//! Verifies the audit log: finds entries that were changed, moved or removed.

use std::collections::VecDeque;
use std::io;

use serde::Serialize;
use toolhold_contract::HostError;

use super::chain::{self, Hash, Link, SealedRecord};
use super::files;
use super::head::Head;
use super::lines::{Line, Lines, Part};
use super::trail::{LogFile, OpenLog, Trail};

/// Maximum number of listed problems.
const MAX_PROBLEMS: usize = 100;

/// Remembered records, to recognise a record that is out of order.
const REMEMBERED: usize = 1024;

/// The result of a verification.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verification {
    /// The number of entries that are unchanged and in the right order.
    pub records: u64,
    /// Files that were read.
    pub files: usize,
    /// The entries that were changed, removed, inserted or cut off. If empty, the log is unchanged.
    pub problems: Vec<Finding>,
    /// Number of problems after the first hundred.
    pub more_problems: u64,
    /// Entries that are recognised as incomplete, after a killed process or on a full disk.
    pub torn: Vec<Finding>,
}

/// A finding about a place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file's name.
    pub file: String,
    /// The line, starting with 1. `None` means the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The finding.
    pub found: String,
}

impl Verification {
    /// Checks whether the log is unchanged, which means that there are no problems.
    pub fn holds(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Trail {
    /// Checks that every entry is unchanged and in the right order, and that no entry is missing.
    ///
    /// `head` is the hash of an entry that was stored elsewhere. Without it, a process that can
    /// write to the folder could have cut off the last entries or written a new log.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the file if the log can't be read.
    pub fn verify(&self, head: Option<&str>) -> Result<Verification, HostError> {
        let mut check = Check::default();
        if let Some(opened) = &self.opened {
            check.wanted = head.map(str::to_owned);
            check.from_the_first = true;
            for (at, log) in opened.files.iter().enumerate() {
                let failed = HostError::io(self.path().join(&log.name).display().to_string());
                check.file(opened, at, log).map_err(failed)?;
            }
            check.end(opened);
        }
        if let Some(head) = head
            && !check.wanted_is_there
        {
            let found = format!(
                "no record has the hash {head}: the record was changed or cut off, or `keep` in [audit] removed its file"
            );
            check.problem("the log", None, found);
        }
        Ok(check.result)
    }
}

impl Trail {
    /// Checks only the current file, or the last finished file if there is no current file. The
    /// checks are those of [`Self::verify`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::verify`].
    pub fn verify_newest(&self) -> Result<Verification, HostError> {
        let mut check = Check::default();
        if let Some(opened) = &self.opened {
            if let Some(log) = opened.files.last() {
                check
                    .file(opened, opened.files.len() - 1, log)
                    .map_err(HostError::io(self.path().join(&log.name).display().to_string()))?;
            }
            check.end(opened);
        }
        Ok(check.result)
    }
}

/// Lines that aren't records.
#[derive(Clone, Copy, Debug)]
struct Anomaly {
    /// The number of the first of these lines.
    first: u64,
    /// Whether the line was inserted, because it can't be an incomplete entry.
    is_inserted: bool,
}

/// State of the verification.
#[derive(Default)]
struct Check {
    result: Verification,
    /// The highest number so far.
    last: u64,
    /// The last entries by number. Each has the hashes that the next entry may follow: the stated
    /// hash and the right hash.
    recent: VecDeque<(u64, Hash, Hash)>,
    /// The number of the oldest existing file, and of the oldest file by the last record.
    first: Option<u64>,
    oldest: Option<u64>,
    /// The end of the log that the head states: the file's number, the position in it, the hash,
    /// and whether the entry finished the file.
    at_head: Option<Head>,
    wanted: Option<String>,
    wanted_is_there: bool,
    /// Whether all files are checked.
    from_the_first: bool,
}

impl Check {
    fn problem(&mut self, file: &str, line: Option<u64>, found: impl Into<String>) {
        if self.result.problems.len() < MAX_PROBLEMS {
            self.result.problems.push(Finding { file: file.to_owned(), line, found: found.into() });
        } else {
            self.result.more_problems += 1;
        }
    }

    /// Checks the file with the index `at`.
    fn file(&mut self, opened: &OpenLog, at: usize, log: &LogFile) -> io::Result<()> {
        self.result.files += 1;
        let begin = files::begin(&log.file)?;
        let before = match at.checked_sub(1) {
            Some(at) if self.from_the_first => opened.files[at].number,
            _ => None,
        };
        // The number in the name is preferred, then the file's position, then the number in the
        // file.
        let number = match (log.number, before, &begin) {
            (Some(number), _, _) => number,
            (None, Some(before), _) => before + 1,
            (None, None, Some(begin)) => begin.file,
            (None, None, None) => 1,
        };
        self.first.get_or_insert(number);
        if let Some(before) = before
            && number != before + 1
        {
            self.problem(&files::name(before + 1), None, "the file is missing");
        }
        if let Some(begin) = &begin {
            if begin.file != number {
                self.problem(
                    &log.name,
                    Some(1),
                    format!("this was file {}, not {number}", begin.file),
                );
            }
            self.oldest = Some(begin.oldest);
            if at == 0 || !self.from_the_first {
                // Earlier entries have been removed, unless this is the first file.
                let start = if begin.file == 1 {
                    Link::START
                } else {
                    Link { seq: begin.seq - 1, hash: begin.previous }
                };
                self.last = start.seq;
                self.recent.push_back((start.seq, start.hash, start.hash));
            }
        }
        self.lines(opened, log, number)
    }

    /// Checks the lines of a file.
    fn lines(&mut self, opened: &OpenLog, log: &LogFile, number: u64) -> io::Result<()> {
        let mut lines = Lines::new(&log.file, 0, log.size);
        let mut count = 0;
        let mut after = 0;
        let mut ended = false;
        let mut anomaly: Option<Anomaly> = None;
        while let Some(line) = lines.next()? {
            count += 1;
            let Some(record) = SealedRecord::parse(line.bytes) else {
                let lines_so_far =
                    anomaly.get_or_insert(Anomaly { first: count, is_inserted: false });
                // An incomplete entry isn't valid JSON, so a line that is valid JSON was inserted.
                if serde_json::from_slice::<serde::de::IgnoredAny>(line.bytes).is_ok() {
                    lines_so_far.is_inserted = true;
                }
                continue;
            };
            if after == 0 && chain::kind(record.signed) != b"begin" {
                self.problem(
                    &log.name,
                    Some(count),
                    "the file doesn't begin like a file of the log",
                );
            }
            self.between(log, (after, line.from), anomaly.take(), count, &record)?;
            self.record(opened, log, count, &record);
            self.note(opened, number, &line, &record);
            after = line.to;
            ended = chain::kind(record.signed) == b"end";
        }
        if let Some(Anomaly { first, is_inserted }) = anomaly {
            let may_be_torn = !is_inserted
                && log.number.is_none()
                && opened.head.is_some_and(|head| after >= head.end);
            if may_be_torn {
                let found = format!(
                    "the last {} bytes are an incomplete record; the next record will note it",
                    log.size - after
                );
                self.result.torn.push(Finding { file: log.name.clone(), line: Some(first), found });
            } else {
                self.problem(&log.name, Some(first), "this line isn't a record");
            }
        }
        if log.number.is_some() && !ended {
            self.problem(
                &log.name,
                Some(count),
                "the file doesn't end like a file of the log: records may be missing",
            );
        }
        Ok(())
    }

    /// Checks that the bytes between two entries are the incomplete entry that the second one
    /// states. `part` is the end of the first entry and the start of the second.
    fn between(
        &mut self,
        log: &LogFile,
        part: (u64, u64),
        anomaly: Option<Anomaly>,
        line: u64,
        record: &SealedRecord<'_>,
    ) -> io::Result<()> {
        let from = part.0;
        // The line end before the second record was written with that record.
        let to = part.1.saturating_sub(1);
        match (anomaly, record.incomplete_before()) {
            (None, None) => {}
            (Some(Anomaly { first, is_inserted: false }), Some((bytes, hash)))
                if bytes == to.saturating_sub(from)
                    && hash == (Part { file: &log.file, at: from, to }).hash()? =>
            {
                let found =
                    format!("{bytes} bytes are an incomplete record, as the next record notes");
                self.result.torn.push(Finding { file: log.name.clone(), line: Some(first), found });
            }
            (Some(Anomaly { first, .. }), _) => {
                self.problem(&log.name, Some(first), "this line isn't a record");
            }
            (None, Some((bytes, _))) => {
                self.problem(
                    &log.name,
                    Some(line),
                    format!("{bytes} bytes that were before this record are missing"),
                );
            }
        }
        Ok(())
    }

    /// Checks that an entry is unchanged and in the right order.
    fn record(&mut self, opened: &OpenLog, log: &LogFile, line: u64, record: &SealedRecord<'_>) {
        let seq = record.link.seq;
        let before = self
            .recent
            .iter()
            .rev()
            .find(|(known, ..)| Some(*known) == seq.checked_sub(1))
            .copied();
        let verified = match before {
            Some((_, stated, actual)) => {
                record.follows(&opened.key, &stated) || record.follows(&opened.key, &actual)
            }
            None => false,
        };
        if verified && seq == self.last + 1 {
            self.result.records += 1;
            if let Some(wanted) = &self.wanted
                && wanted.as_bytes() == chain::hex(&record.link.hash)
            {
                self.wanted_is_there = true;
            }
            if chain::kind(record.signed) == b"note" {
                self.problem(
                    &log.name,
                    Some(line),
                    "the file `head` was lost before this record: earlier records may be missing",
                );
            }
        } else if seq <= self.last {
            let what = if verified { "is in the wrong place" } else { "was changed, or put in" };
            self.problem(
                &log.name,
                Some(line),
                format!("record {seq} {what}; record {} belongs here", self.last + 1),
            );
        } else if seq == self.last + 1 {
            self.problem(&log.name, Some(line), format!("record {seq} was changed"));
        } else {
            let missing = if seq == self.last + 2 {
                seq.saturating_sub(1).to_string()
            } else {
                format!("{} to {}", self.last + 1, seq - 1)
            };
            self.problem(&log.name, Some(line), format!("missing before record {seq}: {missing}"));
        }
        // The right hash of the entry is known if the previous entry is known.
        let actual = match before {
            Some((_, stated, _)) => opened.key.hash(&stated, record.signed),
            None => record.link.hash,
        };
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((seq, record.link.hash, actual));
        self.last = self.last.max(seq);
    }

    /// Notes the end of a record if the head is about this record.
    fn note(&mut self, opened: &OpenLog, file: u64, line: &Line<'_>, record: &SealedRecord<'_>) {
        let Some(head) = opened.head else { return };
        if head.link.seq == record.link.seq && self.at_head.is_none() {
            self.at_head = Some(Head {
                file,
                end: line.to,
                link: record.link,
                ended: chain::kind(record.signed) == b"end",
            });
        }
    }

    /// Checks the oldest files and the head.
    fn end(&mut self, opened: &OpenLog) {
        if let (Some(oldest), Some(first)) = (self.oldest, self.first)
            && oldest < first
            && self.from_the_first
        {
            let names = if oldest + 1 == first {
                files::name(oldest)
            } else {
                format!("{} to {}", files::name(oldest), files::name(first - 1))
            };
            self.problem(&names, None, "missing");
        }
        match opened.head {
            None if self.last == 0 => self.problem(
                files::HEAD,
                None,
                "the file and all records are missing: the log was emptied",
            ),
            None => self.problem(
                files::HEAD,
                None,
                "the file is missing or damaged, so the last records can't be checked",
            ),
            Some(head) if head.link.seq > self.last => {
                let found = format!(
                    "the end is cut off: the last record is {}, and there were {}",
                    self.last, head.link.seq
                );
                self.problem(
                    opened.files.last().map_or(files::CURRENT, |log| &log.name),
                    None,
                    found,
                );
            }
            Some(head) if head.link == Link::START || fits(&head, self.at_head.as_ref()) => {}
            // Inserted or removed lines before the end have changed its position.
            Some(_) if !self.result.holds() => {}
            Some(_) => self.problem(
                files::HEAD,
                None,
                "the file doesn't match the log: one of them was changed",
            ),
        }
    }
}

/// Checks whether the head is correct about the last entry. If that entry finished its file and the
/// next file has no entry yet, the head may state the next file.
fn fits(head: &Head, actual: Option<&Head>) -> bool {
    let Some(actual) = actual else { return false };
    let next_file = Head { file: actual.file + 1, end: 0, ended: false, ..*actual };
    head == actual || (actual.ended && *head == next_file)
}
