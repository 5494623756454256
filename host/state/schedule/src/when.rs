//! Decides when a task runs: once, at a fixed period in seconds, or by a cron expression in a time
//! zone.

use jiff::civil::{Date, DateTime};
use jiff::fmt::temporal::Pieces;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp};
use thiserror::Error;
use toolhold_contract::text::{cut, neutral_line};

use crate::MAX_MISSED;
use crate::cron::{Cron, CronError};

/// Bytes of a zone's name.
const MAX_ZONE: usize = 64;

/// Bytes of a time or a duration.
const MAX_TIME: usize = 128;

/// The number of times that are used to find out how often a task runs.
const LOOKED_AT: usize = 200;

/// The longest period and delay, in seconds: ten years.
const LONGEST: i64 = 10 * 366 * 24 * 3600;

/// When a task runs.
#[derive(Clone, Debug)]
pub enum When {
    /// Once.
    Once(Timestamp),
    /// The task runs periodically.
    Every {
        /// Seconds between two times.
        seconds: i64,
        /// The start of the first period.
        since: Timestamp,
    },
    /// By a cron expression.
    Cron(Box<Cron>, TimeZone),
}

/// Times up to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The latest of the times, at most [`MAX_MISSED`], in ascending order.
    pub times: Vec<Timestamp>,
    /// Whether there are more times.
    pub more: bool,
}

/// A reason why a task has no time to run at, with the form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WhenError {
    /// The text is too long. The number is its length in bytes.
    #[error("when is {0} bytes; the limit is {limit}", limit = 2 * MAX_TIME)]
    TooLong(usize),
    /// An unknown kind of time.
    #[error("`{0}` isn't a kind of schedule: use once, every or cron")]
    Kind(String),
    /// A period that isn't a number of seconds, or is too long.
    #[error("`{0}` isn't a valid period: write seconds, from 1 to {LONGEST} (ten years)")]
    Period(String),
    /// A cron expression that isn't valid.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// An unknown time zone.
    #[error("there is no time zone `{0}`: write a name such as Europe/Berlin, or UTC")]
    Zone(String),
    /// Neither a time nor a duration.
    #[error(
        "`{0}` isn't a valid time: write a time such as 2030-05-01T09:00:00Z, or a duration from \
         now such as PT15M or 15m"
    )]
    Time(String),
    /// The day doesn't exist in this month.
    #[error("`{0}` isn't a valid time: the month doesn't have this day")]
    Day(String),
    /// A time or a duration beyond the latest possible moment.
    #[error("`{0}` is too far away; the limit is ten years")]
    Beyond(String),
    /// The moment is too far in the future.
    #[error("{0} is too far away; the limit is ten years")]
    TooFar(Timestamp),
    /// A moment that has passed.
    #[error("{at} is in the past; it is {now} now")]
    Past {
        /// The moment.
        at: Timestamp,
        /// Now, in whole seconds.
        now: Timestamp,
    },
}

