//! A year of times in zones whose clocks change, against two readers that know nothing of each
//! other: a model of what cron(8) of Debian says, and the crate `croner`.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use toolhold_schedule::{Cron, When, clock_change, find_zone};

/// Zones, and a year in which something happens: summer time in both hemispheres, one of half an
/// hour, none, one that is left for a month, and a day that was left out. Years that are over: the
/// two readers have data about zones of different ages, which differ about the future.
const ZONES: [(&str, i16); 8] = [
    ("Europe/Berlin", 2024),
    ("America/New_York", 2024),
    ("Australia/Lord_Howe", 2024),
    ("Asia/Kolkata", 2024),
    ("Africa/Casablanca", 2023),
    ("America/Havana", 2024),
    ("Pacific/Apia", 2011),
    ("UTC", 2028),
];

const EXPRESSIONS: [&str; 18] = [
    "30 2 * * *",
    "0 0 * * *",
    "15 0 * * 0",
    "*/15 * * * *",
    "5 * * * *",
    "*/10 1-3 * * *",
    "0 */2 * * *",
    "0,30 1,2,3 * * *",
    "59 23 28-31 * *",
    "0 12 29 2 *",
    "0 9 13 * 5",
    "0 9 */7 * 1",
    "1 0 1 1,4,10 *",
    "45 2 * 3,10,11 sun",
    "0 3 * * mon-fri",
    "7-9 2 * * *",
    "0 4 31 * *",
    "20-40/5 1 * apr 7",
];

/// A field as cron(5) describes it, value by value.
fn field(text: &str, from: u8, to: u8, names: &[&str]) -> Vec<bool> {
    let value = |word: &str| {
        let named = names.iter().position(|name| *name == word.to_ascii_lowercase());
        named.map_or_else(
            || word.parse().expect("a number"),
            |at| u8::try_from(at).expect("it is small") + from,
        )
    };
    let mut set = vec![false; usize::from(to) + 1];
    for part in text.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (from, to),
            Some((first, last)) => (value(first), value(last)),
            None => (value(range), value(range)),
        };
        let mut at = first;
        while at <= last {
            set[usize::from(at)] = true;
            at += step.parse::<u8>().expect("a number");
        }
    }
    set
}

struct Model {
    fields: [Vec<bool>; 5],
    day_or_weekday: bool,
    wildcard: bool,
}

impl Model {
    fn new(expression: &str) -> Self {
        let words: Vec<&str> = expression.split(' ').collect();
        let months =
            ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
        let days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
        let mut weekdays = field(words[4], 0, 7, &days);
        weekdays[0] |= weekdays[7];
        Self {
            fields: [
                field(words[0], 0, 59, &[]),
                field(words[1], 0, 23, &[]),
                field(words[2], 1, 31, &[]),
                field(words[3], 1, 12, &months),
                weekdays,
            ],
            day_or_weekday: !words[2].starts_with('*') && !words[4].starts_with('*'),
            wildcard: words[0].starts_with('*') || words[1].starts_with('*'),
        }
    }

    fn fits(&self, at: DateTime) -> bool {
        let has = |field: usize, value: i8| {
            self.fields[field][usize::try_from(value).expect("it is positive")]
        };
        let (day, weekday) = (has(2, at.day()), has(4, at.weekday().to_sunday_zero_offset()));
        has(0, at.minute())
            && has(1, at.hour())
            && has(3, at.month())
            && if self.day_or_weekday { day || weekday } else { day && weekday }
    }
}

/// What the clock on the wall shows in each minute.
fn minutes(zone: &TimeZone, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, DateTime)> {
    let count = to.duration_since(from).as_secs() / 60;
    (0..count)
        .map(|minute| {
            let at = from + SignedDuration::from_secs(minute * 60);
            (at, zone.to_datetime(at))
        })
        .collect()
}

