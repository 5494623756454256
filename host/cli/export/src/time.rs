//! Parses and converts times.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::Date;

use crate::error::ExportError;

/// The most bytes of a wrong time in an error.
const MAX_SHOWN: usize = 100;

/// Parses a time, or an age such as `24h`.
pub(crate) fn parse_since(text: &str, now: SystemTime) -> Result<SystemTime, ExportError> {
    if let Some(age) = parse_age(text) {
        let moment = now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        return Ok(moment.max(SystemTime::UNIX_EPOCH));
    }
    parse_moment(text).ok_or_else(|| {
        let shown = toolhold_core::text::neutral_line(toolhold_core::text::cut(text, MAX_SHOWN));
        ExportError::Usage(format!(
            "--since {shown}: use a time such as 2026-03-01T12:00:00Z or 2026-03-01 (UTC), or a \
             time ago such as 90m, 24h, 7d"
        ))
    })
}

fn parse_age(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return None,
    };
    let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(Duration::from_secs(count.checked_mul(seconds)?))
}

fn parse_moment(text: &str) -> Option<SystemTime> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(from_timestamp(moment));
    }
    // A date stands for the start of the day.
    let date = text.parse::<Date>().ok()?;
    let moment = format!("{date}T00:00:00Z").parse::<Timestamp>().ok()?;
    Some(from_timestamp(moment))
}

/// A time before 1970 becomes 1970.
pub(crate) fn from_timestamp(moment: Timestamp) -> SystemTime {
    let nanos = u64::try_from(moment.as_nanosecond()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
}

pub(crate) fn nanos(moment: SystemTime) -> u64 {
    moment
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_takes_times_dates_and_times_ago() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let seconds = |text: &str| {
            let moment = parse_since(text, now).expect("it is a time");
            moment.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
        };
        assert_eq!(seconds("90m"), 1_000_000 - 5400);
        assert_eq!(seconds("2d"), 1_000_000 - 172_800);
        assert_eq!(seconds("99999999d"), 0);
        assert_eq!(seconds("1970-01-02"), 86400);
        assert_eq!(seconds("1970-01-01T01:00:00+01:00"), 0);
        for wrong in ["", "d", "-5m", "5", "tomorrow", "2026-13-01", "18446744073709551615d", "é"]
        {
            let error = parse_since(wrong, now).expect_err(wrong);
            assert!(error.to_string().contains("7d"), "{error}");
        }
    }
}
