//! The number of attempts and the waits of a failed request.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// More doublings have no effect, because `longest` limits the wait.
const MAX_DOUBLINGS: u32 = 10;

/// The fixed part of the longest random extra wait.
const FIXED_JITTER: Duration = Duration::from_millis(50);

/// The rules for repeating a request that failed before its answer started. A request isn't
/// repeated after the start of its answer, because a second answer would cost as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRetries {
    /// The most repetitions.
    pub count: u32,
    /// The longest wait before the first repetition. Each further wait is up to twice as long.
    pub base: Duration,
    /// The longest wait. If the provider asks for a longer wait, the request isn't repeated.
    pub longest: Duration,
}

impl Default for ModelRetries {
    fn default() -> Self {
        Self { count: 3, base: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

impl ModelRetries {
    /// Returns the wait before the next attempt, or `None` if the request isn't repeated.
    /// `attempts` is the number of attempts so far, and `requested` is the wait that the server
    /// asks for.
    pub(crate) fn wait(&self, attempts: u32, requested: Option<Duration>) -> Option<Duration> {
        if attempts > self.count {
            return None;
        }
        if let Some(requested) = requested {
            if requested > self.longest {
                return None;
            }
            // With random extra waits, clients don't all return at the same time.
            let max_jitter = self.base.min(requested / 4 + FIXED_JITTER);
            return Some(requested + random_part(max_jitter));
        }
        // Exponential backoff: each attempt doubles the longest wait.
        let doublings = attempts.saturating_sub(1).min(MAX_DOUBLINGS);
        let factor = 2u32.saturating_pow(doublings);
        let max_wait = self.base.saturating_mul(factor).min(self.longest);
        Some(random_part(max_wait))
    }
}

fn random_part(max_wait: Duration) -> Duration {
    // Each hasher has random keys from the operating system.
    let random = RandomState::new().build_hasher().finish();
    max_wait.mul_f64(random as f64 / u64::MAX as f64)
}

/// Returns the wait that the headers of an answer ask for. The headers give milliseconds, seconds
/// or a date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(milliseconds) = header_text(headers, "retry-after-ms").and_then(parse_number) {
        return Duration::try_from_secs_f64(milliseconds / 1000.0).ok();
    }
    let text = header_text(headers, RETRY_AFTER.as_str())?;
    if let Some(seconds) = parse_number(text) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = parse_date(text)?;
    // This machine's clock may be wrong, so the server's clock takes precedence.
    let now = match header_text(headers, DATE.as_str()).and_then(parse_date) {
        Some(now) => now,
        None => Timestamp::try_from(SystemTime::now()).ok()?,
    };
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.trim())
}

fn parse_number(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    if number.is_finite() && number >= 0.0 { Some(number) } else { None }
}

fn parse_date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &[(&'static str, &'static str)]) -> Option<Duration> {
        let pairs = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        retry_after(&pairs.collect())
    }

    #[test]
    fn wait_that_a_server_asks_for_is_read() {
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(asked(&[("retry-after", " 0.5 ")]), Some(Duration::from_millis(500)));
        assert_eq!(
            asked(&[("retry-after-ms", "1500"), ("retry-after", "2")]),
            Some(Duration::from_millis(1500))
        );
        let date = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(
            asked(&[date, ("retry-after", "Wed, 21 Oct 2026 07:29:30 GMT")]),
            Some(Duration::from_secs(90))
        );
        // It is over.
        assert_eq!(
            asked(&[date, ("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT")]),
            Some(Duration::ZERO)
        );
        assert_eq!(
            asked(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]),
            Some(Duration::ZERO)
        );
        for invalid in ["-1", "soon", "NaN", "1e400", ""] {
            assert_eq!(asked(&[("retry-after", invalid)]), None, "{invalid}");
        }
    }

    #[test]
    fn waits_grow_and_are_bounded() {
        let retries = ModelRetries {
            count: 5,
            base: Duration::from_secs(1),
            longest: Duration::from_secs(4),
        };
        for (attempts, most) in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 4)] {
            let all: Vec<Duration> =
                (0..100).filter_map(|_| retries.wait(attempts, None)).collect();
            assert_eq!(all.len(), 100);
            assert!(all.iter().all(|wait| *wait <= Duration::from_secs(most)), "{attempts}");
            assert!(all.iter().any(|wait| *wait > Duration::from_secs(most) / 3), "{attempts}");
        }
        assert_eq!(retries.wait(6, None), None);
        let asked = retries.wait(1, Some(Duration::from_secs(3))).expect("it is short enough");
        assert!((Duration::from_secs(3)..Duration::from_secs(5)).contains(&asked), "{asked:?}");
        assert_eq!(retries.wait(1, Some(Duration::from_secs(5))), None);
    }
}
