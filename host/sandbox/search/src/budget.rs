//! Ends a search, on all of its threads, when it reaches a limit of time, results or text.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::model::{Control, MAX_RESULTS, SearchEnding, SkipCounts};
use toolhold_system::files::FileView;

/// The most bytes of text in one answer. The size of a path is counted for each line, because an
/// answer for a guest has a copy of the path in each line.
const MAX_TEXT: u64 = 4 << 20;

/// The size that each result has in addition to its text. Without this size, 100 empty lines of
/// context around each match would be free.
const PER_RESULT: usize = 32;

const COMPLETE: u8 = 0;
const LIMIT: u8 = 1;
const DEADLINE: u8 = 2;
const CANCELLED: u8 = 3;

/// The limits of one search, and their use so far.
#[derive(Debug)]
pub(super) struct Budget<'c> {
    control: &'c Control,
    limit: u64,
    results: AtomicU64,
    text_bytes: AtomicU64,
    /// The first reason to end. Later reasons follow from the first one, so they are not stored.
    ending: AtomicU8,
}

impl<'c> Budget<'c> {
    pub(super) fn new(control: &'c Control, limit: u32) -> Self {
        let limit = u64::from(limit.min(MAX_RESULTS));
        Self {
            control,
            limit,
            results: AtomicU64::new(0),
            text_bytes: AtomicU64::new(0),
            ending: AtomicU8::new(COMPLETE),
        }
    }

    /// Returns the most threads that the search may use.
    pub(super) fn threads(&self) -> usize {
        self.control.threads.max(1)
    }

    /// Counts one more result. Returns false if the limit doesn't allow the result. The search then
    /// ends, and is known to be incomplete.
    pub(super) fn add_result(&self) -> bool {
        let results_before = self.results.fetch_add(1, Ordering::Relaxed);
        let fits = results_before < self.limit;
        if !fits {
            self.end_with(LIMIT);
        }
        fits
    }

    /// Counts `bytes` more of text. Returns false if the limit doesn't allow them. The search then
    /// ends.
    pub(super) fn add_text(&self, bytes: usize) -> bool {
        let cost = (bytes + PER_RESULT) as u64;
        let total = self.text_bytes.fetch_add(cost, Ordering::Relaxed) + cost;
        let fits = total <= MAX_TEXT;
        if !fits {
            self.end_with(LIMIT);
        }
        fits
    }

    /// Checks whether something has ended the search. This only loads an atomic number.
    pub(super) fn has_ended(&self) -> bool {
        self.ending.load(Ordering::Relaxed) != COMPLETE
    }

    /// Checks the deadline and the cancellation token. Returns true if the search may continue.
    pub(super) fn check(&self) -> bool {
        if self.control.cancel.is_cancelled() {
            self.end_with(CANCELLED);
        } else if Instant::now() >= self.control.deadline {
            self.end_with(DEADLINE);
        }
        !self.has_ended()
    }

    /// Returns the reason why the search ended.
    pub(super) fn ending(&self) -> SearchEnding {
        match self.ending.load(Ordering::Relaxed) {
            COMPLETE => SearchEnding::Complete,
            LIMIT => SearchEnding::Limit,
            DEADLINE => SearchEnding::Deadline,
            _ => SearchEnding::Cancelled,
        }
    }

    /// Reports to the view if the search missed files because of errors, its deadline or a
    /// cancellation. The same search may find these files the next time, without a change that the
    /// view recorded. Results beyond a limit are not reported, since the same limit omits them
    /// again.
    pub(super) fn report_gaps(&self, view: &FileView, skipped: SkipCounts) {
        let is_cut_short =
            matches!(self.ending(), SearchEnding::Deadline | SearchEnding::Cancelled);
        if skipped.unreadable > 0 || is_cut_short {
            view.mark_incomplete();
        }
    }

    fn end_with(&self, reason: u8) {
        let _already_ended =
            self.ending.compare_exchange(COMPLETE, reason, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Returns the CPU time that the calling thread has used.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
