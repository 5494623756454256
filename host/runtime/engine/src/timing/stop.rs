//! Makes the failures of guests that the host stopped or didn't start.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use toolhold_contract::{Category, Failure};
use toolhold_policy::OwnTable;

/// The reason why the host stopped a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The guest reached its time limit.
    Timeout = 1,
    /// The caller cancelled the call.
    Cancelled = 2,
    /// The guest reached its limit of processor time.
    Cpu = 3,
}

impl StopReason {
    pub(crate) fn store(self, into: &AtomicU8) {
        into.store(self as u8, Ordering::Relaxed);
    }

    pub(crate) fn load(stored: &AtomicU8) -> Option<Self> {
        let value = stored.load(Ordering::Relaxed);
        [Self::Timeout, Self::Cancelled, Self::Cpu].into_iter().find(|stop| *stop as u8 == value)
    }
}

/// Makes the failure of a stopped guest. The call waited for its slot during `waited` of its
/// `time`. `table` is the configuration table of the limits.
pub(crate) fn failure(
    stop: StopReason,
    time: Duration,
    waited: Duration,
    table: &OwnTable,
) -> Failure {
    let waiting_note = match waited.as_secs() {
        0 => String::new(),
        secs => format!(" (including {secs} s of waiting for other calls)"),
    };
    match stop {
        StopReason::Timeout => {
            Failure::new(Category::Timeout, format!("the tool took longer than its limit of {} s{waiting_note} and was stopped", time.as_secs()))
                .with_suggestion(format!(
                    "Ask for less at once, or give the call more time: with the `timeout` argument if the tool has one, else with `call` in [tools] of {}.",
                    table.place.file
                ))
        }
        StopReason::Cancelled => Failure::new(Category::Cancelled, "the call was cancelled"),
        StopReason::Cpu => Failure::new(Category::PermanentFailure, "the tool used up its CPU time and was stopped")
            .with_code("cpu_budget")
            .with_suggestion(limit_suggestion("cpu_secs", table)),
    }
}

/// Returns the remedy for a limit, which is `key` in `table`.
pub fn limit_suggestion(key: &str, table: &OwnTable) -> String {
    format!("Ask for less at once. To raise the limit, set `{key}` in {table}.")
}

/// Makes the failure of a call that got no slot. `waited` is zero if the call was refused at once.
pub fn busy(waited: Duration) -> Failure {
    let message = if waited.is_zero() {
        "too many calls are waiting; this call was not started".to_owned()
    } else {
        format!(
            "too many calls are running; this call waited {:.1} s and was not started",
            waited.as_secs_f64()
        )
    };
    let mut failure = Failure::new(Category::RateLimited, message)
        .with_code("busy")
        .with_suggestion("Try again in a moment.");
    let one_second = Duration::from_secs(1);
    failure.retry_after = Some(one_second);
    failure
}

/// Makes the failure of a call because of an error in the host.
pub fn host_failed() -> Failure {
    Failure::new(Category::PermanentFailure, "the host failed to run the call; see its log")
        .with_code("host")
}
