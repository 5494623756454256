//! The parts of a request that a call's journey consumes, and the measured time of each step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_answers::Step;
use toolhold_contract::{CancellationToken, Events};

use crate::approvals::Approver;

/// The parts of a request that the journey consumes.
pub(crate) struct CallInputs {
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) events: Arc<dyn Events>,
    pub(crate) cancel: CancellationToken,
}

/// Measures the time of each step.
pub(crate) struct Steps {
    pub(crate) taken: Vec<Step>,
    since: Instant,
}

impl Steps {
    pub(crate) fn begin() -> Self {
        Self { taken: Vec::with_capacity(8), since: Instant::now() }
    }

    /// Ends a step and returns its duration.
    pub(crate) fn finish_step(&mut self, name: &'static str) -> Duration {
        let now = Instant::now();
        let time = now - self.since;
        self.since = now;
        self.taken.push(Step { name, time });
        time
    }
}
