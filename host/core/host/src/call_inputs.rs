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
    pub(crate) taken: Vec<Step>,
    since: Instant,
}

impl Steps {
    pub(crate) fn begin() -> Self {
        Self { taken: Vec::with_capacity(8), since: Instant::now() }
    }

    pub(crate) fn finish_step(&mut self, name: &'static str) -> Duration {
        let now = Instant::now();
        let time = now - self.since;
        self.since = now;
        self.taken.push(Step { name, time });
        time
    }
}
