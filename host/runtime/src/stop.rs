//! Why the host stops a guest, or doesn't start it, and what it says then.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use berth_contract::{Category, Failure};

/// Why the host stopped a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Timeout = 1,
    Cancelled = 2,
    Cpu = 3,
}

impl Stop {
    pub(crate) fn store(self, into: &AtomicU8) {
        into.store(self as u8, Ordering::Relaxed);
    }

    pub(crate) fn load(stored: &AtomicU8) -> Option<Self> {
        [Self::Timeout, Self::Cancelled, Self::Cpu]
            .into_iter()
            .find(|stop| *stop as u8 == stored.load(Ordering::Relaxed))
    }
}

/// The failure of a guest that the host stopped. `waited`: how much of its time it waited for its
/// place.
pub(crate) fn stopped(stop: Stop, time: Duration, waited: Duration) -> Failure {
    let waited = match waited.as_secs() {
        0 => String::new(),
        waited => format!(", {waited} s of which it waited for other calls,"),
    };
    match stop {
        Stop::Timeout => {
            Failure::new(Category::Timeout, format!("the tool took longer than its {} s{waited} and was stopped", time.as_secs()))
                .with_suggestion("Ask for less at once, or give it more time: a `timeout` argument where it has one, else `[tools] call`.")
        }
        Stop::Cancelled => Failure::new(Category::Cancelled, "the call was cancelled"),
        Stop::Cpu => Failure::new(Category::PermanentFailure, "the tool used up its CPU time and was stopped")
            .with_code("cpu_budget")
            .with_suggestion("Ask for less at once; the bound is `cpu_secs` in [tools.limits]."),
    }
}

/// Too many calls at once: this one waited so long, or was refused at once.
pub(crate) fn busy(waited: Duration) -> Failure {
    let message = match waited.is_zero() {
        true => "too many calls are waiting; this one was not started".to_owned(),
        false => format!(
            "too many calls are running; this one waited {:.1} s and was not started",
            waited.as_secs_f64()
        ),
    };
    let mut failure = Failure::new(Category::RateLimited, message)
        .with_code("busy")
        .with_suggestion("Try again in a moment.");
    failure.retry_after = Some(Duration::from_secs(1));
    failure
}

/// The host's own fault.
pub(crate) fn host_failed() -> Failure {
    Failure::new(Category::PermanentFailure, "the host failed to run the call; its log says more")
        .with_code("host")
}