/// cron(8): "Local time changes of less than three hours, such as those caused by the Daylight
/// Saving changes, are handled in a special way. This only applies to jobs that run at a specific
/// time and jobs that run with a granularity greater than one hour. Jobs that run more frequently
/// are scheduled normally. If time was adjusted one hour forward, those jobs that would have run in
/// the interval that has been skipped will be run immediately. Conversely, if time was adjusted
/// backward, running the same job twice is avoided."
fn by_the_manual(expression: &str, minutes: &[(Timestamp, DateTime)]) -> Vec<Timestamp> {
    let model = Model::new(expression);
    let mut runs = Vec::new();
    let mut latest = minutes[0].1;
    let mut before = minutes[0].1 - 1.minute();
    for (at, shown) in minutes {
        let mut due = model.fits(*shown);
        if !model.wildcard {
            let jump = shown.duration_since(before).as_secs() / 60;
            if jump > 1 && jump <= 181 {
                let skipped = (1..jump).map(|minute| before + minute.minutes());
                due |= skipped.into_iter().any(|skipped| model.fits(skipped));
            }
            // What was shown before has had its run.
            due &= *shown > latest || *shown == minutes[0].1;
        }
        latest = latest.max(*shown);
        before = *shown;
        if due {
            runs.push(*at);
        }
    }
    runs
}

fn by_toolhold(
    expression: &str,
    zone: &TimeZone,
    from: Timestamp,
    to: Timestamp,
) -> Vec<Timestamp> {
    let cron = Cron::parse(expression).expect("it is an expression");
    let mut runs = Vec::new();
    let mut last = from - SignedDuration::from_secs(1);
    while let Some(next) = cron.next(last, zone).filter(|next| *next < to) {
        runs.push(next);
        last = next;
    }
    runs
}

fn year(year: i16) -> (Timestamp, Timestamp) {
    let start = |year: i16| format!("{year:04}-01-01T12:00:00Z").parse().expect("it is a time");
    (start(year), start(year + 1))
}

#[test]
fn every_zone_has_the_times_of_the_manual() {
    for (name, in_year) in ZONES {
        let zone = find_zone(Some(name)).expect("the zone is known");
        let (from, to) = year(in_year);
        let minutes = minutes(&zone, from, to);
        for expression in EXPRESSIONS {
            let expected = by_the_manual(expression, &minutes);
            let found = by_toolhold(expression, &zone, from, to);
            let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!(differs, None, "{expression} in {name}");
            assert_eq!(found.len(), expected.len(), "{expression} in {name}");
        }
    }
}

/// The times of `croner`.
fn by_croner(expression: &str, name: &str, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let cron: croner::Cron = expression.parse().expect("it is an expression");
    let convert = |at: Timestamp| {
        jiff02::Timestamp::from_second(at.as_second()).expect("it is a time").in_tz(name)
    };
    let mut last = convert(from - SignedDuration::from_secs(1)).expect("the zone is known");
    let mut runs = Vec::new();
    while let Ok(next) = cron.find_next_occurrence(&last, false) {
        let at = Timestamp::from_second(next.timestamp().as_second()).expect("it is a time");
        if at >= to {
            break;
        }
        runs.push(at);
        last = next;
    }
    runs
}

/// Where the clock doesn't change within two days, both say the same. Where it does, Toolhold keeps
/// to the manual of cron, as the test above shows. So it does for `*/7` as the day beside a
/// weekday: it begins with `*`, so both have to fit. For `croner`, one is enough.
#[test]
fn croner_differs_only_near_changes_of_the_clock() {
    for (name, in_year) in ZONES {
        let zone = find_zone(Some(name)).expect("the zone is known");
        let (from, to) = year(in_year);
        for expression in EXPRESSIONS.into_iter().filter(|it| *it != "0 9 */7 * 1") {
            let ours: BTreeSet<_> = by_toolhold(expression, &zone, from, to).into_iter().collect();
            let theirs = by_croner(expression, name, from, to).into_iter().collect();
            for at in ours.symmetric_difference(&theirs) {
                let near = zone.following(*at - SignedDuration::from_hours(50)).next().is_some_and(
                    |change| change.timestamp() < *at + SignedDuration::from_hours(50),
                );
                assert!(near, "{expression} in {name}: {at}");
            }
        }
    }
}

