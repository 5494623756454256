//! A runner that is killed at any moment: no time of a task has two effects, and each has one,
//! unless its run is shown as interrupted.

#[path = "../../store/tests/killing/mod.rs"]
mod killing;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use killing::kill_after;
use toolhold_contract::{TaskAction, TaskOrder};
use toolhold_schedule::{Maker, Owner, Quotas, RunEnd, RunResult, Schedule};

/// The variable that names the folder to a runner, and the one for the moment where it begins.
const FOLDER: &str = "TOOLHOLD_SCHEDULE_TEST_FOLDER";
const NOW: &str = "TOOLHOLD_SCHEDULE_TEST_NOW";

const STEADY: [&str; 3] = ["a", "b", "c"];

fn owner() -> Owner {
    Owner {
        plugin: "scheduler".to_owned(),
        principal: "user".to_owned(),
        directory: "/project".to_owned(),
    }
}

fn put(schedule: &Schedule, name: &str, now: Timestamp) {
    let order = TaskOrder {
        name: name.to_owned(),
        kind: "every".to_owned(),
        when: "60".to_owned(),
        zone: None,
        missed: "all".to_owned(),
        action: TaskAction::Prompt("x".to_owned()),
    };
    let quotas = Quotas { of_plugin: 100, of_principal: 100, interval: 60 };
    schedule.put(&owner(), &Maker::default(), order, quotas, now).expect("it is kept");
}

/// The process that is killed: it runs tasks and changes others, without an end.
fn run_on(folder: &Path, mut now: Timestamp) {
    let schedule = Schedule::in_data(folder);
    let _lock = schedule.become_runner().expect("it is free");
    schedule.take_over(now).expect("it is written");
    let mut effects =
        OpenOptions::new().append(true).open(folder.join("effects")).expect("it is there");
    for tick in 0.. {
        now += SignedDuration::from_secs(60);
        while let Some(run) = schedule.claim(now, &[]).expect("it is read") {
            if !schedule.start(&run, now).expect("it is written") {
                continue;
            }
            let line = format!("{} {}\n", run.name, run.due.as_second());
            effects.write_all(line.as_bytes()).expect("it is written");
            let result = RunResult { end: RunEnd::Done, output: line };
            schedule.end(&run, &result, now).expect("it is written");
        }
        let name = format!("other {}", tick % 5);
        match tick % 3 {
            0 => put(&schedule, &name, now),
            1 => drop(schedule.pause(&owner(), &name, tick % 2 == 0, now)),
            _ => drop(schedule.remove(&owner(), &name)),
        }
        println!("tick {}", now.as_second());
    }
}

/// Kills a runner `times` times, each at another moment of its work.
fn kill(times: u64) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path();
    fs::write(folder.join("effects"), "").expect("it is written");
    let begin = Timestamp::from_second(1_800_000_000).expect("it is a time");
    let schedule = Schedule::in_data(folder);
    for name in STEADY {
        put(&schedule, name, begin);
    }
    let mut now = begin;
    let mut interrupted = BTreeSet::new();
    for round in 0..times {
        let second = now.as_second().to_string();
        let seen = kill_after(
            "soak_no_time_runs_twice_or_never",
            &[(FOLDER, folder.as_os_str()), (NOW, second.as_ref())],
            "tick ",
            round % 3 + 1,
            Duration::from_micros(round * 1237 % 9000),
        );
        let seen = seen.and_then(|second| Timestamp::from_second(i64::try_from(second).ok()?).ok());
        now = now.max(seen.unwrap_or(now));
        // What it was at is shown, whoever takes over.
        schedule.take_over(now).expect("it is written");
        for name in STEADY {
            for run in schedule.runs_of(&owner(), name).expect("they are read") {
                if run.state == "interrupted" {
                    let due: Timestamp = run.due.parse().expect("it is a time");
                    interrupted.insert((name.to_owned(), due.as_second()));
                }
            }
        }
    }
    // Whatever is left runs now.
    now += SignedDuration::from_secs(60);
    let mut counts: BTreeMap<(String, i64), usize> = BTreeMap::new();
    let text = fs::read_to_string(folder.join("effects")).expect("it is read");
    for line in text.lines() {
        let (name, due) = line.rsplit_once(' ').expect("a name and a time");
        *counts.entry((name.to_owned(), due.parse().expect("a number"))).or_default() += 1;
    }
    while let Some(run) = schedule.claim(now, &[]).expect("it is read") {
        assert!(schedule.start(&run, now).expect("it is written"));
        *counts.entry((run.name.clone(), run.due.as_second())).or_default() += 1;
        let result = RunResult { end: RunEnd::Done, output: String::new() };
        schedule.end(&run, &result, now).expect("it is written");
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(interrupted.len() as u64 <= times, "a runner dies in one run at most");
    for name in STEADY {
        let mut due = begin;
        loop {
            due += SignedDuration::from_secs(60);
            if due > now {
                break;
            }
            let key = (name.to_owned(), due.as_second());
            assert!(
                counts.contains_key(&key) || interrupted.contains(&key),
                "{name} at {due} never ran; {} kills, {} interrupted",
                times,
                interrupted.len()
            );
        }
    }
}

#[test]
fn soak_no_time_runs_twice_or_never() {
    match std::env::var_os(FOLDER) {
        Some(folder) => {
            let now = std::env::var(NOW).ok().and_then(|now| now.parse().ok());
            let now = Timestamp::from_second(now.expect("a number")).expect("it is a time");
            run_on(Path::new(&folder), now);
        }
        None => kill(if std::env::var_os("TOOLHOLD_SOAK").is_some() { 400 } else { 25 }),
    }
}
