//! Counts the calls of a plugin, and measures their durations.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Number of buckets for each doubling of the duration. Eight buckets make a percentile exact to an
/// eighth.
const PARTS: usize = 8;

/// Number of doublings, from a microsecond to over an hour.
const DOUBLINGS: usize = 32;

/// Counts the calls of one plugin, from any thread. The counts survive reloads.
#[derive(Debug)]
pub struct Tally {
    calls: AtomicU64,
    failures: AtomicU64,
    /// Number of calls in each bucket.
    times: [AtomicU32; PARTS * DOUBLINGS],
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            times: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl Tally {
    /// Counts one call.
    pub fn count(&self, succeeded: bool, time: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(!succeeded), Ordering::Relaxed);
        self.times[bucket(time)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the number of failed calls.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the percentile of the duration, or `None` if there was no call.
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let counts: Vec<u64> =
            self.times.iter().map(|count| count.load(Ordering::Relaxed).into()).collect();
        let total: u64 = counts.iter().sum();
        // The percentile is the duration of the call with this number, by ascending duration.
        let rank = (total * percent).div_ceil(100).max(1);

        let mut calls_so_far = 0;
        for (index, count) in counts.iter().enumerate() {
            calls_so_far += count;
            if calls_so_far >= rank {
                return Some(upper_bound(index));
            }
        }
        None
    }
}

/// Returns the index of the bucket for a duration. Each doubling has [`PARTS`] buckets, and the
/// last bucket also has all longer durations.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    let doubling = micros.ilog2() as usize;
    // The duration in eighths of the next lower power of two: 8 to 15, so the conversion never
    // fails.
    let eighths = (u128::from(micros) * PARTS as u128) >> doubling;
    let part = usize::try_from(eighths).unwrap_or(PARTS) - PARTS;
    let last_bucket = PARTS * DOUBLINGS - 1;
    (doubling * PARTS + part).min(last_bucket)
}

fn upper_bound(bucket: usize) -> Duration {
    let doubling = bucket / PARTS;
    let part = bucket % PARTS;
    let micros = ((PARTS + part + 1) as u64).saturating_mul(1 << doubling) / PARTS as u64;
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_an_eighth() {
        let tally = Tally::default();
        assert_eq!(tally.percentile(50), None);
        for micros in 1..=1000 {
            tally.count(micros % 10 != 0, Duration::from_micros(micros));
        }
        assert_eq!((tally.calls(), tally.failures()), (1000, 100));
        for (hundredths, exact) in [(50, 500.0), (99, 990.0), (1, 10.0)] {
            let micros = tally.percentile(hundredths).expect("calls were counted");
            let micros = micros.as_secs_f64() * 1e6;
            assert!((exact..=exact * 1.125 + 1.0).contains(&micros), "{hundredths}: {micros}");
        }
    }

    #[test]
    fn every_duration_has_a_bucket() {
        for time in
            [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(86_400), Duration::MAX]
        {
            assert!(bucket(time) < PARTS * DOUBLINGS, "{time:?}");
        }
        let times = (0..40).map(|power| bucket(Duration::from_micros(1 << power)));
        assert!(times.is_sorted());
    }
}
