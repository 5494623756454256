//! Limits the calls of one session: all calls, and acting calls within one hour.
//!
//! The caller provides the clock and the counters. It must change the counters in one step, so that
//! two simultaneous calls can't both take the last place.

use std::collections::VecDeque;
use std::time::Duration;

const HOUR_MILLIS: u64 = 3_600_000;

/// The limits. 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaBounds {
    /// Calls of one session. A retried call counts once.
    pub calls: u64,
    /// Acting calls of one session within any 60 minutes.
    pub acting_per_hour: u64,
}

/// Calls of a session so far.
#[derive(Debug)]
pub struct QuotaCounts<'a> {
    /// Number of calls.
    pub calls: &'a mut u64,
    /// Times of acting calls in milliseconds, the earliest first.
    pub acted: &'a mut VecDeque<u64>,
}

/// A call that was counted. The caller releases it if the call doesn't run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPlace {
    /// Whether the call is in [`QuotaCounts::calls`].
    counted: bool,
    /// The time of the call in [`QuotaCounts::acted`].
    acted_at: Option<u64>,
}

/// A limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaLimit {
    /// The session has used all its calls.
    Quota,
    /// The session has used all its acting calls in the last hour.
    Rate {
        /// Time until the next acting call is possible.
        again_after: Duration,
    },
}

impl QuotaBounds {
    /// Checks whether a limit applies to a call.
    pub fn concern(&self, acts: bool) -> bool {
        self.calls > 0 || (acts && self.acting_per_hour > 0)
    }

    /// Counts a call at the time `now`, in milliseconds. If one limit is reached, the call isn't
    /// counted at all. `acts` means that the call isn't read-only, so the limit for each hour
    /// applies too.
    ///
    /// # Errors
    ///
    /// Returns the limit that is reached. If both limits are reached, returns the quota, because
    /// waiting doesn't free the quota.
    pub fn take(
        &self,
        counts: &mut QuotaCounts<'_>,
        acts: bool,
        now: u64,
    ) -> Result<QuotaPlace, QuotaLimit> {
        let has_quota = self.calls > 0;
        if has_quota && *counts.calls >= self.calls {
            return Err(QuotaLimit::Quota);
        }
        let is_rated = acts && self.acting_per_hour > 0;
        if is_rated {
            drop_expired(counts.acted, now);
            if let Some(again_after) = self.wait_for_rate(counts.acted, now) {
                return Err(QuotaLimit::Rate { again_after });
            }
            counts.acted.push_back(now);
        }
        if has_quota {
            *counts.calls += 1;
        }
        let acted_at = if is_rated { Some(now) } else { None };
        Ok(QuotaPlace { counted: has_quota, acted_at })
    }

    /// Returns the time until the next acting call is possible. Returns `None` if an acting call is
    /// possible now. The limit for each hour must not be 0.
    fn wait_for_rate(&self, acted: &VecDeque<u64>, now: u64) -> Option<Duration> {
        let limit = usize::try_from(self.acting_per_hour).unwrap_or(usize::MAX);
        // If the limit was lowered, several calls have to expire first.
        let last_to_expire = acted.len().checked_sub(limit)?;
        let wait = (acted[last_to_expire] + HOUR_MILLIS).saturating_sub(now);
        Some(Duration::from_millis(wait))
    }
}

impl QuotaPlace {
    /// Takes the call out of the counts, as if the call had never been counted.
    pub fn release(self, counts: &mut QuotaCounts<'_>) {
        if self.counted {
            *counts.calls = counts.calls.saturating_sub(1);
        }
        if let Some(acted_at) = self.acted_at
            && let Some(index) = counts.acted.iter().rposition(|known| *known == acted_at)
        {
            counts.acted.remove(index);
        }
    }
}

