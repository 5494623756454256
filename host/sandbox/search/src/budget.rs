//! Ends a search on all of its threads when it reaches a limit of time, results or text.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::model::{Control, MAX_RESULTS, SearchEnding, SkipCounts};
use toolhold_system::files::FileView;

/// Bytes of text in one answer. The path counts for each line, because an answer for a guest
/// repeats it in each line.
const MAX_TEXT: u64 = 4 << 20;

/// Bytes that each result counts for besides its text. Without them, 100 empty lines of context
/// around each match would be free.
const BYTES_PER_RESULT: usize = 32;

const COMPLETE: u8 = 0;
const LIMIT: u8 = 1;
const DEADLINE: u8 = 2;
const CANCELLED: u8 = 3;

#[derive(Debug)]
pub(super) struct Budget<'c> {
    control: &'c Control,
    limit: u64,
    results: AtomicU64,
    text_bytes: AtomicU64,
    /// The first reason to end. Later reasons are only consequences of it.
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

    pub(super) fn threads(&self) -> usize {
        self.control.threads.max(1)
    }

    /// Counts a result. Returns whether the result is within the limit. If not, the search ends as
    /// incomplete.
    pub(super) fn add_result(&self) -> bool {
        let results_before = self.results.fetch_add(1, Ordering::Relaxed);
        let is_within_limit = results_before < self.limit;
        if !is_within_limit {
            self.end_with(LIMIT);
        }
        is_within_limit
    }

    /// Counts `bytes` of text. Returns whether the text is within the limit. If not, the search
    /// ends as incomplete.
    pub(super) fn add_text(&self, bytes: usize) -> bool {
        let cost = (bytes + BYTES_PER_RESULT) as u64;
        let total = self.text_bytes.fetch_add(cost, Ordering::Relaxed) + cost;
        let is_within_limit = total <= MAX_TEXT;
        if !is_within_limit {
            self.end_with(LIMIT);
        }
        is_within_limit
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ending.load(Ordering::Relaxed) != COMPLETE
    }

    /// Checks the deadline and the cancellation token. Returns whether the search may continue.
    pub(super) fn check(&self) -> bool {
        if self.control.cancel.is_cancelled() {
            self.end_with(CANCELLED);
        } else if Instant::now() >= self.control.deadline {
            self.end_with(DEADLINE);
        }
        !self.has_ended()
    }

    pub(super) fn ending(&self) -> SearchEnding {
        match self.ending.load(Ordering::Relaxed) {
            COMPLETE => SearchEnding::Complete,
            LIMIT => SearchEnding::Limit,
            DEADLINE => SearchEnding::Deadline,
            // The only other value is `CANCELLED`.
            _ => SearchEnding::Cancelled,
        }
    }

    /// Marks the view as incomplete if the search missed files because of an error, its deadline or
    /// a cancellation. A repeated search may find these files although no recorded file has
    /// changed. Results beyond a limit don't make the view incomplete, because a repeated search
    /// misses them again.
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

pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
