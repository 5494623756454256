//! The times of a task: once, at a fixed period, or by a cron expression in a time zone.

use jiff::civil::{Date, DateTime};
use jiff::fmt::temporal::Pieces;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp};
use thiserror::Error;
use toolhold_contract::text::{cut, neutral_line};

use crate::MAX_MISSED;
use crate::cron::{Cron, CronError};

/// Most bytes of a zone's name.
const MAX_ZONE: usize = 64;

/// Most bytes of a time or a duration.
const MAX_TIME: usize = 128;

/// Most bytes of a text of any kind. A cron expression may be longer than a time.
const MAX_WHEN: usize = 256;

/// The number of periods that are examined for the shortest period of a task.
const EXAMINED_PERIODS: usize = 200;

/// The longest period and delay, in seconds: ten years.
const MAX_SECONDS: i64 = 10 * 366 * 24 * 3600;

/// The times of a task.
#[derive(Clone, Debug)]
pub enum When {
    /// The task runs once.
    Once(Timestamp),
    /// The task runs at a fixed period.
    Every {
        /// Seconds between two times.
        seconds: i64,
        /// The start of the first period.
        since: Timestamp,
    },
    /// The task runs by a cron expression.
    Cron(Box<Cron>, TimeZone),
}

/// The times of a task that have passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The latest times, at most [`MAX_MISSED`], in ascending order.
    pub times: Vec<Timestamp>,
    /// Whether earlier times were left out.
    pub more: bool,
}

/// The error for an invalid time of a task.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WhenError {
    /// The text is too long. The number is its length in bytes.
    #[error("`when` is {0} bytes; the limit is {MAX_WHEN}")]
    TooLong(usize),
    /// The kind of schedule is unknown.
    #[error("`{0}` isn't a kind of schedule: use once, every or cron")]
    Kind(String),
    /// The period isn't a number of seconds, or is too long.
    #[error("`{0}` isn't a valid period: write seconds, from 1 to {MAX_SECONDS} (ten years)")]
    Period(String),
    /// The cron expression isn't valid.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The time zone is unknown.
    #[error("there is no time zone `{0}`: write a name such as Europe/Berlin, or UTC")]
    Zone(String),
    /// The text is neither a time nor a duration.
    #[error(
        "`{0}` isn't a valid time: write a time such as 2030-05-01T09:00:00Z, or a duration from \
         now such as PT15M or 15m"
    )]
    Time(String),
    /// The day doesn't exist in this month.
    #[error("`{0}` isn't a valid time: the month doesn't have this day")]
    Day(String),
    /// The time or duration is beyond the latest possible moment.
    #[error("`{0}` is too far away; the limit is ten years")]
    Beyond(String),
    /// The time is more than ten years in the future.
    #[error("{0} is too far away; the limit is ten years")]
    TooFar(Timestamp),
    /// The time has passed.
    #[error("{at} is in the past; it is {now} now")]
    Past {
        /// The given time.
        at: Timestamp,
        /// The current time, in whole seconds.
        now: Timestamp,
    },
}

