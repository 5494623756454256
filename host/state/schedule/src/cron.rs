//! Parses cron expressions and finds their next times.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};
use thiserror::Error;

const MAX: usize = 256;

/// The years that are searched for the next time. A date such as Monday, 29 February, occurs again
/// after at most 40 years.
const YEARS: i16 = 48;

/// The largest clock change that is treated as summer time. A larger change corrects the calendar,
/// as when Samoa skipped a day. A job doesn't run at a time that such a correction skips.
const CORRECTION: SignedDuration = SignedDuration::from_hours(3);

/// A parsed cron expression.
///
/// When the clock changes, expressions work as in cron(8). A job at a skipped fixed time runs
/// directly after the change. A job at a repeated fixed time runs once, at the first occurrence. A
/// job with `*` as the minute or the hour follows the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Bit 0 is Sunday.
    weekdays: u64,
    /// Whether both the day and the weekday must match. This is true if the day or the weekday
    /// begins with `*`.
    both_days: bool,
    /// Whether the minute or the hour begins with `*`.
    by_clock: bool,
}

struct Field {
    name: &'static str,
    from: u8,
    to: u8,
    words: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", from: 0, to: 59, words: &[] };
const MINUTE: Field = Field { name: "minute", from: 0, to: 59, words: &[] };
const HOUR: Field = Field { name: "hour", from: 0, to: 23, words: &[] };
const DAY: Field = Field { name: "day of the month", from: 1, to: 31, words: &[] };
const MONTH: Field = Field {
    name: "month",
    from: 1,
    to: 12,
    words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Field = Field {
    name: "weekday",
    from: 0,
    to: 7,
    words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

const SHORT: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const FORM: &str = "write five fields, minute hour day month weekday, as in `30 9 * * 1-5` for \
                    9:30 from Monday to Friday; an optional sixth field in front is the second; or \
                    write @hourly, @daily, @weekly, @monthly or @yearly";

/// The error for a text that isn't a cron expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CronError {
    /// The expression is too long. The number is its length in bytes.
    #[error("a cron expression is {0} bytes; the limit is {MAX}")]
    TooLong(usize),
    /// The number of fields is wrong, or the short name is unknown.
    #[error("`{0}` isn't a cron expression: {FORM}")]
    Form(String),
    /// A field of the expression is invalid.
    #[error("`{expression}` isn't a cron expression: {error}; {FORM}")]
    Field {
        /// The expression.
        expression: String,
        /// The fault of the field.
        error: CronFieldError,
    },
    /// The expression has no time in the next decades.
    #[error("`{0}` never runs: this day doesn't exist")]
    NeverRuns(String),
}

/// The error for a part of a field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CronFieldError {
    /// The part isn't a value of the field.
    #[error("`{part}` isn't a valid {field}")]
    Value {
        /// The part.
        part: String,
        /// The field's name.
        field: &'static str,
    },
    /// The step is too large or isn't a number.
    #[error("in `{part}`, the step isn't 1 to {most}")]
    Step {
        /// The part.
        part: String,
        /// The largest step.
        most: u8,
    },
    /// The part is a range whose start is after its end.
    #[error("in `{part}`, the first {field} is after the last")]
    Order {
        /// The part.
        part: String,
        /// The field's name.
        field: &'static str,
    },
}

impl Cron {
    /// Parses an expression.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't a cron expression, or has no next time.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        if text.len() > MAX {
            return Err(CronError::TooLong(text.len()));
        }
        let trimmed = text.trim();
        let mut expression = trimmed;
        // A short form, such as `@daily`.
        if trimmed.starts_with('@') {
            let (_, fields) = SHORT
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(trimmed))
                .ok_or_else(|| CronError::Form(trimmed.to_owned()))?;
            expression = fields;
        }
        // An expression without seconds runs at the start of the minute.
        let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
        let all_fields = match fields[..] {
            [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
            [second, minute, hour, day, month, weekday] => {
                [second, minute, hour, day, month, weekday]
            }
            _ => return Err(CronError::Form(trimmed.to_owned())),
        };
        let cron = Self::from_fields(all_fields)
            .map_err(|error| CronError::Field { expression: trimmed.to_owned(), error })?;
        // A date such as 30 February never comes, whatever the start is.
        let any_start = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        match cron.civil_from(any_start) {
            Some(_) => Ok(cron),
            None => Err(CronError::NeverRuns(trimmed.to_owned())),
        }
    }

    /// Reads the fields of an expression. A set of numbers has one bit for each number.
    fn from_fields(
        [second, minute, hour, day, month, weekday]: [&str; 6],
    ) -> Result<Self, CronFieldError> {
        let day = any_day(day);
        let weekday = any_day(weekday);
        let weekdays = WEEKDAY.read(weekday)?;
        Ok(Self {
            seconds: SECOND.read(second)?,
            minutes: MINUTE.read(minute)?,
            hours: HOUR.read(hour)?,
            days: DAY.read(day)?,
            months: MONTH.read(month)?,
            // 0 and 7 are Sunday, so bit 7 is moved to bit 0.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            // As in cron, one matching field is enough if neither field has a `*`.
            both_days: day.starts_with('*') || weekday.starts_with('*'),
            // Such a task runs at each matching time of the clock, also at a repeated time.
            by_clock: minute.starts_with('*') || hour.starts_with('*'),
        })
    }

    /// Returns the first time after `after`, or `None` if there is no time in the next 48 years.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.by_clock { self.next_by_clock(after, zone) } else { self.next_fixed(after, zone) }
    }

    /// Returns the next time for a task that follows the clock. Searches each period between two
    /// clock changes separately, because the offset of the zone is fixed in a period.
    fn next_by_clock(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut period_start = start_of_next_second(after)?;
        let last_year = zone.to_datetime(after).year().saturating_add(YEARS);
        loop {
            let offset = zone.to_offset(period_start);
            let civil = self.civil_from(offset.to_datetime(period_start));
            let next = civil.and_then(|civil| offset.to_timestamp(civil).ok());
            // If no change follows, this period has no end.
            let Some(change) = zone.following(period_start).next() else { return next };
            let period_end = change.timestamp();
            if let Some(next) = next
                && next < period_end
            {
                return Some(next);
            }
            if offset.to_datetime(period_end).year() > last_year {
                return None;
            }
            period_start = period_end;
        }
    }

    /// Returns the next time for a task with fixed times. Each matching date and time is one
    /// moment, even when the clock changes.
    fn next_fixed(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut civil = zone.to_datetime(after);
        loop {
            civil = self.civil_from(next_second(civil)?)?;
            if let Some(moment) = moment_of(civil, zone)
                && moment > after
            {
                return Some(moment);
            }
        }
    }

    /// Returns the first matching date and time at or after `from`, within [`YEARS`].
    fn civil_from(&self, from: DateTime) -> Option<DateTime> {
        let last_year = from.year().checked_add(YEARS)?;
        let mut date = from.date();
        // `None` if no matching time follows on the first day.
        let mut time = self.time_from(from.time());
        while date.year() <= last_year {
            if !has_bit(self.months, date.month()) {
                date = date.first_of_month().checked_add(1.month()).ok()?;
                time = self.time_from(Time::midnight());
                continue;
            }
            if let Some(time) = time
                && self.has_day(date)
            {
                return Some(date.to_datetime(time));
            }
            date = date.tomorrow().ok()?;
            time = self.time_from(Time::midnight());
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let fits_day = has_bit(self.days, date.day());
        let fits_weekday = has_bit(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.both_days { fits_day && fits_weekday } else { fits_day || fits_weekday }
    }

    /// Returns the first matching time of the day at or after `from`.
    fn time_from(&self, from: Time) -> Option<Time> {
        // Callers pass whole seconds, so there is no fraction to round up.
        let hour = from.hour();
        let minute = from.minute();
        if has_bit(self.hours, hour) {
            if has_bit(self.minutes, minute)
                && let Some(second) = from_bit(self.seconds, from.second())
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(next_minute) = from_bit(self.minutes, minute + 1) {
                return Time::new(hour, next_minute, first_bit(self.seconds), 0).ok();
            }
        }
        let next_hour = from_bit(self.hours, hour + 1)?;
        Time::new(next_hour, first_bit(self.minutes), first_bit(self.seconds), 0).ok()
    }
}

/// Returns the moment of a date and time, or `None` for a time that a correction skipped.
fn moment_of(civil: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
        // The time occurs twice, so the first occurrence is used.
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
        // The clock skips the time, so the moment of the change is used.
        AmbiguousOffset::Gap { before, after } => {
            if after.duration_since(before) > CORRECTION {
                return None;
            }
            // With the earlier offset, the skipped time is a moment at or after the change.
            // `preceding` leaves out a change at exactly this moment, so a second is added.
            let skipped = before.to_timestamp(civil).ok()?;
            let after_change = skipped.checked_add(1.second()).ok()?;
            Some(zone.preceding(after_change).next()?.timestamp())
        }
    }
}