#[test]
fn seconds_and_short_names_count() {
    let next = |expression: &str, after: &str| {
        let cron = Cron::parse(expression).expect(expression);
        let after = after.parse().expect("it is a time");
        cron.next(after, &TimeZone::UTC).expect("it runs").to_string()
    };
    assert_eq!(next("*/20 * * * * *", "2026-01-01T00:00:01.5Z"), "2026-01-01T00:00:20Z");
    assert_eq!(next("30 59 23 31 12 *", "2026-01-01T00:00:00Z"), "2026-12-31T23:59:30Z");
    assert_eq!(next("@hourly", "2026-01-01T00:00:00Z"), "2026-01-01T01:00:00Z");
    assert_eq!(next("@Daily", "2026-01-01T00:00:00Z"), "2026-01-02T00:00:00Z");
    assert_eq!(next("@weekly", "2026-01-01T00:00:00Z"), "2026-01-04T00:00:00Z");
    assert_eq!(next("0 0 29 2 */7", "2026-01-01T00:00:00Z"), "2032-02-29T00:00:00Z");
}

#[test]
fn what_is_no_expression_gets_the_form() {
    for wrong in [
        "",
        "* * * *",
        "* * * * * * *",
        "every morning",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "1/5 * * * *",
        "-1 * * * *",
        "+1 * * * *",
        "@reboot",
        "@",
        "L * * * *",
        "* * L * *",
        "* * * * 5#2",
        "1,,2 * * * *",
        "٣ * * * *",
        "0 0 31 2 *",
        "0 0 30 feb */2",
    ] {
        let error = Cron::parse(wrong).expect_err(wrong).to_string();
        assert!(error.contains("30 9 * * 1-5") || error.contains("never runs"), "{wrong}: {error}");
    }
    assert!(Cron::parse(&"0 ".repeat(1000)).is_err());
}

#[test]
fn ranges_end_with_sunday_and_question_mark_is_any_day() {
    for (written, same) in [
        ("0 9 * * SAT-SUN", "0 9 * * 6,0"),
        ("0 9 * * fri-sun", "0 9 * * 5,6,0"),
        ("0 9 * * MON-SUN", "0 9 * * 1-7"),
        ("0 9 * * 6-0", "0 9 * * 0,6"),
        ("0 9 ? * MON", "0 9 * * 1"),
        ("0 9 15 * ?", "0 9 15 * *"),
        ("0 0 9 ? * MON-FRI", "0 9 * * 1-5"),
    ] {
        assert_eq!(Cron::parse(written).as_ref(), Ok(&Cron::parse(same).expect(same)), "{written}");
    }
    for wrong in ["? * * * *", "* ? * * *", "* * * ? *", "* * 5? * *", "0 9 * * SUN-SUN-MON"] {
        Cron::parse(wrong).expect_err(wrong);
    }
}

