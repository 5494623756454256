//! Limits the records of failed connections.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failed connections of one network that are recorded in each [`PERIOD`]. A program makes such
/// connections without any cost, and the audit log must not grow with each of them.
const MAX_FAILURES: u32 = 60;
const PERIOD: Duration = Duration::from_secs(60);

/// Counts the failed connections of one network.
#[derive(Debug)]
pub(super) struct FailureLimit(Mutex<Period>);

#[derive(Debug)]
struct Period {
    start: Instant,
    failures: u32,
}

impl Default for FailureLimit {
    fn default() -> Self {
        Self(Mutex::new(Period { start: Instant::now(), failures: 0 }))
    }
}

impl FailureLimit {
    /// Counts a failure. Returns whether it is within the limit.
    pub(super) fn count_failure(&self) -> bool {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if period.start.elapsed() >= PERIOD {
            *period = Period { start: Instant::now(), failures: 0 };
        }
        period.failures = period.failures.saturating_add(1);
        period.failures <= MAX_FAILURES
    }
}
