//! Hosts that programs want to reach while their call runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{BoxFuture, Denial};

/// A host that a program wants to reach, and that no entry of the configuration grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedHost {
    /// The entry of `hosts` that would grant the connection, such as `registry.example.org`.
    pub entry: String,
    /// The name of the program, as one short line. The program can choose it.
    pub program: String,
}

/// Decides on hosts that no entry grants, while a call runs.
pub trait HostApprover: fmt::Debug + Send + Sync + 'static {
    /// Decides on a host for the rest of the call. Waits while a person is asked.
    ///
    /// # Errors
    ///
    /// Returns the denial.
    fn approve(&self, wanted: WantedHost) -> BoxFuture<'_, Result<(), Denial>>;
}

/// Measures how long a call waits for a person. Waits at the same time count once.
#[derive(Debug, Default)]
pub struct WaitClock(Mutex<Waits>);

#[derive(Debug, Default)]
struct Waits {
    /// The duration of all ended waits.
    before: Duration,
    /// The start of the current wait.
    since: Option<Instant>,
    /// The number of open waits.
    open: usize,
}

/// An open wait, which ends when this value is dropped.
#[derive(Debug)]
pub struct OpenWait(Arc<WaitClock>);

impl WaitClock {
    /// Starts a wait.
    pub fn start(self: &Arc<Self>) -> OpenWait {
        let mut waits = self.waits();
        waits.open += 1;
        waits.since.get_or_insert_with(Instant::now);
        drop(waits);
        OpenWait(Arc::clone(self))
    }

    /// Returns the duration of all waits, including the current wait.
    pub fn total(&self) -> Duration {
        let waits = self.waits();
        waits.before + waits.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        let mut waits = self.0.waits();
        waits.open -= 1;
        if waits.open == 0
            && let Some(since) = waits.since.take()
        {
            waits.before += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_at_the_same_time_count_once_and_the_total_stays_afterwards() {
        let clock = Arc::new(WaitClock::default());
        assert_eq!(clock.total(), Duration::ZERO);
        let started = Instant::now();
        let (first, second) = (clock.start(), clock.start());
        while clock.total().is_zero() {
            std::hint::spin_loop();
        }
        drop(first);
        let during = clock.total();
        drop(second);
        let after = clock.total();
        assert!(during <= after && after <= started.elapsed(), "{during:?}, {after:?}");
        assert_eq!(clock.total(), after);
    }
}