/// Removes times that are more than an hour old. A time in the future, from a wrong clock, becomes
/// `now`, so that no call waits longer than an hour.
fn drop_expired(acted: &mut VecDeque<u64>, now: u64) {
    acted.iter_mut().for_each(|at| *at = (*at).min(now));
    acted.retain(|at| now - *at < HOUR_MILLIS);
    acted.make_contiguous().sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session whose calls are counted.
    #[derive(Default)]
    struct Session {
        calls: u64,
        acted: VecDeque<u64>,
    }

    impl Session {
        fn take(
            &mut self,
            bounds: QuotaBounds,
            acts: bool,
            now: u64,
        ) -> Result<QuotaPlace, QuotaLimit> {
            bounds.take(
                &mut QuotaCounts { calls: &mut self.calls, acted: &mut self.acted },
                acts,
                now,
            )
        }

        fn release(&mut self, place: QuotaPlace) {
            place.release(&mut QuotaCounts { calls: &mut self.calls, acted: &mut self.acted });
        }
    }

    fn bounds(calls: u64, acting_per_hour: u64) -> QuotaBounds {
        QuotaBounds { calls, acting_per_hour }
    }

    fn rate(milliseconds: u64) -> QuotaLimit {
        QuotaLimit::Rate { again_after: Duration::from_millis(milliseconds) }
    }

    #[test]
    fn nothing_is_counted_without_bounds() {
        let mut session = Session::default();
        for now in 0..100 {
            session.take(bounds(0, 0), true, now).expect("there is no bound");
        }
        assert_eq!((session.calls, session.acted.len()), (0, 0));
        assert!(
            !bounds(0, 0).concern(true)
                && !bounds(0, 5).concern(false)
                && bounds(0, 5).concern(true)
                && bounds(5, 0).concern(false)
        );
    }

    #[test]
    fn quota_counts_every_call_and_never_expires() {
        let mut session = Session::default();
        for acts in [true, false, true] {
            session.take(bounds(3, 0), acts, 0).expect("a place is free");
        }
        for now in [0, HOUR_MILLIS, 1000 * HOUR_MILLIS] {
            assert_eq!(session.take(bounds(3, 0), false, now), Err(QuotaLimit::Quota));
        }
        assert_eq!(session.calls, 3, "a refused call is not counted");
    }

    #[test]
    fn rate_counts_last_sixty_minutes() {
        let mut session = Session::default();
        let most = bounds(0, 2);
        session.take(most, true, 1_000).expect("the first");
        session.take(most, true, 5_000).expect("the second");
        assert_eq!(session.take(most, true, 6_000), Err(rate(HOUR_MILLIS - 5_000)));
        session.take(most, false, 6_000).expect("reading is not bounded");
        assert_eq!(session.take(most, true, 1_000 + HOUR_MILLIS - 1), Err(rate(1)));
        session.take(most, true, 1_000 + HOUR_MILLIS).expect("the first is an hour ago");
        assert_eq!(session.take(most, true, 1_000 + HOUR_MILLIS), Err(rate(4_000)));
        assert_eq!(session.acted, [5_000, 1_000 + HOUR_MILLIS]);
    }

    #[test]
    fn lowered_bound_refuses_until_enough_calls_expire() {
        let mut session = Session::default();
        for now in [10, 20, 30] {
            session.take(bounds(0, 3), true, now).expect("a place is free");
        }
        assert_eq!(session.take(bounds(0, 1), true, 40), Err(rate(HOUR_MILLIS - 10)));
        assert_eq!(session.take(bounds(0, 1), true, 20 + HOUR_MILLIS), Err(rate(10)));
        session.take(bounds(0, 1), true, 30 + HOUR_MILLIS).expect("all calls are expired");
    }

    #[test]
    fn call_that_does_not_run_releases_its_place() {
        let mut session = Session::default();
        let most = bounds(1, 1);
        let place = session.take(most, true, 7).expect("a place is free");
        assert_eq!(session.take(most, true, 8), Err(QuotaLimit::Quota));
        session.release(place);
        assert_eq!((session.calls, session.acted.len()), (0, 0));
        session.take(most, true, 9).expect("the place is free again");
    }

    #[test]
    fn call_refused_by_one_bound_is_not_counted_by_other() {
        let mut session = Session::default();
        session.take(bounds(9, 1), true, 0).expect("a place is free");
        assert_eq!(session.take(bounds(9, 1), true, 1), Err(rate(HOUR_MILLIS - 1)));
        assert_eq!((session.calls, session.acted.len()), (1, 1));
        assert_eq!(session.take(bounds(1, 9), true, 1), Err(QuotaLimit::Quota));
        assert_eq!((session.calls, session.acted.len()), (1, 1));
    }

    #[test]
    fn clock_set_back_delays_calls_by_one_hour_at_most() {
        let mut session =
            Session { acted: [900 * HOUR_MILLIS, 901 * HOUR_MILLIS].into(), ..Session::default() };
        assert_eq!(session.take(bounds(0, 2), true, HOUR_MILLIS), Err(rate(HOUR_MILLIS)));
        session.take(bounds(0, 2), true, 2 * HOUR_MILLIS).expect("an hour has passed");
    }
}