#[test]
fn time_is_a_moment_or_a_duration() {
    let now: Timestamp = "2026-03-28T12:00:00Z".parse().expect("it is a time");
    let once = |text: &str, zone: Option<&str>| match When::parse("once", text, zone, now) {
        Ok(When::Once(at)) => at.to_string(),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(once("2026-03-28T14:00:00+01:00", None), "2026-03-28T13:00:00Z");
    assert_eq!(once("2026-03-29T09:00", Some("Europe/Berlin")), "2026-03-29T07:00:00Z");
    // In the hour that is left out.
    assert_eq!(once("2026-03-29T02:30", Some("Europe/Berlin")), "2026-03-29T01:30:00Z");
    assert_eq!(once("PT15M", None), "2026-03-28T12:15:00Z");
    assert_eq!(once("15m", None), "2026-03-28T12:15:00Z");
    assert_eq!(once("2h 30m", None), "2026-03-28T14:30:00Z");
    // A day of the calendar has 23 hours there.
    assert_eq!(once("P1D", Some("Europe/Berlin")), "2026-03-29T11:00:00Z");
    for wrong in ["", "tomorrow", "2020-01-01T00:00:00Z", "-PT5M", "P100Y", "2026-13-01", "15"] {
        assert!(When::parse("once", wrong, None, now).is_err(), "{wrong}");
    }
    for zone in ["", "Nowhere", "../../etc/passwd", "Europe/Berlin\u{0}", "/etc/localtime"] {
        assert!(When::parse("once", "15m", Some(zone), now).is_err(), "{zone:?}");
    }
    for wrong in ["0", "-5", "1.5", "99999999999", "x"] {
        assert!(When::parse("every", wrong, None, now).is_err(), "{wrong}");
    }
}

#[test]
fn many_missed_times_are_cut_to_the_latest() {
    let now: Timestamp = "2026-06-01T00:00:30Z".parse().expect("it is a time");
    let since: Timestamp = "2025-06-01T00:00:00Z".parse().expect("it is a time");
    for (kind, text) in [("every", "60"), ("cron", "* * * * *"), ("cron", "*/10 * * * * *")] {
        let when = When::parse(kind, text, Some("UTC"), since).expect("it is valid");
        let first = when.next(since).expect("it runs");
        let pending = when.pending(first, now);
        assert_eq!((pending.times.len(), pending.more), (100, true), "{text}");
        let last = *pending.times.last().expect("there are some");
        assert!(when.next(last).expect("it runs") > now, "{text}");
        let close = when.pending(last, now);
        assert_eq!((close.times, close.more), (vec![last], false), "{text}");
    }
}

#[test]
fn time_that_is_too_far_away_gets_the_limit() {
    let now = "2026-06-01T00:00:00Z".parse().expect("it is a time");
    for far in [
        "9999-12-31T23:59:59Z",
        "9999-12-31",
        "9999-01-01T00:00:00",
        "2037-06-01T00:00:00Z",
        "P11Y",
        "P9000Y",
        "99999999h",
    ] {
        let error = When::parse("once", far, Some("UTC"), now).expect_err(far).to_string();
        assert!(error.contains("the limit is ten years"), "{error}");
    }
    assert!(When::parse("once", "2036-05-01T00:00:00Z", None, now).is_ok());
    for offset in ["+25:00", "-24:00", "+24"] {
        let text = format!("2030-05-01T09:00:00{offset}");
        let error = When::parse("once", &text, None, now).expect_err(offset).to_string();
        assert!(error.contains("isn't a valid time"), "{error}");
    }
    assert!(When::parse("once", "2030-05-01T09:00:00+23:59", None, now).is_ok());
    let error = When::parse("once", "9999-99-99", None, now).expect_err("it isn't a valid time");
    assert!(error.to_string().contains("isn't a valid time"), "{error}");
}

#[test]
fn time_in_a_change_of_the_clock_is_explained() {
    let berlin = Some("Europe/Berlin");
    let said = |text: &str| clock_change("once", text, berlin);
    let gap = said("2027-03-28T02:30:00").expect("it doesn't exist");
    assert!(gap.contains("doesn't exist") && gap.contains("2027-03-28T03:30:00+02:00"), "{gap}");
    let fold = said("2027-10-31 02:30").expect("it comes twice");
    assert!(fold.contains("twice") && fold.contains("2027-10-31T02:30:00+02:00"), "{fold}");
    for clear in ["2027-03-28T01:30:00", "2027-03-28T02:30:00+01:00", "PT15M", "nonsense"] {
        assert_eq!(said(clear), None, "{clear}");
    }
}
