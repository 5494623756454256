//! Writes times as in RFC 3339.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

/// All times have the same length, because the position of an entry's kind depends on it.
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

/// Appends a time: `2026-03-01T12:00:00.000001Z`. Times before 1970 or after the year 9999 become
/// the start of 1970.
pub(super) fn write(out: &mut Vec<u8>, moment: SystemTime) {
    let moment = Timestamp::try_from(moment).unwrap_or_default().max(Timestamp::UNIX_EPOCH);
    let _ = PRINTER.print_timestamp(&moment, out);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[track_caller]
    fn check(moment: SystemTime, expected: &str) {
        let mut out = Vec::new();
        write(&mut out, moment);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn times_have_microseconds_in_utc() {
        let after = |seconds, micros: u32| UNIX_EPOCH + Duration::new(seconds, micros * 1000);
        check(after(0, 0), "1970-01-01T00:00:00.000000Z");
        check(after(951_782_399, 999_999), "2000-02-28T23:59:59.999999Z");
        check(after(951_782_400, 0), "2000-02-29T00:00:00.000000Z");
        check(after(951_868_800, 1), "2000-03-01T00:00:00.000001Z");
        check(after(1_709_164_800, 0), "2024-02-29T00:00:00.000000Z");
        check(after(1_798_761_599, 0), "2026-12-31T23:59:59.000000Z");
        check(after(4_107_542_400, 0), "2100-03-01T00:00:00.000000Z");
    }

    #[test]
    fn times_outside_the_calendar_have_the_same_length() {
        check(UNIX_EPOCH - Duration::from_secs(1), "1970-01-01T00:00:00.000000Z");
        check(UNIX_EPOCH + Duration::from_secs(1 << 40), "1970-01-01T00:00:00.000000Z");
    }
}
