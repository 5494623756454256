//! The inputs of a call that its steps use up, and the time of each step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_answers::Step;
use toolhold_contract::{CancellationToken, Events};

use crate::approvals::Approver;

pub(crate) struct CallInputs {
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) events: Arc<dyn Events>,
    pub(crate) cancel: CancellationToken,
}

pub(crate) struct Steps {
    pub(crate) finished: Vec<Step>,
    /// The start of the current step.
    step_started: Instant,
}

impl Steps {
    pub(crate) fn begin() -> Self {
        Self { finished: Vec::with_capacity(8), step_started: Instant::now() }
    }

    pub(crate) fn finish_step(&mut self, name: &'static str) -> Duration {
        let now = Instant::now();
        let time = now - self.step_started;
        self.step_started = now;
        self.finished.push(Step { name, time });
        time
    }
}
