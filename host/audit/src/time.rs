//! Moments as RFC 3339 has them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Adds a moment to a text: `2026-03-01T12:00:00.000001Z`. One before 1970 is shown as 1970.
pub(super) fn write(out: &mut Vec<u8>, moment: SystemTime) {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second, micro) =
        (second / 3600, second / 60 % 60, second % 60, since.subsec_micros());
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    for (place, number) in [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, hour),
        (14..16, minute),
        (17..19, second),
        (20..26, micro.into()),
    ] {
        digits(&mut text[place], number);
    }
    out.extend_from_slice(&text);
}

/// Fills a place with a number, zeros before it. By hand, since it is done for each call.
pub(super) fn digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        // The remainder is one digit.
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Adds a number. By hand for the same reason.
pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    let mut text = [0; 20];
    digits(&mut text, number);
    let first = text.iter().position(|digit| *digit != b'0').unwrap_or(19);
    out.extend_from_slice(&text[first..]);
}

/// The day of the Gregorian calendar, so many days after 1 January 1970. Years begin in March here,
/// so that the day that some years have more is the last one; an era is the 400 years after which
/// everything repeats.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn check(seconds: u64, micros: u32, expected: &str) {
        let mut out = Vec::new();
        write(&mut out, UNIX_EPOCH + Duration::new(seconds, micros * 1000));
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn numbers_are_written_as_they_are_elsewhere() {
        for value in [0, 1, 9, 10, 99, 100, 1_234_567_890, u64::MAX] {
            let mut out = b"x".to_vec();
            number(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), format!("x{value}"));
        }
    }

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        check(0, 0, "1970-01-01T00:00:00.000000Z");
        check(951_782_399, 999_999, "2000-02-28T23:59:59.999999Z");
        check(951_782_400, 0, "2000-02-29T00:00:00.000000Z");
        check(951_868_800, 1, "2000-03-01T00:00:00.000001Z");
        check(1_709_164_800, 0, "2024-02-29T00:00:00.000000Z");
        check(1_798_761_599, 0, "2026-12-31T23:59:59.000000Z");
        check(4_107_542_400, 0, "2100-03-01T00:00:00.000000Z");
    }
}
