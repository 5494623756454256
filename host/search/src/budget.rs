//! What a search may still take, shared by its threads: time, results, text.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::model::{Control, MAX_RESULTS, SearchEnding, SkipCounts};
use berth_system::files::FileView;

/// The most text of one answer. Paths count for every line that names one, as they do once the
/// answer crosses into a guest.
const MAX_TEXT: u64 = 4 << 20;

/// What every result costs beside its text, so that 100 empty lines of context around each match
/// are not free.
const PER_RESULT: usize = 32;

const COMPLETE: u8 = 0;
const LIMIT: u8 = 1;
const DEADLINE: u8 = 2;
const CANCELLED: u8 = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Budget<'c> {
    control: &'c Control,
    limit: u64,
    taken: AtomicU64,
    text: AtomicU64,
    /// The first reason to end; the later ones are consequences.
    end: AtomicU8,
}

impl<'c> Budget<'c> {
    pub(super) fn new(control: &'c Control, limit: u32) -> Self {
        let limit = u64::from(limit.min(MAX_RESULTS));
        Self {
            control,
            limit,
            taken: AtomicU64::new(0),
            text: AtomicU64::new(0),
            end: AtomicU8::new(COMPLETE),
        }
    }

    /// The most threads.
    pub(super) fn threads(&self) -> usize {
        self.control.threads.max(1)
    }

    /// Whether there is room for one more result. Where not, this result is the proof that the
    /// limit left something out.
    pub(super) fn take(&self) -> bool {
        let room = self.taken.fetch_add(1, Ordering::Relaxed) < self.limit;
        if !room {
            self.end_with(LIMIT);
        }
        room
    }

    /// Whether there is room for one more text of `bytes`.
    pub(super) fn charge(&self, bytes: usize) -> bool {
        let bytes = (bytes + PER_RESULT) as u64;
        let room = self.text.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_TEXT;
        if !room {
            self.end_with(LIMIT);
        }
        room
    }

    /// Whether something has ended the search. Costs nothing.
    pub(super) fn has_ended(&self) -> bool {
        self.end.load(Ordering::Relaxed) != COMPLETE
    }

    /// Looks at the clock and at the caller. Whether the search may go on.
    pub(super) fn check(&self) -> bool {
        if self.control.cancel.is_cancelled() {
            self.end_with(CANCELLED);
        } else if Instant::now() >= self.control.deadline {
            self.end_with(DEADLINE);
        }
        !self.has_ended()
    }

    /// Why there is no more.
    pub(super) fn ending(&self) -> SearchEnding {
        match self.end.load(Ordering::Relaxed) {
            COMPLETE => SearchEnding::Complete,
            LIMIT => SearchEnding::Limit,
            DEADLINE => SearchEnding::Deadline,
            _ => SearchEnding::Cancelled,
        }
    }

    /// Tells who watches the view where the search did not come to see what it would have seen:
    /// that may be otherwise the next time, and nothing of it shows. What a limit left out doesn't
    /// belong to the answer.
    pub(super) fn tell(&self, view: &FileView, skipped: SkipCounts) {
        if skipped.unreadable > 0
            || matches!(self.ending(), SearchEnding::Deadline | SearchEnding::Cancelled)
        {
            view.lost_sight();
        }
    }

    fn end_with(&self, reason: u8) {
        let _already_ended =
            self.end.compare_exchange(COMPLETE, reason, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The CPU time that the calling thread has used.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
