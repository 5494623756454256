//! Parses cron expressions (five or six fields, and the short names), and finds the next time of an
//! expression.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};
use thiserror::Error;

/// Bytes of an expression.
const MAX: usize = 256;

/// The number of years in which the next time is searched. A date such as Monday, 29 February,
/// recurs every 28 years, and after 40 years around some centuries.
const YEARS: i16 = 48;

/// The largest clock change that is treated as summer time or similar. A larger change, as when
/// Samoa skipped a day, is a correction. Times within a correction don't exist.
const CORRECTION: SignedDuration = SignedDuration::from_hours(3);

/// A parsed expression.
///
/// Expressions have the meaning of cron(8), even when the clock changes. If the change skips the
/// fixed time of a job, the job runs directly after the change. If a fixed time occurs twice, the
/// job runs the first time. A job with a `*` in its minute or hour follows the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Bit 0 is Sunday.
    weekdays: u64,
    /// Whether both the day and the weekday must match, because one of them begins with `*`.
    both_days: bool,
    /// Whether the minute or the hour begins with `*`.
    by_clock: bool,
}

/// A field: its name, its range, and the names of its values.
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

/// The form, for errors.
const FORM: &str = "write five fields, minute hour day month weekday, as in `30 9 * * 1-5` for 9:30 from Monday to Friday; a sixth in front is the second; or @hourly, @daily, @weekly, @monthly, @yearly";

/// A reason why a text isn't a cron expression, with the form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CronError {
    /// The expression is too long. The number is its length in bytes.
    #[error("a cron expression is {0} bytes; the limit is {MAX}")]
    TooLong(usize),
    /// The expression has another number of fields, or an unknown short name.
    #[error("`{0}` isn't a cron expression: {FORM}")]
    Form(String),
    /// A field of the expression isn't valid.
    #[error("`{expression}` isn't a cron expression: {error}; {FORM}")]
    Field {
        /// The expression.
        expression: String,
        /// The fault of the field.
        error: CronFieldError,
    },
    /// The expression has no next time.
    #[error("`{0}` never runs: this day doesn't exist")]
    NeverRuns(String),
}