impl When {
    /// Parses the times of a task. A duration and a period begin at `now`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't a time of this kind, the time has passed or is too far in
    /// the future, or the time zone doesn't exist.
    pub fn parse(
        kind: &str,
        text: &str,
        zone: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, WhenError> {
        if text.len() > 2 * MAX_TIME {
            return Err(WhenError::TooLong(text.len()));
        }
        match kind {
            "once" => moment(text, zone, now).map(Self::Once),
            "every" => {
                let written = text.trim();
                match written.parse::<i64>() {
                    Ok(seconds) if (1..=LONGEST).contains(&seconds) => {
                        Ok(Self::Every { seconds, since: now })
                    }
                    _ => Err(WhenError::Period(written.to_owned())),
                }
            }
            "cron" => Ok(Self::Cron(Box::new(Cron::parse(text)?), find_zone(zone)?)),
            other => Err(WhenError::Kind(other.to_owned())),
        }
    }

    /// Returns the first time after `after`.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Once(at) => (*at > after).then_some(*at),
            Self::Every { seconds, since } => {
                // Times are stored in milliseconds, so the calculation uses milliseconds too.
                let since = since.as_millisecond();
                let passed = after.as_millisecond().checked_sub(since)?;
                let period = seconds.checked_mul(1000)?;
                let periods = passed.div_euclid(period).checked_add(1)?.max(1);
                let next = since.checked_add(periods.checked_mul(period)?)?;
                Timestamp::from_millisecond(next).ok()
            }
            Self::Cron(cron, zone) => cron.next(after, zone),
        }
    }

    /// Returns the shortest distance between the task's next times, if it has several.
    pub fn shortest_period(&self, from: Timestamp) -> Option<SignedDuration> {
        let mut last = self.next(from)?;
        let mut shortest: Option<SignedDuration> = None;
        for _ in 0..LOOKED_AT {
            let Some(next) = self.next(last) else { break };
            let period = next.duration_since(last);
            shortest = Some(shortest.map_or(period, |known| known.min(period)));
            last = next;
        }
        shortest
    }

    /// Returns the times from `first` up to `now`. `first` must be one of the times.
    pub fn pending(&self, first: Timestamp, now: Timestamp) -> Pending {
        // The times after a moment don't include the moment itself.
        let before_first = first.as_millisecond().saturating_sub(1);
        let times = self.collect(before_first, now);
        if times.len() <= MAX_MISSED {
            return Pending { times, more: false };
        }

        // A binary search finds the earliest moment that isn't followed by more times than the
        // limit.
        let mut too_early = before_first;
        let mut earliest = now.as_millisecond();
        while earliest - too_early > 1 {
            let middle = too_early + (earliest - too_early) / 2;
            if self.collect(middle, now).len() > MAX_MISSED {
                too_early = middle;
            } else {
                earliest = middle;
            }
        }
        Pending { times: self.collect(earliest, now), more: true }
    }

    /// Returns the times after `after`, in milliseconds, up to `now`. The list has at most one more
    /// time than the limit.
    fn collect(&self, after: i64, now: Timestamp) -> Vec<Timestamp> {
        let mut times = Vec::new();
        let Ok(mut last) = Timestamp::from_millisecond(after) else { return times };
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

/// Returns the time zone with this name. `None` means the machine's zone.
///
/// # Errors
///
/// Returns an error if the zone doesn't exist.
pub fn find_zone(name: Option<&str>) -> Result<TimeZone, WhenError> {
    let Some(name) = name else {
        // A machine that names no zone has UTC.
        return Ok(TimeZone::try_system().unwrap_or(TimeZone::UTC));
    };
    let may_be_zone = (1..=MAX_ZONE).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-+".contains(&byte));
    if may_be_zone && let Ok(zone) = TimeZone::get(name) {
        return Ok(zone);
    }
    Err(WhenError::Zone(neutral_line(cut(name, MAX_ZONE))))
}

/// Returns the name of the machine's time zone. Returns `None` if the machine has no name for its
/// zone, or the time zone database doesn't know the name.
pub(crate) fn machine_zone() -> Option<String> {
    let zone = TimeZone::try_system().ok()?;
    let name = zone.iana_name()?;
    find_zone(Some(name)).is_ok().then(|| name.to_owned())
}

/// Returns the name of a zone, for people. `None` means the machine's zone.
pub fn zone_name(name: Option<&str>) -> String {
    match (name, TimeZone::try_system()) {
        (Some(name), _) => name.to_owned(),
        (None, Ok(zone)) => match zone.iana_name() {
            Some(name) => format!("{name}, the machine's zone"),
            None => "the machine's zone".to_owned(),
        },
        (None, Err(_)) => "UTC, because the machine has no time zone".to_owned(),
    }
}

/// Describes how a clock change affects a time without an offset, if the time doesn't exist in its
/// zone or occurs twice. Returns `None` if the text is a single moment, or isn't a time.
pub fn clock_change(kind: &str, text: &str, zone: Option<&str>) -> Option<String> {
    let text = text.trim();
    if kind != "once" || text.len() > MAX_TIME || text.parse::<Timestamp>().is_ok() {
        return None;
    }
    let civil = text.parse::<DateTime>().ok()?;
    let in_zone = find_zone(zone).ok()?;
    let ambiguous = in_zone.to_ambiguous_timestamp(civil);
    let why = match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => return None,
        AmbiguousOffset::Gap { .. } => "doesn't exist, because the clock is put forward",
        AmbiguousOffset::Fold { .. } => "comes twice, because the clock is put back",
    };
    let at = ambiguous.compatible().ok()?;
    let shown = at.display_with_offset(in_zone.to_offset(at));
    Some(format!("{civil} {why} ({}): the task runs at {shown}", zone_name(zone)))
}

