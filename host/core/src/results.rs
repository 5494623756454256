//! Answers that may serve again: of tools that only read, as long as everything that an answer was made of is unchanged.

use berth_contract::{Outcome, Output, Report};

use crate::facts::Facts;

/// Keeps and finds answers, each for its session.
#[derive(Debug, Default)]
pub(crate) struct Results;

impl Results {
    /// The report for a call: one that watches what the call looks at, where its answer may be kept.
    pub(crate) fn report(&self, _facts: &Facts) -> Report {
        Report::default()
    }

    /// An answer that is provably still true.
    pub(crate) fn find(&self, _facts: &Facts) -> Option<Output> {
        None
    }

    /// Keeps an answer, where that is worth it.
    pub(crate) fn keep(&self, _facts: &Facts, _outcome: &Outcome) {}
}
