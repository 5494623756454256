//! Whether the log is what was written.

use std::collections::VecDeque;
use std::io;

use berth_contract::HostError;
use serde::Serialize;

use super::chain::{self, Hash, Link, SealedRecord};
use super::files;
use super::head::Head;
use super::lines::{Line, Lines, Part};
use super::trail::{LogFile, OpenLog, Trail};

/// Problems that are told one by one.
const MAX_PROBLEMS: usize = 100;

/// Records that are remembered, so that one out of its order is known for what it is.
const REMEMBERED: usize = 1024;

/// What became of looking at the whole log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verification {
    /// Records that are what was written, in the place where they were written.
    pub records: u64,
    /// Files that were read.
    pub files: usize,
    /// What was changed, left out, put in or cut off. Empty: the log is what was written.
    pub problems: Vec<Finding>,
    /// Problems beyond the first hundred.
    pub more_problems: u64,
    /// What was written only in part, since the process was killed or the disk was full, and was
    /// recognised as that.
    pub torn: Vec<Finding>,
}

/// Something about a place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file's name.
    pub file: String,
    /// The line, from 1. None: it is about the file as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What was found.
    pub found: String,
}

impl Verification {
    /// Whether the log is what was written.
    pub fn holds(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Trail {
    /// Looks at every record: whether each is what was written, where it was written, and none is
    /// missing. `head` is the hash of a record that was kept elsewhere: without it, who can write
    /// the folder could have cut off the last records, or written the whole log anew.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`], naming the file.
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
        if let Some(head) = head.filter(|_| !check.wanted_is_there) {
            let found = format!(
                "no record has the hash {head}: it was changed or cut off since, or it went with an old file that `keep` in [audit] had removed"
            );
            check.problem("the log", None, found);
        }
        Ok(check.result)
    }
}

impl Trail {
    /// Looks at the file that is written to, or at the last one before it: as [`Self::verify`], but
    /// for what was before.
    ///
    /// # Errors
    ///
    /// As [`Self::verify`].
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

/// Lines that are no records.
#[derive(Clone, Copy, Debug)]
struct Anomaly {
    /// The first of them.
    first: u64,
    /// Whether one is something that is never left of a record which was being written.
    put_in: bool,
}

/// On the way through the log.
#[derive(Default)]
struct Check {
    result: Verification,
    /// The highest number so far.
    last: u64,
    /// Records that were seen last, by number, with the hashes that the next one may follow: what
    /// it says it has, and what it should have.
    recent: VecDeque<(u64, Hash, Hash)>,
    /// The number of the oldest file that there is, and of the one that the last record says was
    /// the oldest.
    first: Option<u64>,
    oldest: Option<u64>,
    /// The record at which the head says that the log ends: the file's number, where it ends there,
    /// its hash, whether it ended the file.
    at_head: Option<Head>,
    wanted: Option<String>,
    wanted_is_there: bool,
    /// Whether all files are looked at.
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

