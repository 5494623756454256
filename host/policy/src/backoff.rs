//! When a call that failed is tried again. Time and chance are passed in.

use std::time::Duration;

/// From the eleventh time on, the wait grows no more, whatever its bound is.
const MAX_DOUBLINGS: u32 = 10;

/// How often and how long a call is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// How often it is tried again, beside the first time. 0: never.
    pub retries: u32,
    /// The longest wait before it is tried again for the first time; it doubles each time.
    pub base: Duration,
    /// The longest wait before any time.
    pub max: Duration,
    /// Nothing is tried later than so long after the first time began.
    pub budget: Duration,
}

impl Backoff {
    /// How long to wait before the call is tried again. `None`: it is not.
    ///
    /// `retried` is how often it was already, `spent` the time since it began, and `asked` the
    /// least wait that the other side asks for. `random` is any number, all of them equally likely:
    /// the wait is anything up to its bound, so that those who were refused together don't come
    /// back together.
    pub fn wait(
        &self,
        retried: u32,
        spent: Duration,
        asked: Option<Duration>,
        random: u64,
    ) -> Option<Duration> {
        if retried >= self.retries {
            return None;
        }
        let bound = self.base.saturating_mul(1 << retried.min(MAX_DOUBLINGS)).min(self.max);
        // Of the bound's nanoseconds the share that `random` is of all numbers; below the bound, so
        // it fits.
        let nanos = (bound.as_nanos().min(u128::from(u64::MAX)) * u128::from(random)) >> 64;
        let wait = Duration::from_nanos(nanos as u64).max(asked.unwrap_or_default());
        let begins = spent.checked_add(wait)?;
        (begins <= self.budget).then_some(wait)
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
    fn longest(retried: u32, expected: Duration) {
        let wait =
            BACKOFF.wait(retried, Duration::ZERO, None, u64::MAX).expect("it is tried again");
        assert!(wait <= expected && expected - wait < MS, "{wait:?} instead of {expected:?}");
    }

    #[test]
    fn the_bound_of_the_wait_doubles_up_to_its_own_bound() {
        for (retried, expected) in
            [(0, 500), (1, 1000), (2, 2000), (3, 4000), (4, 5000), (5, 5000), (19, 5000)]
        {
            longest(retried, Duration::from_millis(expected));
        }
    }

    #[test]
    fn the_wait_is_anything_up_to_its_bound() {
        let wait = |random| BACKOFF.wait(0, Duration::ZERO, None, random);
        assert_eq!(wait(0), Some(Duration::ZERO));
        assert_eq!(wait(1 << 63), Some(250 * MS));
    }

    #[test]
    fn it_is_tried_as_often_as_that_is_allowed() {
        let twice = Backoff { retries: 2, ..BACKOFF };
        assert!(twice.wait(1, Duration::ZERO, None, 0).is_some());
        assert_eq!(twice.wait(2, Duration::ZERO, None, 0), None);
        assert_eq!(Backoff { retries: 0, ..BACKOFF }.wait(0, Duration::ZERO, None, 0), None);
    }

    #[test]
    fn who_asks_for_a_longer_wait_gets_it_within_the_budget() {
        assert_eq!(BACKOFF.wait(0, SECOND, Some(20 * SECOND), u64::MAX), Some(20 * SECOND));
        assert_eq!(BACKOFF.wait(0, SECOND, Some(30 * SECOND), 0), None);
        assert_eq!(BACKOFF.wait(0, SECOND, Some(Duration::MAX), 0), None);
        assert_eq!(BACKOFF.wait(0, SECOND, Some(MS), 1 << 63), Some(250 * MS));
    }

    #[test]
    fn nothing_begins_after_the_budget() {
        assert!(BACKOFF.wait(0, 30 * SECOND, None, 0).is_some());
        assert_eq!(BACKOFF.wait(0, 30 * SECOND, None, 1 << 63), None);
        assert_eq!(BACKOFF.wait(0, 31 * SECOND, None, 0), None);
    }

    #[test]
    fn no_number_is_too_large() {
        let huge = Backoff {
            retries: u32::MAX,
            base: Duration::MAX,
            max: Duration::MAX,
            budget: Duration::MAX,
        };
        let wait =
            huge.wait(u32::MAX - 1, Duration::ZERO, None, u64::MAX).expect("it is tried again");
        assert!(wait > Duration::from_secs(500 * 365 * 24 * 3600), "{wait:?}");
        assert_eq!(huge.wait(0, Duration::MAX, Some(MS), 0), None);
    }
}