/// Checks whether a date is valid except for its day, such as the 30th of February.
fn is_no_day(date: &str) -> bool {
    let (Some(month), Some(day)) = (date.get(..8), date.get(8..)) else { return false };
    let has_month = format!("{month}01").parse::<Date>().is_ok();
    let may_be_day = day.parse::<u8>().is_ok_and(|day| (1..=31).contains(&day));
    has_month && may_be_day && date.parse::<Date>().is_err()
}

/// Checks whether the offset of a time is less than a day, as in ISO 8601. A time without an offset
/// passes.
fn has_possible_offset(text: &str) -> bool {
    let offset = Pieces::parse(text).ok().and_then(|pieces| pieces.to_numeric_offset());
    offset.is_none_or(|offset| offset.seconds().abs() < 24 * 60 * 60)
}

/// Parses a moment, which is a time or a duration from now.
fn moment(text: &str, zone: Option<&str>, now: Timestamp) -> Result<Timestamp, WhenError> {
    let text = text.trim();
    let zone = find_zone(zone)?;
    let exact = exact_moment(text, &zone, now)?;
    // Times are stored in milliseconds. With a smaller fraction, the stored moment would differ.
    let at = Timestamp::from_millisecond(exact.as_millisecond()).unwrap_or(exact);
    if at <= now {
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        return Err(WhenError::Past { at, now });
    }
    if at.duration_since(now).as_secs() > LONGEST {
        return Err(WhenError::TooFar(at));
    }
    Ok(at)
}

fn exact_moment(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, WhenError> {
    if text.len() > MAX_TIME || !has_possible_offset(text) {
        return Err(no_moment(text));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(civil) = text.parse::<DateTime>() {
        return to_timestamp(civil, zone).ok_or_else(|| no_moment(text));
    }
    let Ok(span) = text.parse::<Span>() else { return Err(no_moment(text)) };
    if let Ok(later) = now.checked_add(span) {
        return Ok(later);
    }
    // Days and larger units follow the calendar.
    if let Ok(civil) = zone.to_datetime(now).checked_add(span)
        && let Some(later) = to_timestamp(civil, zone)
    {
        return Ok(later);
    }
    if span.is_positive() {
        return Err(WhenError::Beyond(shown(text)));
    }
    Err(no_moment(text))
}

fn to_timestamp(civil: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    zone.to_ambiguous_timestamp(civil).compatible().ok()
}

/// Returns the reason why a text isn't a moment.
fn no_moment(text: &str) -> WhenError {
    let Some(date) = text.get(..10) else { return WhenError::Time(shown(text)) };
    // The last days of the year 9999 are beyond the latest possible moment.
    if date.parse::<Date>().is_ok_and(|date| date.year() == Date::MAX.year()) {
        return WhenError::Beyond(shown(text));
    }
    if is_no_day(date) {
        return WhenError::Day(shown(text));
    }
    WhenError::Time(shown(text))
}

fn shown(text: &str) -> String {
    neutral_line(cut(text, MAX_TIME))
}
