//! How much one session may do: calls altogether, and acting calls in any one hour.
//!
//! The clock and the counters are the caller's, who changes them at a stroke: two calls can't both
//! get the last place.

use std::collections::VecDeque;
use std::time::Duration;

/// How long an acting call counts, in milliseconds.
const HOUR: u64 = 3_600_000;

/// The bounds. 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaBounds {
    /// Calls of one session, each counted once, however often it is tried.
    pub calls: u64,
    /// Acting calls of one session within an hour, whenever it begins.
    pub acting_per_hour: u64,
}

/// What a session has done so far.
#[derive(Debug)]
pub struct QuotaCounts<'a> {
    /// Calls.
    pub calls: &'a mut u64,
    /// When calls ran that act, in milliseconds of some clock, the earliest first.
    pub acted: &'a mut VecDeque<u64>,
}

/// A place that a call has taken, to be given back if it doesn't run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPlace {
    counted: bool,
    acted: Option<u64>,
}

/// A bound that leaves no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaLimit {
    /// The session has made all its calls.
    Quota,
    /// There were as many acting calls within the last hour as may be.
    Rate {
        /// After which time the next one finds a place.
        again_after: Duration,
    },
}

impl QuotaBounds {
    /// Whether a call has to be counted at all.
    pub fn concern(&self, acts: bool) -> bool {
        self.calls > 0 || (acts && self.acting_per_hour > 0)
    }

    /// Takes a place for a call at `now`, by the clock of `counts`. Where one bound leaves none,
    /// nothing is counted against the other.
    ///
    /// # Errors
    ///
    /// The bound that is reached; the quota first, since waiting doesn't help there.
    pub fn take(
        &self,
        counts: &mut QuotaCounts<'_>,
        acts: bool,
        now: u64,
    ) -> Result<QuotaPlace, QuotaLimit> {
        if self.calls > 0 && *counts.calls >= self.calls {
            return Err(QuotaLimit::Quota);
        }
        let rated = acts && self.acting_per_hour > 0;
        if rated {
            forget(counts.acted, now);
            let most = usize::try_from(self.acting_per_hour).unwrap_or(usize::MAX);
            // The bound may have been lowered since: then more than one has to end first.
            if let Some(above) = counts.acted.len().checked_sub(most) {
                let ends =
                    counts.acted.get(above).map_or(HOUR, |at| (at + HOUR).saturating_sub(now));
                return Err(QuotaLimit::Rate { again_after: Duration::from_millis(ends) });
            }
            counts.acted.push_back(now);
        }
        let counted = self.calls > 0;
        if counted {
            *counts.calls += 1;
        }
        Ok(QuotaPlace { counted, acted: rated.then_some(now) })
    }
}

impl QuotaPlace {
    /// Gives the place back.
    pub fn give_back(self, counts: &mut QuotaCounts<'_>) {
        if self.counted {
            *counts.calls = counts.calls.saturating_sub(1);
        }
        if let Some(index) =
            self.acted.and_then(|at| counts.acted.iter().rposition(|known| *known == at))
        {
            counts.acted.remove(index);
        }
    }
}

/// Drops what is over. What lies in the future was written under a wrong clock; it counts from now
/// on, so that nobody waits for longer than an hour.
fn forget(acted: &mut VecDeque<u64>, now: u64) {
    acted.iter_mut().for_each(|at| *at = (*at).min(now));
    acted.retain(|at| now - *at < HOUR);
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

        fn give_back(&mut self, place: QuotaPlace) {
            place.give_back(&mut QuotaCounts { calls: &mut self.calls, acted: &mut self.acted });
        }
    }

    fn bounds(calls: u64, acting_per_hour: u64) -> QuotaBounds {
        QuotaBounds { calls, acting_per_hour }
    }

    fn rate(milliseconds: u64) -> QuotaLimit {
        QuotaLimit::Rate { again_after: Duration::from_millis(milliseconds) }
    }

    #[test]
    fn without_bounds_nothing_is_counted() {
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
    fn a_quota_counts_every_call_and_never_ends() {
        let mut session = Session::default();
        for acts in [true, false, true] {
            session.take(bounds(3, 0), acts, 0).expect("there is a place");
        }
        for now in [0, HOUR, 1000 * HOUR] {
            assert_eq!(session.take(bounds(3, 0), false, now), Err(QuotaLimit::Quota));
        }
        assert_eq!(session.calls, 3, "a refused call is not counted");
    }

    #[test]
    fn an_hour_slides() {
        let mut session = Session::default();
        let most = bounds(0, 2);
        session.take(most, true, 1_000).expect("the first");
        session.take(most, true, 5_000).expect("the second");
        assert_eq!(session.take(most, true, 6_000), Err(rate(HOUR - 5_000)));
        session.take(most, false, 6_000).expect("reading is not bounded");
        assert_eq!(session.take(most, true, 1_000 + HOUR - 1), Err(rate(1)));
        session.take(most, true, 1_000 + HOUR).expect("the first is an hour ago");
        assert_eq!(session.take(most, true, 1_000 + HOUR), Err(rate(4_000)));
        assert_eq!(session.acted, [5_000, 1_000 + HOUR]);
    }

    #[test]
    fn a_bound_that_was_lowered_waits_until_it_holds() {
        let mut session = Session::default();
        for now in [10, 20, 30] {
            session.take(bounds(0, 3), true, now).expect("there is a place");
        }
        assert_eq!(session.take(bounds(0, 1), true, 40), Err(rate(HOUR - 10)));
        assert_eq!(session.take(bounds(0, 1), true, 20 + HOUR), Err(rate(10)));
        session.take(bounds(0, 1), true, 30 + HOUR).expect("all are over");
    }

    #[test]
    fn a_call_that_does_not_run_gives_its_place_back() {
        let mut session = Session::default();
        let most = bounds(1, 1);
        let place = session.take(most, true, 7).expect("there is a place");
        assert_eq!(session.take(most, true, 8), Err(QuotaLimit::Quota));
        session.give_back(place);
        assert_eq!((session.calls, session.acted.len()), (0, 0));
        session.take(most, true, 9).expect("there is a place again");
    }

    #[test]
    fn one_bound_that_is_reached_takes_nothing_from_the_other() {
        let mut session = Session::default();
        session.take(bounds(9, 1), true, 0).expect("there is a place");
        assert_eq!(session.take(bounds(9, 1), true, 1), Err(rate(HOUR - 1)));
        assert_eq!((session.calls, session.acted.len()), (1, 1));
        assert_eq!(session.take(bounds(1, 9), true, 1), Err(QuotaLimit::Quota));
        assert_eq!((session.calls, session.acted.len()), (1, 1));
    }

    #[test]
    fn a_clock_that_went_back_holds_nobody_up_for_more_than_an_hour() {
        let mut session = Session { acted: [900 * HOUR, 901 * HOUR].into(), ..Session::default() };
        assert_eq!(session.take(bounds(0, 2), true, HOUR), Err(rate(HOUR)));
        session.take(bounds(0, 2), true, 2 * HOUR).expect("an hour has passed");
    }
}