/// Returns the first number of a set that is at least `from`.
fn from_bit(set: u64, from: i8) -> Option<i8> {
    let first_bit = u32::try_from(from).ok()?;
    let remaining = set.checked_shr(first_bit)?;
    if remaining == 0 {
        return None;
    }
    i8::try_from(first_bit + remaining.trailing_zeros()).ok()
}

fn has_bit(set: u64, number: i8) -> bool {
    set >> number & 1 == 1
}

fn first_bit(set: u64) -> i8 {
    i8::try_from(set.trailing_zeros()).unwrap_or(0)
}

fn next_second(civil: DateTime) -> Option<DateTime> {
    let whole = civil.with().subsec_nanosecond(0).build().ok()?;
    whole.checked_add(1.second()).ok()
}

fn start_of_next_second(after: Timestamp) -> Option<Timestamp> {
    let second = after.as_nanosecond().div_euclid(1_000_000_000).checked_add(1)?;
    Timestamp::from_second(i64::try_from(second).ok()?).ok()
}

impl Field {
    /// Returns the set of the values. Bit N is the value N.
    fn read(&self, text: &str) -> Result<u64, CronFieldError> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.parse_part(part)?))
    }

    /// Reads a part of a field, such as `5`, `1-5` or `*/10`, as a set of numbers.
    fn parse_part(&self, text: &str) -> Result<u64, CronFieldError> {
        let (range, step) = match text.split_once('/') {
            None => (text, None),
            Some((range, written_step)) => match number(written_step) {
                Some(step) if (1..=self.to).contains(&step) => (range, Some(step)),
                _ => return Err(CronFieldError::Step { part: text.to_owned(), most: self.to }),
            },
        };

        // A step needs a range, as in cron, because programs read `5/10` differently.
        let is_range = range == "*" || range.contains('-');
        let bounds = if step.is_some() && !is_range { None } else { self.parse_bounds(range) };
        let Some((from, mut to)) = bounds else {
            return Err(CronFieldError::Value { part: text.to_owned(), field: self.name });
        };
        // The `0` in `5-0` is the Sunday after Saturday, which is 7.
        if to == 0 && from > 0 && self.to == WEEKDAY.to {
            to = WEEKDAY.to;
        }
        if from > to {
            return Err(CronFieldError::Order { part: text.to_owned(), field: self.name });
        }

        let every_value = 1;
        let mut set: u64 = 0;
        for value in (from..=to).step_by(step.unwrap_or(every_value).into()) {
            set |= 1 << value;
        }
        Ok(set)
    }

    /// Returns the first and the last number of `5`, `1-5` or `*`.
    fn parse_bounds(&self, range: &str) -> Option<(u8, u8)> {
        if range == "*" {
            return Some((self.from, self.to));
        }
        if let Some((first, last)) = range.split_once('-') {
            return Some((self.parse_value(first)?, self.parse_value(last)?));
        }
        let value = self.parse_value(range)?;
        Some((value, value))
    }

    fn parse_value(&self, text: &str) -> Option<u8> {
        // The first word, such as `jan`, stands for the first number.
        let word_index = self.words.iter().position(|word| word.eq_ignore_ascii_case(text));
        let value = match word_index {
            Some(index) => u8::try_from(index).ok()? + self.from,
            None => number(text)?,
        };
        if !(self.from..=self.to).contains(&value) {
            return None;
        }
        Some(value)
    }
}

/// Replaces `?` by `*`. Quartz and similar programs use `?` for any day.
fn any_day(field: &str) -> &str {
    if field == "?" { "*" } else { field }
}

fn number(text: &str) -> Option<u8> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    text.parse().ok()
}
