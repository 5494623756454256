//! Decides whether and when a failed call is retried. The caller passes in the time and a random
//! number.

use std::time::Duration;

/// Most doublings of the wait, so that the factor doesn't overflow.
const MAX_DOUBLINGS: u32 = 10;

/// How often and how long a call is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Number of retries after the first try. 0 means no retry.
    pub retries: u32,
    /// Longest wait before the first retry. The wait doubles with each retry.
    pub base: Duration,
    /// Longest wait before any retry.
    pub max: Duration,
    /// Time after the start of the first try within which a retry may start.
    pub budget: Duration,
}

impl Backoff {
    /// Returns the wait before the next retry. Returns `None` if there is no further retry.
    ///
    /// `retried` is the number of retries so far. `spent` is the time since the start of the first
    /// try. `requested` is the shortest wait that the server requests. `random` is an evenly
    /// distributed random number. The number chooses a wait between 0 and the longest wait, so
    /// callers that failed at the same time retry at different times.
    pub fn wait(
        &self,
        retried: u32,
        spent: Duration,
        requested: Option<Duration>,
        random: u64,
    ) -> Option<Duration> {
        if retried >= self.retries {
            return None;
        }
        let factor: u32 = 1 << retried.min(MAX_DOUBLINGS);
        let longest_wait = self.base.saturating_mul(factor).min(self.max);
        let longest_nanos = longest_wait.as_nanos().min(u128::from(u64::MAX));
        // The shift divides by 2^64. `random` is less than 2^64, so the result is less than
        // `longest_nanos` and fits into 64 bits.
        let random_nanos = (longest_nanos * u128::from(random)) >> 64;
        let random_wait = Duration::from_nanos(random_nanos as u64);
        let wait = match requested {
            Some(shortest_wait) => random_wait.max(shortest_wait),
            None => random_wait,
        };

        let next_start = spent.checked_add(wait)?;
        if next_start > self.budget {
            return None;
        }
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);
    const BACKOFF: Backoff = Backoff {
        retries: 20,
        base: Duration::from_millis(500),
        max: Duration::from_secs(5),
        budget: Duration::from_secs(30),
    };

    #[track_caller]
    fn check_longest(retried: u32, expected: Duration) {
        let wait = BACKOFF.wait(retried, Duration::ZERO, None, u64::MAX).expect("a retry is left");
        assert!(wait <= expected && expected - wait < MS, "{wait:?} instead of {expected:?}");
    }

    #[test]
    fn bound_of_wait_doubles_up_to_maximum() {
        for (retried, expected) in
            [(0, 500), (1, 1000), (2, 2000), (3, 4000), (4, 5000), (5, 5000), (19, 5000)]
        {
            check_longest(retried, Duration::from_millis(expected));
        }
    }

    #[test]
    fn random_number_picks_wait_up_to_bound() {
        let wait = |random| BACKOFF.wait(0, Duration::ZERO, None, random);
        assert_eq!(wait(0), Some(Duration::ZERO));
        assert_eq!(wait(1 << 63), Some(250 * MS));
    }

    #[test]
    fn number_of_retries_is_bounded() {
        let twice = Backoff { retries: 2, ..BACKOFF };
        assert!(twice.wait(1, Duration::ZERO, None, 0).is_some());
        assert_eq!(twice.wait(2, Duration::ZERO, None, 0), None);
        assert_eq!(Backoff { retries: 0, ..BACKOFF }.wait(0, Duration::ZERO, None, 0), None);
    }

    #[test]
    fn longer_requested_wait_holds_within_budget() {
        assert_eq!(BACKOFF.wait(0, SECOND, Some(20 * SECOND), u64::MAX), Some(20 * SECOND));
        assert_eq!(BACKOFF.wait(0, SECOND, Some(30 * SECOND), 0), None);
        assert_eq!(BACKOFF.wait(0, SECOND, Some(Duration::MAX), 0), None);
        assert_eq!(BACKOFF.wait(0, SECOND, Some(MS), 1 << 63), Some(250 * MS));
    }

    #[test]
    fn retry_after_budget_is_not_started() {
        assert!(BACKOFF.wait(0, 30 * SECOND, None, 0).is_some());
        assert_eq!(BACKOFF.wait(0, 30 * SECOND, None, 1 << 63), None);
        assert_eq!(BACKOFF.wait(0, 31 * SECOND, None, 0), None);
    }

    #[test]
    fn largest_numbers_do_not_overflow() {
        let huge = Backoff {
            retries: u32::MAX,
            base: Duration::MAX,
            max: Duration::MAX,
            budget: Duration::MAX,
        };
        let wait =
            huge.wait(u32::MAX - 1, Duration::ZERO, None, u64::MAX).expect("a retry is left");
        assert!(wait > Duration::from_secs(500 * 365 * 24 * 3600), "{wait:?}");
        assert_eq!(huge.wait(0, Duration::MAX, Some(MS), 0), None);
    }
}