/// A reason why a part of a field isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CronFieldError {
    /// The part isn't one of the field's values.
    #[error("`{part}` isn't a valid {field}")]
    Value {
        /// The part.
        part: String,
        /// The field's name.
        field: &'static str,
    },
    /// The step is too large, or isn't a number.
    #[error("in `{part}`, the step isn't 1 to {most}")]
    Step {
        /// The part.
        part: String,
        /// The largest step.
        most: u8,
    },
    /// The part is a range that ends before it begins.
    #[error("in `{part}`, the first {field} is after the last")]
    Order {
        /// The part.
        part: String,
        /// The field's name.
        field: &'static str,
    },
}

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// The text isn't a cron expression, or never runs.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        if text.len() > MAX {
            return Err(CronError::TooLong(text.len()));
        }
        let trimmed = text.trim();
        let mut expression = trimmed;
        if trimmed.starts_with('@') {
            let (_, fields) = SHORT
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(trimmed))
                .ok_or_else(|| CronError::Form(trimmed.to_owned()))?;
            expression = fields;
        }
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
        let any_start = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        match cron.civil_from(any_start) {
            Some(_) => Ok(cron),
            None => Err(CronError::NeverRuns(trimmed.to_owned())),
        }
    }

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
            // 7 also means Sunday.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            both_days: day.starts_with('*') || weekday.starts_with('*'),
            by_clock: minute.starts_with('*') || hour.starts_with('*'),
        })
    }

    /// Returns the first time after `after`. Returns `None` if the expression has no time in the
    /// next decades.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.by_clock { self.next_by_clock(after, zone) } else { self.next_fixed(after, zone) }
    }

    /// Searches each period between two changes of the clock by itself, by the times of the clock.
    fn next_by_clock(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut from = start_of_next_second(after)?;
        let last_year = zone.to_datetime(after).year().saturating_add(YEARS);
        loop {
            let offset = zone.to_offset(from);
            let civil = self.civil_from(offset.to_datetime(from));
            let next = civil.and_then(|civil| offset.to_timestamp(civil).ok());
            let Some(change) = zone.following(from).next() else { return next };
            let change = change.timestamp();
            if let Some(next) = next
                && next < change
            {
                return Some(next);
            }
            if offset.to_datetime(change).year() > last_year {
                return None;
            }
            from = change;
        }
    }

    /// Returns the next time of an expression with fixed times. Each matching date and time is one
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

    /// Returns the first date and time from `from` on that fits.
    fn civil_from(&self, from: DateTime) -> Option<DateTime> {
        let last = from.year().checked_add(YEARS)?;
        let mut date = from.date();
        let mut time = self.time_from(from.time());
        while date.year() <= last {
            let has_month = self.months >> date.month() & 1 == 1;
            if !has_month {
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
        let fits_day = self.days >> date.day() & 1 == 1;
        let fits_weekday = self.weekdays >> date.weekday().to_sunday_zero_offset() & 1 == 1;
        if self.both_days { fits_day && fits_weekday } else { fits_day || fits_weekday }
    }

    /// Returns the first time of a day from `from` on that fits.
    fn time_from(&self, from: Time) -> Option<Time> {
        // Fractions of a second would need rounding up, but callers only pass whole seconds.
        let hour = from.hour();
        let minute = from.minute();
        let has_hour = self.hours >> hour & 1 == 1;
        if has_hour {
            let has_minute = self.minutes >> minute & 1 == 1;
            if has_minute && let Some(second) = from_bit(self.seconds, from.second()) {
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

/// Returns the moment of a date and time. Returns `None` for a time that a correction of the clock
/// skipped.
fn moment_of(civil: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
        // This time occurs twice. The first occurrence is used.
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
        // The clock skips this time. The moment of the change is used.
        AmbiguousOffset::Gap { before, after } => {
            if after.duration_since(before) > CORRECTION {
                return None;
            }
            let inside = before.to_timestamp(civil).ok()?;
            // The change itself is a moment before the next second.
            let above = inside.checked_add(1.second()).ok()?;
            Some(zone.preceding(above).next()?.timestamp())
        }
    }
}

/// Returns the first bit of a set from `from` on.
fn from_bit(set: u64, from: i8) -> Option<i8> {
    let from = u32::try_from(from).ok()?;
    let shifted = set.checked_shr(from)?;
    if shifted == 0 {
        return None;
    }
    i8::try_from(from + shifted.trailing_zeros()).ok()
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
    /// Returns the set of the values, in which bit N represents the value N.
    fn read(&self, text: &str) -> Result<u64, CronFieldError> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    fn part(&self, text: &str) -> Result<u64, CronFieldError> {
        let (range, step) = match text.split_once('/') {
            None => (text, None),
            Some((range, step)) => match number(step) {
                Some(step) if (1..=self.to).contains(&step) => (range, Some(step)),
                _ => return Err(CronFieldError::Step { part: text.to_owned(), most: self.to }),
            },
        };
        let wrong_value = CronFieldError::Value { part: text.to_owned(), field: self.name };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.from, self.to),
            Some((from, to)) => match (self.value(from), self.value(to)) {
                (Some(from), Some(to)) => (from, to),
                _ => return Err(wrong_value),
            },
            // As in cron, a step needs a range, because `5/10` has different meanings in other
            // programs.
            None if step.is_some() => return Err(wrong_value),
            None => {
                let Some(value) = self.value(range) else { return Err(wrong_value) };
                (value, value)
            }
        };
        // A Sunday at the end of a range is the Sunday after Saturday.
        let to = if to == 0 && from > 0 && self.to == WEEKDAY.to { WEEKDAY.to } else { to };
        if from > to {
            return Err(CronFieldError::Order { part: text.to_owned(), field: self.name });
        }
        let values = (from..=to).step_by(step.unwrap_or(1).into());
        Ok(values.fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, text: &str) -> Option<u8> {
        let word = self.words.iter().position(|word| word.eq_ignore_ascii_case(text));
        let value = match word {
            Some(index) => u8::try_from(index).ok()? + self.from,
            None => number(text)?,
        };
        (self.from..=self.to).contains(&value).then_some(value)
    }
}

/// Returns the field of a day with `*` for any day. Quartz and similar programs use `?`.
fn any_day(field: &str) -> &str {
    if field == "?" { "*" } else { field }
}

/// Returns a number of one or two digits, without a sign.
fn number(text: &str) -> Option<u8> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    text.parse().ok()
}
