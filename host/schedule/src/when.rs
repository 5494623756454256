//! When a task runs: once, every so many seconds, or by a cron expression.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};

use crate::MAX_MISSED;
use crate::cron::Cron;

/// Bytes of a zone's name.
const MAX_ZONE: usize = 64;

/// Bytes of a time or a duration.
const MAX_TIME: usize = 128;

/// Times whose distance is looked at, to find out how often a task runs.
const LOOKED_AT: usize = 200;

/// The longest period and delay, in seconds: ten years.
const LONGEST: i64 = 10 * 366 * 24 * 3600;

/// When a task runs.
#[derive(Clone, Debug)]
pub enum When {
    /// Once.
    Once(Timestamp),
    /// Again and again.
    Every {
        /// Seconds between two times.
        seconds: i64,
        /// The moment from which they are counted.
        since: Timestamp,
    },
    /// By a cron expression.
    Cron(Box<Cron>, TimeZone),
}

/// Times up to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The latest of them, at most [`MAX_MISSED`], the earliest first.
    pub times: Vec<Timestamp>,
    /// Whether there were more.
    pub more: bool,
}

impl When {
    /// Reads when a task runs. `now`: where a duration and a period begin.
    ///
    /// # Errors
    ///
    /// What is wrong, and the form.
    pub fn parse(
        kind: &str,
        text: &str,
        zone: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, String> {
        if text.len() > 2 * MAX_TIME {
            return Err(format!("when is {} bytes; the limit is {}", text.len(), 2 * MAX_TIME));
        }
        match kind {
            "once" => moment(text, zone, now).map(Self::Once),
            "every" => {
                let seconds = text.trim().parse::<i64>().ok();
                let seconds = seconds.filter(|seconds| (1..=LONGEST).contains(seconds));
                let seconds = seconds.ok_or_else(|| {
                    format!("`{}` is no period: write seconds, 1 to {LONGEST}", text.trim())
                })?;
                Ok(Self::Every { seconds, since: now })
            }
            "cron" => Ok(Self::Cron(Box::new(Cron::parse(text)?), find_zone(zone)?)),
            other => Err(format!("`{other}` is no kind of time: use once, every or cron")),
        }
    }

    /// The first time after `after`.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Once(at) => (*at > after).then_some(*at),
            Self::Every { seconds, since } => {
                // Times are kept in milliseconds, so they are counted in them.
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

    /// The shortest time between two of its next times, if it has several.
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

    /// The times from `first`, which is one, up to `now`.
    pub fn pending(&self, first: Timestamp, now: Timestamp) -> Pending {
        // Nothing is before `first`, so a moment before it is where the search may begin.
        let before = first.as_millisecond().saturating_sub(1);
        let (mut from, mut more) = (before, false);
        if self.collect(before, now).len() > MAX_MISSED {
            more = true;
            // The earliest moment after which there are no more than the limit.
            let mut end = now.as_millisecond();
            while end - from > 1 {
                let middle = from + (end - from) / 2;
                match self.collect(middle, now).len() > MAX_MISSED {
                    true => from = middle,
                    false => end = middle,
                }
            }
            from = end;
        }
        Pending { times: self.collect(from, now), more }
    }

    /// The times after `after`, in milliseconds, up to `now`: at most one more than the limit.
    fn collect(&self, after: i64, now: Timestamp) -> Vec<Timestamp> {
        let mut times = Vec::new();
        let Ok(mut last) = Timestamp::from_millisecond(after) else { return times };
        while let Some(next) = self.next(last).filter(|next| *next <= now) {
            times.push(next);
            if times.len() > MAX_MISSED {
                break;
            }
            last = next;
        }
        times
    }
}

/// The zone of a name. `None`: the machine's.
///
/// # Errors
///
/// There is no such zone.
pub fn find_zone(name: Option<&str>) -> Result<TimeZone, String> {
    let Some(name) = name else {
        // A machine that names no zone has UTC.
        return Ok(TimeZone::try_system().unwrap_or(TimeZone::UTC));
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-+".contains(&byte);
    let known = (1..=MAX_ZONE).contains(&name.len()) && name.bytes().all(allowed);
    let zone = known.then(|| TimeZone::get(name).ok()).flatten();
    zone.ok_or_else(|| {
        let name = berth_contract::text::neutral_line(berth_contract::text::cut(name, MAX_ZONE));
        format!("there is no time zone `{name}`: write a name such as Europe/Berlin, or UTC")
    })
}

/// A moment: a time, or a duration from now.
fn moment(text: &str, zone: Option<&str>, now: Timestamp) -> Result<Timestamp, String> {
    let text = text.trim();
    let zone = find_zone(zone)?;
    let at = if text.len() > MAX_TIME {
        None
    } else if let Ok(at) = text.parse::<Timestamp>() {
        Some(at)
    } else if let Ok(civil) = text.parse::<DateTime>() {
        zone.to_ambiguous_timestamp(civil).compatible().ok()
    } else {
        let later = |span: Span| match now.checked_add(span) {
            Ok(later) => Some(later),
            // Days and longer are those of the calendar.
            Err(_) => {
                let civil = zone.to_datetime(now).checked_add(span).ok()?;
                zone.to_ambiguous_timestamp(civil).compatible().ok()
            }
        };
        text.parse::<Span>().ok().and_then(later)
    };
    let at = at.ok_or_else(|| {
        let shown = berth_contract::text::neutral_line(berth_contract::text::cut(text, MAX_TIME));
        format!(
            "`{shown}` is no time: write one such as 2030-05-01T09:00:00Z, or a duration from now such as PT15M or 15m"
        )
    })?;
    // Times are kept in milliseconds. A part of one would be another moment after it was kept.
    let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    if at <= now {
        return Err(format!("{at} is in the past; it is {now} now"));
    }
    if at.duration_since(now).as_secs() > LONGEST {
        return Err(format!("{at} is more than ten years away, the limit"));
    }
    Ok(at)
}