    fn file(&mut self, opened: &OpenLog, at: usize, log: &LogFile) -> io::Result<()> {
        self.result.files += 1;
        let begin = files::begin(&log.file)?;
        let before = at
            .checked_sub(1)
            .filter(|_| self.from_the_first)
            .and_then(|at| opened.files[at].number);
        let number = log
            .number
            .or(before.map(|before| before + 1))
            .or(begin.as_ref().map(|begin| begin.file))
            .unwrap_or(1);
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
                // What was before is gone, unless there was nothing.
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

    fn lines(&mut self, opened: &OpenLog, log: &LogFile, number: u64) -> io::Result<()> {
        let mut lines = Lines::new(&log.file, 0, log.size);
        let (mut count, mut after, mut ended) = (0, 0, false);
        let mut strange: Option<Anomaly> = None;
        while let Some(line) = lines.next()? {
            count += 1;
            let Some(record) = SealedRecord::parse(line.bytes) else {
                // The part of a record that was being written is no JSON: what is was put in.
                let put_in = serde_json::from_slice::<serde::de::IgnoredAny>(line.bytes).is_ok();
                strange.get_or_insert(Anomaly { first: count, put_in: false }).put_in |= put_in;
                continue;
            };
            if after == 0 && chain::kind(record.signed) != b"begin" {
                self.problem(&log.name, Some(count), "the file doesn't begin as one does");
            }
            self.between(log, (after, line.from), strange.take(), count, &record)?;
            self.record(opened, log, count, &record);
            self.note(opened, number, &line, &record);
            after = line.to;
            ended = chain::kind(record.signed) == b"end";
        }
        if let Some(Anomaly { first, put_in }) = strange {
            let may_be_torn = !put_in
                && log.number.is_none()
                && opened.head.is_some_and(|head| after >= head.end);
            if may_be_torn {
                let found = format!(
                    "the last {} bytes are part of a record; the next record will say so",
                    log.size - after
                );
                self.result.torn.push(Finding { file: log.name.clone(), line: Some(first), found });
            } else {
                self.problem(&log.name, Some(first), "this isn't a record");
            }
        }
        if log.number.is_some() && !ended {
            self.problem(
                &log.name,
                Some(count),
                "the file doesn't end as one does: records may be missing",
            );
        }
        Ok(())
    }

    /// What stands between two records has to be what the second one says.
    fn between(
        &mut self,
        log: &LogFile,
        part: (u64, u64),
        strange: Option<Anomaly>,
        line: u64,
        record: &SealedRecord<'_>,
    ) -> io::Result<()> {
        let (from, to) = (part.0, part.1.saturating_sub(1));
        match (strange, record.torn()) {
            (None, None) => {}
            (Some(Anomaly { first, put_in: false }), Some((bytes, hash)))
                if bytes == to.saturating_sub(from)
                    && hash == (Part { file: &log.file, at: from, to }).hash()? =>
            {
                let found = format!("{bytes} bytes are a part of a record, as the next one says");
                self.result.torn.push(Finding { file: log.name.clone(), line: Some(first), found });
            }
            (Some(Anomaly { first, .. }), _) => {
                self.problem(&log.name, Some(first), "this isn't a record");
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

    fn record(&mut self, opened: &OpenLog, log: &LogFile, line: u64, record: &SealedRecord<'_>) {
        let seq = record.link.seq;
        let before = self
            .recent
            .iter()
            .rev()
            .find(|(known, ..)| Some(*known) == seq.checked_sub(1))
            .copied();
        let follows = |previous: &Hash| record.follows(&opened.key, previous);
        let verified =
            before.is_some_and(|(_, stated, actual)| follows(&stated) || follows(&actual));
        if verified && seq == self.last + 1 {
            self.result.records += 1;
            self.wanted_is_there |= self
                .wanted
                .as_deref()
                .is_some_and(|wanted| wanted.as_bytes() == chain::hex(&record.link.hash));
            if chain::kind(record.signed) == b"note" {
                self.problem(
                    &log.name,
                    Some(line),
                    "the file `head` was lost before this record: others before it may be missing",
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
        // What it should have is known where what it follows is.
        let actual = before
            .map_or(record.link.hash, |(_, stated, _)| opened.key.hash(&stated, record.signed));
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((seq, record.link.hash, actual));
        self.last = self.last.max(seq);
    }

    fn note(&mut self, opened: &OpenLog, file: u64, line: &Line<'_>, record: &SealedRecord<'_>) {
        if opened
            .head
            .is_some_and(|head| head.link.seq == record.link.seq && self.at_head.is_none())
        {
            self.at_head = Some(Head {
                file,
                end: line.to,
                link: record.link,
                ended: chain::kind(record.signed) == b"end",
            });
        }
    }

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
                "it is lost, and every record with it: the log was emptied",
            ),
            None => self.problem(
                files::HEAD,
                None,
                "it is missing or damaged, so the last records can't be checked",
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
            // What was put in or left out before has moved its place.
            Some(_) if !self.result.holds() => {}
            Some(_) => self.problem(
                files::HEAD,
                None,
                "it doesn't fit to the log: one of them was changed",
            ),
        }
    }
}

/// Whether the head says what is so of the record at which it says the log ends. Where that was the
/// last one of its file, and the next file was begun without a record yet, it is of the next one.
fn fits(head: &Head, found: Option<&Head>) -> bool {
    let next = |found: &Head| Head { file: found.file + 1, end: 0, ended: false, ..*found };
    found.is_some_and(|found| head == found || (found.ended && *head == next(found)))
}