impl When {
    /// Parses the times of a task. Durations and periods start at `now`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't a time of this kind, the time is in the past or too far
    /// in the future, or the time zone doesn't exist.
    pub fn parse(
        kind: &str,
        text: &str,
        zone: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, WhenError> {
        // An error contains the text, so the text must be short.
        if text.len() > MAX_WHEN {
            return Err(WhenError::TooLong(text.len()));
        }
        match kind {
            "once" => parse_moment(text, zone, now).map(Self::Once),
            "every" => {
                let written = text.trim();
                match written.parse::<i64>() {
                    Ok(seconds) if (1..=MAX_SECONDS).contains(&seconds) => {
                        Ok(Self::Every { seconds, since: now })
                    }
                    _ => Err(WhenError::Period(written.to_owned())),
                }
            }
            "cron" => Ok(Self::Cron(Box::new(Cron::parse(text)?), find_zone(zone)?)),
            other => Err(WhenError::Kind(other.to_owned())),
        }
    }

    /// Returns the first time after `after`, if there is one.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Once(at) if *at > after => Some(*at),
            Self::Once(_) => None,
            Self::Every { seconds, since } => {
                // Stored times are in milliseconds, so a smaller fraction is dropped here too.
                let start = since.as_millisecond();
                let passed = after.as_millisecond().checked_sub(start)?;
                let period_millis = seconds.checked_mul(1000)?;
                let passed_periods = passed.div_euclid(period_millis);
                // The first run comes one period after `since`, even if `after` is earlier.
                let next_period = passed_periods.checked_add(1)?.max(1);
                let next = start.checked_add(next_period.checked_mul(period_millis)?)?;
                Timestamp::from_millisecond(next).ok()
            }
            Self::Cron(cron, zone) => cron.next(after, zone),
        }
    }

    /// Returns the shortest of the next 200 periods of the task, or `None` if the task has fewer
    /// than two times.
    pub fn shortest_period(&self, from: Timestamp) -> Option<SignedDuration> {
        let mut last = self.next(from)?;
        let mut shortest: Option<SignedDuration> = None;
        for _ in 0..EXAMINED_PERIODS {
            let Some(next) = self.next(last) else { break };
            let period = next.duration_since(last);
            if shortest.is_none_or(|known| period < known) {
                shortest = Some(period);
            }
            last = next;
        }
        shortest
    }

    /// Returns the latest times from `first` to `now`, at most [`MAX_MISSED`]. `first` must be one
    /// of the task's times.
    pub fn pending(&self, first: Timestamp, now: Timestamp) -> Pending {
        // `times_after` only returns times after its first argument, so it starts before `first`.
        let before_first = first.as_millisecond().saturating_sub(1);
        let times = self.times_after(before_first, now);
        if times.len() <= MAX_MISSED {
            return Pending { times, more: false };
        }

        // A binary search finds the earliest start with at most `MAX_MISSED` later times.
        let mut too_early = before_first;
        let mut late_enough = now.as_millisecond();
        while late_enough - too_early > 1 {
            let middle = too_early + (late_enough - too_early) / 2;
            if self.times_after(middle, now).len() > MAX_MISSED {
                too_early = middle;
            } else {
                late_enough = middle;
            }
        }
        Pending { times: self.times_after(late_enough, now), more: true }
    }

    /// Returns the times after `after_millis` up to `now`. Stops at one time more than
    /// [`MAX_MISSED`], which is enough to show that there are too many.
    fn times_after(&self, after_millis: i64, now: Timestamp) -> Vec<Timestamp> {
        let mut times = Vec::new();
        let Ok(mut last) = Timestamp::from_millisecond(after_millis) else { return times };
        while let Some(next) = self.next(last)
            && next <= now
        {
            times.push(next);
            if times.len() > MAX_MISSED {
                break;
            }
            last = next;
        }
        times
    }
}

/// Returns the time zone `name`. `None` means the machine's zone.
///
/// # Errors
///
/// Fails if the zone doesn't exist.
pub fn find_zone(name: Option<&str>) -> Result<TimeZone, WhenError> {
    let Some(name) = name else {
        // If the machine has no zone, UTC is used.
        return Ok(TimeZone::try_system().unwrap_or(TimeZone::UTC));
    };
    let has_valid_length = (1..=MAX_ZONE).contains(&name.len());
    let has_valid_characters =
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-+".contains(&byte));
    if has_valid_length
        && has_valid_characters
        && let Ok(zone) = TimeZone::get(name)
    {
        return Ok(zone);
    }
    Err(WhenError::Zone(neutral_line(cut(name, MAX_ZONE))))
}

/// Returns the name of the machine's time zone, if the zone database knows the name.
pub(crate) fn machine_zone() -> Option<String> {
    let zone = TimeZone::try_system().ok()?;
    let name = zone.iana_name()?;
    find_zone(Some(name)).is_ok().then(|| name.to_owned())
}

/// Returns the name of a zone for people. `None` means the machine's zone.
pub fn zone_name(name: Option<&str>) -> String {
    if let Some(name) = name {
        return name.to_owned();
    }
    let Ok(zone) = TimeZone::try_system() else {
        return "UTC, because the machine has no time zone".to_owned();
    };
    match zone.iana_name() {
        Some(name) => format!("{name}, the machine's zone"),
        None => "the machine's zone".to_owned(),
    }
}

