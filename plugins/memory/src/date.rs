//! Converts dates: seconds since 1970 and RFC 3339, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use toolhold_sdk::Failure;

const DAY: i64 = 86_400;

/// Now, in seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The day of a time: `2026-11-26`.
pub(crate) fn day(seconds: i64) -> String {
    // Howard Hinnant's algorithm, for days since 1970.
    let days = seconds.div_euclid(DAY) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = (shifted + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The time of a text: a day, or a time of RFC 3339. `ends`: whether a day means its end.
///
/// # Errors
///
/// The text has another form.
pub(crate) fn parse(name: &str, text: &str, ends: bool) -> Result<i64, Failure> {
    parse_text(text.trim(), ends).ok_or_else(|| {
        Failure::invalid(format!(
            "{name} is {text:?}; it has to be a day such as 2026-11-26, or a time such as \
             2026-11-26T18:00:00Z"
        ))
    })
}

fn parse_text(text: &str, ends: bool) -> Option<i64> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.splitn(3, '-');
    let year = number(parts.next()?, 4)?;
    let month = number(parts.next()?, 2)?;
    let day = number(parts.next()?, 2)?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let midnight = (era * 146_097 + of_era - 719_468) * DAY;
    let Some(time) = time else {
        return Some(if ends { midnight + DAY - 1 } else { midnight });
    };
    let (clock, offset) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => (time.get(..at)?, time.get(at..)?),
        None => (time, "Z"),
    };
    // Parts of a second make no difference.
    let clock = clock.split('.').next()?;
    let mut parts = clock.splitn(3, ':');
    let hour = number(parts.next()?, 2)?;
    let minute = number(parts.next()?, 2)?;
    let second = parts.next().map_or(Some(0), |part| number(part, 2))?;
    let offset = match offset.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign @ ("+" | "-"), rest) => {
            let (hours, minutes) = rest.split_once(':')?;
            let seconds = number(hours, 2)? * 3600 + number(minutes, 2)? * 60;
            if sign == "+" { seconds } else { -seconds }
        }
        _ => return None,
    };
    (hour < 24 && minute < 60 && second <= 60)
        .then_some(midnight + hour * 3600 + minute * 60 + second - offset)
}

fn number(text: &str, digits: usize) -> Option<i64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times_are_read_and_written() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2026-11-26", 1_795_651_200),
            ("2026-11-26T01:02:03Z", 1_795_651_200 + 3723),
            ("2026-11-26t01:02:03.999+01:00", 1_795_651_200 + 123),
            ("2026-11-26 01:02", 1_795_651_200 + 3720),
        ] {
            assert_eq!(parse("since", text, false).unwrap(), seconds, "{text}");
            assert_eq!(day(seconds), text[..10], "{text}");
        }
        assert_eq!(parse("until", "1970-01-01", true).unwrap(), DAY - 1);
        for text in
            ["", "yesterday", "2026-13-01", "2026-1-1", "2026-11-26T25:00:00Z", "2026-11-26T1"]
        {
            assert!(parse("since", text, false).is_err(), "{text}");
        }
    }
}
