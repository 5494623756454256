//! The time in which a person is asked, which doesn't count as the task's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use berth_core::{Approver, BoxFuture, Inquiry, InquiryAnswer, Question, Reply};

/// An approver that measures how long it waits.
pub(crate) struct MeasuringApprover {
    approver: Arc<dyn Approver>,
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    open: usize,
    since: Option<Instant>,
    waited: Duration,
}

impl MeasuringApprover {
    pub(crate) fn new(approver: Arc<dyn Approver>) -> Self {
        Self { approver, waits: Mutex::default() }
    }

    /// How long a person has been asked so far.
    pub(crate) fn waited(&self) -> Duration {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.waited + waits.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn begin(&self) -> OpenWait<'_> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.open += 1;
        waits.since.get_or_insert_with(Instant::now);
        OpenWait(self)
    }
}

/// An open question, until it is dropped.
struct OpenWait<'a>(&'a MeasuringApprover);

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.open -= 1;
        if waits.open == 0
            && let Some(since) = waits.since.take()
        {
            waits.waited += since.elapsed();
        }
    }
}

impl Approver for MeasuringApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let _wait = self.begin();
            self.approver.ask(question).await
        })
    }

    fn waits(&self) -> bool {
        self.approver.waits()
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(async move {
            let _wait = self.begin();
            self.approver.inquire(inquiry).await
        })
    }
}
