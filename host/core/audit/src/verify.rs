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

/// Maximum number of listed problems. Further problems are only counted.
const MAX_PROBLEMS: usize = 100;

/// Number of remembered entries for recognising an entry that is out of order.
const REMEMBERED: usize = 1024;

/// The result of a verification.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verification {
    /// The number of entries that are unchanged and in the right order.
    pub records: u64,
    /// Files that were read.
    pub files: usize,
    /// Entries that were changed, removed, inserted or cut off.
    pub problems: Vec<Finding>,
    /// Number of problems that aren't listed.
    pub more_problems: u64,
    /// Incomplete entries that a killed process or a full disk left behind. These entries are no
    /// problems.
    pub torn: Vec<Finding>,
}

/// A finding at a position in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file's name.
    pub file: String,
    /// The line number, starting with 1. `None` means the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// A description of the finding.
    pub found: String,
}

impl Verification {
    /// Checks whether there are no problems.
    pub fn holds(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Trail {
    /// Checks that every entry is unchanged and in the right order, and that no entry is missing.
    ///
    /// `head` is the hash of an entry, from a copy outside of the folder. Only this hash reveals
    /// that a process with access to the folder removed the last entries or wrote a new log.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the log can't be read.
    pub fn verify(&self, head: Option<&str>) -> Result<Verification, HostError> {
        let mut check = Check::default();
        if let Some(opened) = &self.opened {
            check.wanted_hash = head.map(str::to_owned);
            check.checks_all_files = true;
            for (index, log) in opened.files.iter().enumerate() {
                let to_host_error =
                    HostError::io(self.path().join(&log.name).display().to_string());
                check.check_file(opened, index, log).map_err(to_host_error)?;
            }
            check.check_end(opened);
        }
        if let Some(head) = head
            && !check.has_wanted_hash
        {
            let found = format!(
                "no record has the hash {head}: the record was changed or cut off, or `keep` in [audit] removed its file"
            );
            check.add_problem("the log", None, found);
        }
        Ok(check.result)
    }
}

impl Trail {
    /// Checks only the newest file, with the checks of [`Self::verify`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Self::verify`].
    pub fn verify_newest(&self) -> Result<Verification, HostError> {
        let mut check = Check::default();
        if let Some(opened) = &self.opened {
            if let Some(log) = opened.files.last() {
                check
                    .check_file(opened, opened.files.len() - 1, log)
                    .map_err(HostError::io(self.path().join(&log.name).display().to_string()))?;
            }
            check.check_end(opened);
        }
        Ok(check.result)
    }
}

/// Lines that aren't entries.
#[derive(Clone, Copy, Debug)]
struct Anomaly {
    /// The line number of the first of these lines.
    first: u64,
    /// Whether one of the lines can't be an incomplete entry, and was therefore inserted.
    is_inserted: bool,
}

#[derive(Default)]
struct Check {
    result: Verification,
    last_seq: u64,
    /// The number, the stated hash and the computed hash of the last entries. If an entry was
    /// changed, the two hashes differ, and the next entry may follow either of them.
    recent: VecDeque<(u64, Hash, Hash)>,
    /// The number of the oldest existing file.
    first_file: Option<u64>,
    /// The number of the oldest file that should exist, as the newest file states it.
    oldest_file: Option<u64>,
    /// The place of the entry that the file `head` states.
    head_entry: Option<Head>,
    wanted_hash: Option<String>,
    has_wanted_hash: bool,
    checks_all_files: bool,
}

impl Check {
    fn add_problem(&mut self, file: &str, line: Option<u64>, found: impl Into<String>) {
        if self.result.problems.len() < MAX_PROBLEMS {
            self.result.problems.push(Finding { file: file.to_owned(), line, found: found.into() });
        } else {
            self.result.more_problems += 1;
        }
    }

    fn check_file(&mut self, opened: &OpenLog, at: usize, log: &LogFile) -> io::Result<()> {
        self.result.files += 1;
        let begin = files::begin(&log.file)?;
        let previous_number = match at.checked_sub(1) {
            Some(previous) if self.checks_all_files => opened.files[previous].number,
            _ => None,
        };
        // The current file has no number in its name, so its number follows from the file before it
        // or from its first entry.
        let number = match (log.number, previous_number, &begin) {
            (Some(number), _, _) => number,
            (None, Some(previous), _) => previous + 1,
            (None, None, Some(begin)) => begin.file,
            (None, None, None) => 1,
        };
        self.first_file.get_or_insert(number);
        if let Some(previous) = previous_number
            && number != previous + 1
        {
            self.add_problem(&files::name(previous + 1), None, "the file is missing");
        }
        if let Some(begin) = &begin {
            if begin.file != number {
                self.add_problem(
                    &log.name,
                    Some(1),
                    format!("this was file {}, not {number}", begin.file),
                );
            }
            self.oldest_file = Some(begin.oldest);
            if at == 0 || !self.checks_all_files {
                let start = if begin.file == 1 {
                    Link::START
                } else {
                    Link { seq: begin.seq - 1, hash: begin.previous }
                };
                self.last_seq = start.seq;
                self.recent.push_back((start.seq, start.hash, start.hash));
            }
        }
        self.check_lines(opened, log, number)
    }

    fn check_lines(&mut self, opened: &OpenLog, log: &LogFile, number: u64) -> io::Result<()> {
        let mut lines = Lines::new(&log.file, 0, log.size);
        let mut count = 0;
        let mut previous_end = 0;
        let mut is_finished = false;
        let mut anomaly: Option<Anomaly> = None;
        while let Some(line) = lines.next()? {
            count += 1;
            let Some(record) = SealedRecord::parse(line.bytes) else {
                let lines_so_far =
                    anomaly.get_or_insert(Anomaly { first: count, is_inserted: false });
                // A line of valid JSON isn't an incomplete entry, so it was inserted.
                if serde_json::from_slice::<serde::de::IgnoredAny>(line.bytes).is_ok() {
                    lines_so_far.is_inserted = true;
                }
                continue;
            };
            if previous_end == 0 && chain::kind(record.signed) != b"begin" {
                self.add_problem(
                    &log.name,
                    Some(count),
                    "the file lacks the first entry that every file of the log has",
                );
            }
            self.check_gap(log, (previous_end, line.from), anomaly.take(), count, &record)?;
            self.check_record(opened, log, count, &record);
            self.store_head_entry(opened, number, &line, &record);
            previous_end = line.to;
            is_finished = chain::kind(record.signed) == b"end";
        }
        if let Some(Anomaly { first, is_inserted }) = anomaly {
            let may_be_torn = !is_inserted
                && log.number.is_none()
                && opened.head.is_some_and(|head| previous_end >= head.end);
            if may_be_torn {
                let found = format!(
                    "the last {} bytes are an incomplete record; the next record will note it",
                    log.size - previous_end
                );
                self.result.torn.push(Finding { file: log.name.clone(), line: Some(first), found });
            } else {
                self.add_problem(&log.name, Some(first), "this line isn't a record");
            }
        }
        if log.number.is_some() && !is_finished {
            self.add_problem(
                &log.name,
                Some(count),
                "the file doesn't end like a file of the log: records may be missing",
            );
        }
        Ok(())
    }

    /// Checks the bytes between two entries. The second entry must describe the bytes as an
    /// incomplete entry. `gap` is the range of the bytes, and `line` is the line number of the
    /// second entry.
    fn check_gap(
        &mut self,
        log: &LogFile,
        gap: (u64, u64),
        anomaly: Option<Anomaly>,
        line: u64,
        record: &SealedRecord<'_>,
    ) -> io::Result<()> {
        let (from, entry_start) = gap;
        // The writer of the second entry has put a line end before it, which isn't part of the gap.
        let to = entry_start.saturating_sub(b"\n".len() as u64);
        match (anomaly, record.incomplete_before()) {
            (None, None) => {}
            (Some(Anomaly { first, is_inserted: false }), Some((bytes, hash))) => {
                let has_stated_length = bytes == to.saturating_sub(from);
                let part = Part { file: &log.file, at: from, to };
                if has_stated_length && hash == part.hash()? {
                    let found =
                        format!("{bytes} bytes are an incomplete record, as the next record notes");
                    self.result.torn.push(Finding {
                        file: log.name.clone(),
                        line: Some(first),
                        found,
                    });
                } else {
                    self.add_problem(&log.name, Some(first), "this line isn't a record");
                }
            }
            (Some(Anomaly { first, .. }), _) => {
                self.add_problem(&log.name, Some(first), "this line isn't a record");
            }
            (None, Some((bytes, _))) => {
                self.add_problem(
                    &log.name,
                    Some(line),
                    format!("{bytes} bytes that were before this record are missing"),
                );
            }
        }
        Ok(())
    }

    fn check_record(
        &mut self,
        opened: &OpenLog,
        log: &LogFile,
        line: u64,
        record: &SealedRecord<'_>,
    ) {
        let seq = record.link.seq;
        let previous = self
            .recent
            .iter()
            .rev()
            .find(|(known, ..)| Some(*known) == seq.checked_sub(1))
            .copied();
        let is_verified = match previous {
            Some((_, stated, actual)) => {
                record.follows(&opened.key, &stated) || record.follows(&opened.key, &actual)
            }
            None => false,
        };
        if is_verified && seq == self.last_seq + 1 {
            self.result.records += 1;
            if let Some(wanted) = &self.wanted_hash
                && wanted.as_bytes() == chain::hex(&record.link.hash)
            {
                self.has_wanted_hash = true;
            }
            if chain::kind(record.signed) == b"note" {
                self.add_problem(
                    &log.name,
                    Some(line),
                    "the file `head` was lost before this record: earlier records may be missing",
                );
            }
        } else if seq <= self.last_seq {
            let what =
                if is_verified { "is in the wrong place" } else { "was changed or inserted" };
            self.add_problem(
                &log.name,
                Some(line),
                format!("record {seq} {what}; record {} belongs here", self.last_seq + 1),
            );
        } else if seq == self.last_seq + 1 {
            self.add_problem(&log.name, Some(line), format!("record {seq} was changed"));
        } else {
            let missing = if seq == self.last_seq + 2 {
                seq.saturating_sub(1).to_string()
            } else {
                format!("{} to {}", self.last_seq + 1, seq - 1)
            };
            self.add_problem(
                &log.name,
                Some(line),
                format!("missing before record {seq}: {missing}"),
            );
        }
        let actual = match previous {
            Some((_, stated, _)) => opened.key.hash(&stated, record.signed),
            None => record.link.hash,
        };
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((seq, record.link.hash, actual));
        self.last_seq = self.last_seq.max(seq);
    }

    /// Stores the place of the first entry with the number that the file `head` states.
    fn store_head_entry(
        &mut self,
        opened: &OpenLog,
        file: u64,
        line: &Line<'_>,
        record: &SealedRecord<'_>,
    ) {
        let Some(head) = opened.head else { return };
        if head.link.seq == record.link.seq && self.head_entry.is_none() {
            self.head_entry = Some(Head {
                file,
                end: line.to,
                link: record.link,
                ended: chain::kind(record.signed) == b"end",
            });
        }
    }

    /// Checks the oldest file and the file `head`.
    fn check_end(&mut self, opened: &OpenLog) {
        if let (Some(oldest), Some(first)) = (self.oldest_file, self.first_file)
            && oldest < first
            && self.checks_all_files
        {
            let names = if oldest + 1 == first {
                files::name(oldest)
            } else {
                format!("{} to {}", files::name(oldest), files::name(first - 1))
            };
            self.add_problem(&names, None, "missing");
        }
        match opened.head {
            None if self.last_seq == 0 => self.add_problem(
                files::HEAD,
                None,
                "the file and all records are missing: the log was emptied",
            ),
            None => self.add_problem(
                files::HEAD,
                None,
                "the file is missing or damaged, so the last records can't be checked",
            ),
            Some(head) if head.link.seq > self.last_seq => {
                let found = format!(
                    "the end is cut off: the last record is {}, and there were {}",
                    self.last_seq, head.link.seq
                );
                self.add_problem(
                    opened.files.last().map_or(files::CURRENT, |log| &log.name),
                    None,
                    found,
                );
            }
            Some(head) if head.link == Link::START || fits(&head, self.head_entry.as_ref()) => {}
            // Inserted or removed lines also move the end. They are listed already, so the end
            // isn't listed as another problem.
            Some(_) if !self.result.holds() => {}
            Some(_) => self.add_problem(
                files::HEAD,
                None,
                "the file doesn't match the log: one of them was changed",
            ),
        }
    }
}

/// Checks whether the head states the last entry. If this entry finished its file, the head may
/// also state the empty next file.
fn fits(head: &Head, actual: Option<&Head>) -> bool {
    let Some(actual) = actual else { return false };
    let next_file = Head { file: actual.file + 1, end: 0, ended: false, ..*actual };
    head == actual || (actual.ended && *head == next_file)
}