/// Describes the effect of a clock change on a time without an offset. Returns `None` if the time
/// occurs exactly once.
pub fn clock_change(kind: &str, text: &str, zone: Option<&str>) -> Option<String> {
    let text = text.trim();
    if kind != "once" || text.len() > MAX_TIME {
        return None;
    }
    // A time with an offset is always one moment.
    if text.parse::<Timestamp>().is_ok() {
        return None;
    }
    let civil = text.parse::<DateTime>().ok()?;
    let in_zone = find_zone(zone).ok()?;
    let ambiguous = in_zone.to_ambiguous_timestamp(civil);
    let why = match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => return None,
        AmbiguousOffset::Gap { .. } => "doesn't exist, because the clocks go forward then",
        AmbiguousOffset::Fold { .. } => "occurs twice, because the clocks go back then",
    };
    let at = ambiguous.compatible().ok()?;
    let shown = at.display_with_offset(in_zone.to_offset(at));
    Some(format!("{civil} {why} ({}): the task runs at {shown}", zone_name(zone)))
}

/// Checks whether only the day of a date is invalid, as in the 30th of February.
fn has_only_invalid_day(date: &str) -> bool {
    let (Some(month), Some(day)) = (date.get(..8), date.get(8..)) else { return false };
    let has_month = format!("{month}01").parse::<Date>().is_ok();
    let may_be_day = day.parse::<u8>().is_ok_and(|day| (1..=31).contains(&day));
    has_month && may_be_day && date.parse::<Date>().is_err()
}

/// Checks whether the offset of a time, if it has one, is less than a day.
fn has_possible_offset(text: &str) -> bool {
    let offset = Pieces::parse(text).ok().and_then(|pieces| pieces.to_numeric_offset());
    offset.is_none_or(|offset| offset.seconds().abs() < 24 * 60 * 60)
}

fn parse_moment(text: &str, zone: Option<&str>, now: Timestamp) -> Result<Timestamp, WhenError> {
    let in_zone = find_zone(zone)?;
    let exact = parse_exact_moment(text.trim(), &in_zone, now)?;
    // Stored times are in milliseconds, so a smaller fraction is dropped. The result is always
    // valid.
    let at = Timestamp::from_millisecond(exact.as_millisecond()).unwrap_or(exact);
    if at <= now {
        // The error shows whole seconds.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        return Err(WhenError::Past { at, now });
    }
    if at.duration_since(now).as_secs() > MAX_SECONDS {
        return Err(WhenError::TooFar(at));
    }
    Ok(at)
}

/// Parses a time, a date and time in `zone`, or a duration from `now`.
fn parse_exact_moment(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, WhenError> {
    if text.len() > MAX_TIME || !has_possible_offset(text) {
        return Err(time_error(text));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(civil) = text.parse::<DateTime>() {
        return to_timestamp(civil, zone).ok_or_else(|| time_error(text));
    }
    let Ok(span) = text.parse::<Span>() else { return Err(time_error(text)) };
    // This fails for days and longer units, because their length depends on the calendar of the
    // zone.
    if let Ok(later) = now.checked_add(span) {
        return Ok(later);
    }
    if let Ok(civil) = zone.to_datetime(now).checked_add(span)
        && let Some(later) = to_timestamp(civil, zone)
    {
        return Ok(later);
    }
    // The duration leads past the year 9999.
    if span.is_positive() {
        return Err(WhenError::Beyond(shown(text)));
    }
    Err(time_error(text))
}

fn to_timestamp(civil: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    zone.to_ambiguous_timestamp(civil).compatible().ok()
}

fn time_error(text: &str) -> WhenError {
    let Some(date) = text.get(.."2000-01-01".len()) else { return WhenError::Time(shown(text)) };
    // The latest `Timestamp` is in the last days of the last year that `Date` knows, so a valid
    // date of that year is too late.
    if date.parse::<Date>().is_ok_and(|date| date.year() == Date::MAX.year()) {
        return WhenError::Beyond(shown(text));
    }
    if has_only_invalid_day(date) {
        return WhenError::Day(shown(text));
    }
    WhenError::Time(shown(text))
}

fn shown(text: &str) -> String {
    neutral_line(cut(text, MAX_TIME))
}
