//! How often and after which wait a failed request to a model is sent again, also by the server's
//! `Retry-After`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// How often, and after which wait, a request is sent again that failed before its answer began. A
/// request whose answer has begun is never sent again: it would cost as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRetries {
    /// The most further attempts.
    pub count: u32,
    /// The longest wait before the first of them. Each next one is twice as long.
    pub base: Duration,
    /// The longest wait of all. A provider that asks for a longer one is not asked again.
    pub longest: Duration,
}

impl Default for ModelRetries {
    fn default() -> Self {
        Self { count: 3, base: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

impl ModelRetries {
    /// The wait after a number of attempts, at least one. `None`: there is no further attempt.
    pub(crate) fn wait(&self, attempts: u32, asked: Option<Duration>) -> Option<Duration> {
        if attempts > self.count {
            return None;
        }
        if let Some(asked) = asked {
            // A little later than asked, and not all clients at once.
            let spread = jitter(self.base.min(asked / 4 + Duration::from_millis(50)), random());
            return (asked <= self.longest).then(|| asked + spread);
        }
        let doubled = 2u32.saturating_pow(attempts.saturating_sub(1).min(10));
        let most = self.base.saturating_mul(doubled).min(self.longest);
        Some(jitter(most, random()))
    }
}

/// A part of a time that a number chooses.
fn jitter(most: Duration, random: u64) -> Duration {
    most.mul_f64(random as f64 / u64::MAX as f64)
}

/// Each map has other keys, which the system draws.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// How long a server asks to wait: in milliseconds, in seconds or until a date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(wait) = text_of(headers, "retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(wait / 1000.0).ok();
    }
    let written = text_of(headers, RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(written) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = date(written)?;
    // The server's own clock, so that a wrong one here doesn't matter.
    let now = text_of(headers, DATE.as_str())
        .and_then(date)
        .or_else(|| Timestamp::try_from(SystemTime::now()).ok())?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|it: &f64| it.is_finite() && *it >= 0.0)
}

fn date(text: &str) -> Option<Timestamp> {
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
