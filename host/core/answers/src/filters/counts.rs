//! Counts how often each filter changed an answer since the host started, and how much it saved.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use toolhold_contract::Confidence;

/// A summary is logged after this number of runs.
const SUMMARY_INTERVAL: u64 = 50;

/// The counts of one filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterCounts {
    /// The number of answers on which the filter ran.
    pub runs: u64,
    /// The number of answers that the filter changed.
    pub changed: u64,
    /// The number of answers on which the filter failed.
    pub failed: u64,
    /// Total bytes of the changed answers, before and after the filter.
    pub bytes: [u64; 2],
    /// The number of changed answers with [`Confidence::Full`].
    pub full: u64,
    /// The number of changed answers with [`Confidence::Partial`].
    pub partial: u64,
    /// The number of changed answers with [`Confidence::Fallback`].
    pub fallback: u64,
}

/// The counts of all filters, by name.
#[derive(Debug, Default)]
pub struct FilterCountTable(Mutex<BTreeMap<String, FilterCounts>>);

impl FilterCountTable {
    pub fn get(&self, filter: &str) -> FilterCounts {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(filter)
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn count_unchanged(&self, filter: &str) {
        self.change(filter, |_| {});
    }

    pub(super) fn count_failure(&self, filter: &str) {
        self.change(filter, |counts| counts.failed += 1);
    }

    /// Counts a change of an answer. `before` and `after` are the lengths in bytes.
    pub(super) fn count_change(
        &self,
        filter: &str,
        before: usize,
        after: usize,
        confidence: Confidence,
    ) {
        self.change(filter, |counts| {
            counts.changed += 1;
            let [bytes_before, bytes_after] = &mut counts.bytes;
            *bytes_before += before as u64;
            *bytes_after += after as u64;
            match confidence {
                Confidence::Full => counts.full += 1,
                Confidence::Partial => counts.partial += 1,
                Confidence::Fallback => counts.fallback += 1,
            }
        });
    }

    /// Counts a run of a filter, and changes the filter's other counts. Logs a summary at regular
    /// intervals.
    fn change(&self, filter: &str, change: impl FnOnce(&mut FilterCounts)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = match all.get_mut(filter) {
            Some(counts) => counts,
            None => all.entry(filter.to_owned()).or_default(),
        };
        counts.runs += 1;
        change(counts);
        if counts.runs % SUMMARY_INTERVAL == 0 {
            let FilterCounts { runs, changed, failed, bytes: [before, after], .. } = *counts;
            tracing::debug!(target: "toolhold::filters", filter, runs, changed, failed, before, after, "so far");
        }
    }
}
