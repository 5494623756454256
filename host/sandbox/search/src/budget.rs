//! Ends a search at its limits of time, results or text, over all of its threads.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::model::{Control, MAX_RESULTS, SearchEnding, SkipCounts};
use toolhold_system::files::FileView;

/// The most bytes of text in one answer. A path counts once for each line that names it, because
/// the answer copies it for each line when it goes to a guest.
const MAX_TEXT: u64 = 4 << 20;

/// Bytes that count for each result beside its text. Without them, 100 empty lines of context
/// around each match would count as nothing.
const PER_RESULT: usize = 32;

const COMPLETE: u8 = 0;
const LIMIT: u8 = 1;
const DEADLINE: u8 = 2;
const CANCELLED: u8 = 3;

/// The limits of one search, and what it has used of them.
#[derive(Debug)]
pub(super) struct Budget<'c> {
    control: &'c Control,
    limit: u64,
    results: AtomicU64,
    text_bytes: AtomicU64,
    /// The first reason to end. Later reasons are consequences of it, so they are not stored.
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

    /// Counts one more result. Returns false if the limit doesn't allow it; the search then ends,
    /// since this result shows that the limit leaves something out.
    pub(super) fn add_result(&self) -> bool {
        let results_before = self.results.fetch_add(1, Ordering::Relaxed);
        let fits = results_before < self.limit;
        if !fits {
            self.end_with(LIMIT);
        }
        fits
    }

    /// Counts `bytes` more of text. Returns false if the limit doesn't allow it; the search then
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

    /// Checks the deadline and the cancellation token. Returns whether the search may go on.
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

    /// Tells the view if the search missed files that it should have read. The same search may find
    /// them the next time, though nothing that the view recorded has changed. Results that a limit
    /// left out are no such gap: the same limit leaves them out again.
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
