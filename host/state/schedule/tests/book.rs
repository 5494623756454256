//! Tasks and their runs, with the time as a parameter.

use std::os::unix::fs::DirBuilderExt as _;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tempfile::TempDir;
use toolhold_contract::{TaskAction, TaskOrder, TaskRun};
use toolhold_schedule::{
    ClaimedRun, Maker, Owner, Quotas, RunEnd, RunResult, RunnerProcess, Schedule, ScheduleError,
};

const QUOTAS: Quotas = Quotas { of_plugin: 2000, of_principal: 2000, interval: 60 };

struct Scene {
    folder: TempDir,
    schedule: Schedule,
}

impl Scene {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let schedule = Schedule::in_data(folder.path());
        Self { folder, schedule }
    }

    fn put(&self, name: &str, kind: &str, when: &str, missed: &str, now: Timestamp) {
        let order = order(name, kind, when, missed);
        self.schedule.put(&owner(), &Maker::default(), order, QUOTAS, now).expect("it is kept");
    }

    /// Runs everything that is due, and returns the times that the runs were for.
    fn run_all(&self, now: Timestamp) -> Vec<String> {
        let mut due = Vec::new();
        while let Some(run) = self.schedule.claim(now, &[]).expect("it is claimed") {
            assert!(self.schedule.start(&run, now).expect("it starts"));
            self.end(&run, now);
            due.push(run.due.to_string());
        }
        due
    }

    fn end(&self, run: &ClaimedRun, now: Timestamp) {
        self.end_as(run, RunEnd::Done, now);
    }

    fn end_as(&self, run: &ClaimedRun, end: RunEnd, now: Timestamp) {
        let result = RunResult { end, output: "done\u{1b}[31m".to_owned() };
        self.schedule.end(run, &result, now).expect("its end is kept");
    }

    fn runs(&self, name: &str) -> Vec<TaskRun> {
        self.schedule.runs_of(&owner(), name).expect("they are read")
    }

    fn next(&self, name: &str) -> Option<String> {
        let tasks = self.schedule.tasks(Some(&owner())).expect("they are read");
        tasks.into_iter().find(|task| task.state.order.name == name)?.state.next
    }
}

fn owner() -> Owner {
    Owner {
        plugin: "scheduler".to_owned(),
        principal: "user".to_owned(),
        directory: "/project".to_owned(),
    }
}

fn order(name: &str, kind: &str, when: &str, missed: &str) -> TaskOrder {
    TaskOrder {
        name: name.to_owned(),
        kind: kind.to_owned(),
        when: when.to_owned(),
        zone: Some("UTC".to_owned()),
        missed: missed.to_owned(),
        action: TaskAction::Call { tool: "read".to_owned(), arguments: json!({}) },
    }
}

fn at(text: &str) -> Timestamp {
    format!("2026-06-01T{text}Z").parse().expect("it is a time")
}

#[test]
fn task_runs_at_its_times_and_at_no_others() {
    let scene = Scene::new();
    scene.put("t", "cron", "0 * * * *", "once", at("00:30:00"));
    assert_eq!(scene.next("t").as_deref(), Some("2026-06-01T01:00:00+00:00"));
    assert!(scene.run_all(at("00:59:59")).is_empty());
    assert_eq!(scene.run_all(at("01:00:00")), ["2026-06-01T01:00:00Z"]);
    assert!(scene.run_all(at("01:00:00")).is_empty());
    assert!(scene.run_all(at("01:59:59")).is_empty());
    assert_eq!(scene.run_all(at("02:00:03")), ["2026-06-01T02:00:00Z"]);
    let runs = scene.runs("t");
    assert_eq!((runs.len(), &*runs[0].state, runs[0].missed), (2, "done", 0));
    assert!(!runs[0].output.contains('\u{1b}'), "{runs:?}");
}

#[test]
fn missed_times_follow_the_policy() {
    let made = at("00:30:00");
    let back = at("10:10:00");
    let scene = Scene::new();
    scene.put("once", "cron", "0 * * * *", "once", made);
    assert_eq!(scene.run_all(back), ["2026-06-01T10:00:00Z"]);
    assert_eq!(scene.runs("once")[0].missed, 9);
    assert!(scene.run_all(at("10:59:59")).is_empty());

    let scene = Scene::new();
    scene.put("all", "cron", "0 * * * *", "all", made);
    let due = scene.run_all(back);
    assert_eq!(
        (due.len(), &*due[0], &*due[9]),
        (10, "2026-06-01T01:00:00Z", "2026-06-01T10:00:00Z")
    );
    assert!(scene.run_all(back).is_empty());
    assert_eq!(scene.run_all(at("11:00:00")).len(), 1);

    let scene = Scene::new();
    scene.put("skip", "cron", "0 * * * *", "skip", made);
    assert!(scene.run_all(back).is_empty());
    let runs = scene.runs("skip");
    assert_eq!(
        (&*runs[0].state, runs[0].missed, &*runs[0].due),
        ("skipped", 9, "2026-06-01T10:00:00+00:00")
    );
    assert_eq!(scene.run_all(at("11:00:20")), ["2026-06-01T11:00:00Z"]);

    for (missed, runs) in [("once", 1), ("all", 1), ("skip", 0)] {
        let scene = Scene::new();
        scene.put("late", "once", "15m", missed, made);
        assert_eq!(scene.run_all(back).len(), runs, "{missed}");
        assert_eq!(scene.next("late"), None, "{missed}");
        assert!(scene.run_all(at("12:00:00")).is_empty(), "{missed}");
    }
}

#[test]
fn one_skipped_time_has_no_other_before_it() {
    let scene = Scene::new();
    scene.put("once", "once", "15m", "skip", at("00:00:00"));
    assert!(scene.run_all(at("01:00:00")).is_empty());
    scene.put("two", "cron", "0 * * * *", "skip", at("01:30:00"));
    // The one at two o'clock passed, and the one at three runs.
    assert_eq!(scene.run_all(at("03:00:10")), ["2026-06-01T03:00:00Z"]);
    for (name, due) in [("once", "00:15:00"), ("two", "02:00:00")] {
        let skipped = scene.runs(name).into_iter().find(|run| run.state == "skipped");
        let skipped = skipped.expect("it is noted");
        assert_eq!((skipped.missed, skipped.due), (0, format!("2026-06-01T{due}+00:00")), "{name}");
        assert_eq!(skipped.output, "no process ran tasks, so 1 time passed without a run");
    }
}

#[test]
fn more_missed_times_than_are_counted_are_said_to_be_more() {
    let scene = Scene::new();
    for missed in ["once", "skip"] {
        scene.put(missed, "cron", "* * * * *", missed, at("00:30:00"));
    }
    assert_eq!(scene.run_all(at("10:10:30")), ["2026-06-01T10:10:00Z"; 2]);
    assert_eq!(scene.runs("once")[0].missed, 100);
    let skipped = scene.runs("skip").into_iter().find(|run| run.state == "skipped");
    let skipped = skipped.expect("it is noted");
    assert_eq!(skipped.missed, 99, "those before the one that it is for");
    assert_eq!(skipped.output, "no process ran tasks, so 100 times or more passed without a run");
}

#[test]
fn part_of_a_millisecond_is_no_second_run() {
    let scene = Scene::new();
    scene.put("t", "once", "2026-06-01T00:15:00.27715148Z", "once", at("00:00:00"));
    assert_eq!(scene.run_all(at("00:15:00.27705")).len(), 1);
    for later in ["00:15:00.2771", "00:15:00.2772", "00:15:01"] {
        assert!(scene.run_all(at(later)).is_empty(), "{later}");
    }
}

#[test]
fn a_year_of_missed_minutes_is_bounded() {
    let scene = Scene::new();
    let made = at("00:00:00");
    scene.put("all", "every", "60", "all", made);
    let back = made + SignedDuration::from_hours(365 * 24);
    assert_eq!(scene.run_all(back).len(), 100);
    assert_eq!(scene.runs("all").len(), 20);
}

#[test]
fn clock_that_jumps_back_repeats_nothing() {
    let scene = Scene::new();
    scene.put("t", "every", "600", "all", at("05:00:00"));
    assert_eq!(scene.run_all(at("06:00:00")).len(), 6);
    // By less than three hours: the times until 06:00 have had their runs.
    for earlier in ["04:30:00", "05:30:00", "05:59:59", "06:00:00"] {
        assert!(scene.run_all(at(earlier)).is_empty(), "{earlier}");
    }
    assert_eq!(scene.run_all(at("06:10:00")), ["2026-06-01T06:10:00Z"]);
}

#[test]
fn clock_that_was_years_ahead_stops_no_task() {
    let scene = Scene::new();
    scene.put("t", "cron", "0 * * * *", "once", at("00:30:00"));
    let wrong = at("00:00:00") + SignedDuration::from_hours(20 * 366 * 24);
    assert_eq!(scene.run_all(wrong).len(), 1);
    assert!(scene.run_all(at("00:40:00")).is_empty());
    assert_eq!(scene.run_all(at("01:00:00")), ["2026-06-01T01:00:00Z"]);
}

#[test]
fn claimed_run_starts_later_and_started_one_never_again() {
    let scene = Scene::new();
    scene.put("t", "every", "60", "once", at("00:00:00"));
    let claimed = scene.schedule.claim(at("00:01:00"), &[]).expect("read").expect("it is due");
    // The runner dies here: the next one starts the run.
    let other = Schedule::in_data(scene.folder.path());
    assert_eq!(other.take_over(at("00:01:10")).expect("read"), 0);
    let again = other.claim(at("00:01:10"), &[]).expect("read").expect("it waits");
    assert_eq!(again, claimed);
    assert!(other.start(&again, at("00:01:10")).expect("written"));
    assert!(!other.start(&again, at("00:01:10")).expect("written"), "not twice");
    // And here: it isn't repeated, and that is shown.
    let third = Schedule::in_data(scene.folder.path());
    assert_eq!(third.take_over(at("00:01:20")).expect("read"), 1);
    assert_eq!(third.claim(at("00:01:30"), &[]).expect("read"), None);
    let runs = scene.runs("t");
    assert_eq!((runs.len(), &*runs[0].state), (1, "interrupted"));
    assert!(runs[0].output.contains("not repeated"), "{runs:?}");
}

#[test]
fn busy_task_waits_and_others_run() {
    let scene = Scene::new();
    scene.put("a", "every", "60", "once", at("00:00:00"));
    scene.put("b", "every", "60", "once", at("00:00:01"));
    let first = scene.schedule.claim(at("00:02:00"), &[]).expect("read").expect("it is due");
    assert_eq!(first.name, "a");
    assert!(scene.schedule.start(&first, at("00:02:00")).expect("written"));
    let busy = [first.task];
    let second = scene.schedule.claim(at("00:05:00"), &busy).expect("read").expect("it is due");
    assert_eq!(second.name, "b");
    assert!(scene.schedule.start(&second, at("00:05:00")).expect("written"));
    assert_eq!(
        scene.schedule.claim(at("00:05:00"), &[first.task, second.task]).expect("read"),
        None
    );
    assert_eq!(scene.schedule.next_due(&[first.task, second.task]).expect("read"), None);
}

#[test]
fn removed_and_paused_tasks_do_not_run() {
    let scene = Scene::new();
    scene.put("t", "every", "60", "all", at("00:00:00"));
    let run = scene.schedule.claim(at("00:01:00"), &[]).expect("read").expect("it is due");
    assert!(scene.schedule.remove(&owner(), "t").expect("written"));
    assert!(!scene.schedule.start(&run, at("00:01:00")).expect("written"));
    assert!(!scene.schedule.remove(&owner(), "t").expect("written"));

    scene.put("t", "every", "60", "all", at("00:00:00"));
    assert!(scene.schedule.pause(&owner(), "t", true, at("00:00:10")).expect("written"));
    assert!(scene.run_all(at("03:00:00")).is_empty());
    assert!(scene.schedule.pause(&owner(), "t", false, at("03:00:10")).expect("written"));
    assert!(scene.run_all(at("03:00:30")).is_empty(), "the pause is not made up for");
    assert_eq!(scene.run_all(at("03:01:00")).len(), 1);
    assert!(scene.schedule.run_soon(&owner(), "t").expect("written"));
    assert_eq!(scene.run_all(at("03:01:10")).len(), 1);
    assert!(!scene.schedule.run_soon(&owner(), "other").expect("written"));
}

#[test]
fn owner_sees_and_changes_no_other_tasks() {
    let scene = Scene::new();
    scene.put("t", "every", "60", "once", at("00:00:00"));
    let others = [
        Owner { plugin: "notes".to_owned(), ..owner() },
        Owner { principal: "mcp someone".to_owned(), ..owner() },
        Owner { directory: "/other".to_owned(), ..owner() },
    ];
    for other in others {
        assert!(scene.schedule.tasks(Some(&other)).expect("read").is_empty());
        assert!(scene.schedule.runs_of(&other, "t").expect("read").is_empty());
        assert!(!scene.schedule.remove(&other, "t").expect("written"));
        assert!(!scene.schedule.pause(&other, "t", true, at("00:00:01")).expect("written"));
        assert!(!scene.schedule.run_soon(&other, "t").expect("written"));
        // The same name is another task.
        let order = order("t", "every", "120", "once");
        scene.schedule.put(&other, &Maker::default(), order, QUOTAS, at("00:00:00")).expect("kept");
    }
    let all = scene.schedule.tasks(None).expect("read");
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|task| !task.state.paused));
    assert_eq!(scene.schedule.tasks(Some(&owner())).expect("read")[0].state.order.when, "60");
}

#[test]
fn ten_thousand_tasks_stop_at_the_limits() {
    let scene = Scene::new();
    let put = |name: usize, owner: &Owner, quotas: Quotas| {
        let order = order(&format!("t{name}"), "cron", "0 4 * * *", "once");
        scene.schedule.put(owner, &Maker::default(), order, quotas, at("00:00:00"))
    };
    let few = Quotas { of_plugin: 3, of_principal: 5, interval: 60 };
    let notes = Owner { plugin: "notes".to_owned(), ..owner() };
    let refused = |result: Result<_, ScheduleError>, what: &str| match result {
        Err(ScheduleError::Limit(limit)) => {
            assert!(limit.to_string().contains(what), "{limit}");
        }
        other => panic!("{what}: {other:?}"),
    };
    for name in 0..3 {
        put(name, &notes, few).expect("there is room");
    }
    refused(put(3, &notes, few), "`notes` has 3 tasks");
    put(2, &notes, few).expect("it replaces one");
    let more = Quotas { of_plugin: 100, ..few };
    for name in 0..2 {
        put(name, &owner(), more).expect("there is room");
    }
    refused(put(2, &owner(), more), "you have 5 tasks");
    let elsewhere = Owner { directory: "/other".to_owned(), ..owner() };
    refused(
        put(2, &elsewhere, more),
        "you have 5 tasks; the limit is 5 (`max_tasks` in [tools.scheduler]); 0 of these tasks are listed \
         here",
    );
    let mut kept = 5;
    for name in 2..10_000 {
        match put(name, &owner(), QUOTAS) {
            Ok(_) => kept += 1,
            Err(error) => {
                refused(Err(error), "there are 1000 tasks");
                break;
            }
        }
    }
    assert_eq!(kept, 1000);
}

#[test]
fn finished_task_gives_way_and_no_other() {
    let scene = Scene::new();
    let put = |owner: &Owner, name: &str, kind: &str, when: &str, most: u64| {
        let quotas = Quotas { of_plugin: 2000, of_principal: most, interval: 60 };
        let order = order(name, kind, when, "once");
        let kept = scene.schedule.put(owner, &Maker::default(), order, quotas, at("00:00:00"))?;
        let names = kept.gave_way.into_iter().map(|task| task.state.order.name);
        Ok::<_, ScheduleError>(names.collect::<Vec<_>>())
    };
    let elsewhere = Owner { directory: "/other".to_owned(), ..owner() };
    let notes = Owner { plugin: "notes".to_owned(), ..owner() };
    let caller = Owner { principal: "caller".to_owned(), ..owner() };
    for (owner, name, kind, when) in [
        (&elsewhere, "first", "once", "1m"),
        (&owner(), "third", "once", "3m"),
        (&owner(), "second", "once", "2m"),
        (&owner(), "paused", "once", "4m"),
        (&owner(), "again", "once", "5m"),
        (&owner(), "later", "once", "2h"),
        (&owner(), "daily", "cron", "@daily"),
        (&notes, "of another plugin", "once", "1m"),
        (&caller, "of another principal", "once", "1m"),
    ] {
        put(owner, name, kind, when, 100).expect("there is room");
    }
    scene.schedule.pause(&owner(), "paused", true, at("00:00:00")).expect("it is paused");
    scene.run_all(at("01:00:00"));
    scene.schedule.run_soon(&owner(), "again").expect("it runs once more");
    let names = || {
        let tasks = scene.schedule.tasks(None).expect("they are read");
        tasks.into_iter().map(|task| task.state.order.name).collect::<Vec<_>>()
    };
    let before = names();
    // A quota that stays reached removes nothing.
    assert!(put(&owner(), "a", "cron", "@daily", 1).is_err());
    assert_eq!(names(), before);
    // Those of this directory go first, by their time.
    for (name, gone) in [("a", "second"), ("b", "third"), ("c", "first")] {
        assert_eq!(put(&owner(), name, "cron", "@daily", 8).expect("there is room"), [gone]);
        assert!(scene.runs(gone).is_empty(), "{gone}: its results are removed");
    }
    // What is left has a time, waits for a run, or is another's.
    assert!(put(&owner(), "d", "cron", "@daily", 8).is_err());
    let run = scene.schedule.claim(at("01:00:00"), &[]).expect("it is read").expect("it is due");
    assert!(scene.schedule.start(&run, at("01:00:00")).expect("it starts"));
    assert!(put(&owner(), "d", "cron", "@daily", 8).is_err(), "one runs");
    scene.end(&run, at("01:00:01"));
    assert_eq!(put(&owner(), "d", "cron", "@daily", 8).expect("there is room"), ["again"]);
    let expected = [
        "a",
        "b",
        "c",
        "d",
        "daily",
        "later",
        "of another plugin",
        "of another principal",
        "paused",
    ];
    assert_eq!(names(), expected);
    let of_plugin = Quotas { of_plugin: 1, of_principal: 100, interval: 60 };
    let next = order("e", "cron", "@daily", "once");
    let kept = scene.schedule.put(&notes, &Maker::default(), next, of_plugin, at("02:00:00"));
    assert_eq!(kept.expect("there is room").gave_way[0].state.order.name, "of another plugin");
    assert_eq!(names().iter().filter(|name| name.starts_with("of another")).count(), 1);
}

/// Its call waits for a person's answer.
#[test]
fn denied_task_gives_way_last() {
    let scene = Scene::new();
    let put = |name: &str, kind: &str, when: &str, most: u64| {
        let quotas = Quotas { of_plugin: 2000, of_principal: most, interval: 60 };
        let order = order(name, kind, when, "once");
        scene.schedule.put(&owner(), &Maker::default(), order, quotas, at("00:00:00"))
    };
    for (name, when) in [("denied", "1m"), ("failed", "2m"), ("done", "3m")] {
        put(name, "once", when, 100).expect("there is room");
    }
    for end in [RunEnd::Denied, RunEnd::Failed, RunEnd::Done] {
        let now = at("01:00:00");
        let run = scene.schedule.claim(now, &[]).expect("it is read").expect("it is due");
        assert!(scene.schedule.start(&run, now).expect("it starts"));
        scene.end_as(&run, end, now);
    }
    for (name, gone) in [("a", "failed"), ("b", "done"), ("c", "denied")] {
        let kept = put(name, "cron", "@daily", 3).expect("there is room");
        let names = kept.gave_way.into_iter().map(|task| task.state.order.name);
        assert_eq!(names.collect::<Vec<_>>(), [gone]);
    }
}

#[test]
fn task_without_a_zone_keeps_the_machine_s() {
    let scene = Scene::new();
    let order = TaskOrder { zone: None, ..order("t", "cron", "@daily", "once") };
    let kept = scene.schedule.put(&owner(), &Maker::default(), order, QUOTAS, at("00:00:00"));
    let machine = jiff::tz::TimeZone::try_system().ok();
    let machine = machine.as_ref().and_then(|zone| zone.iana_name());
    assert_eq!(kept.expect("it is kept").state.order.zone.as_deref(), machine);
}

#[test]
fn time_of_a_finished_task_is_in_its_zone() {
    let scene = Scene::new();
    let berlin = Some("Europe/Berlin".to_owned());
    let made = at("00:00:00.123");
    let order = TaskOrder { zone: berlin, ..order("t", "once", "15m", "once") };
    scene.schedule.put(&owner(), &Maker::default(), order, QUOTAS, made).expect("it is kept");
    assert_eq!(scene.run_all(at("00:20:00")).len(), 1);
    let task = scene.schedule.tasks(Some(&owner())).expect("they are read").remove(0).state;
    assert_eq!(task.order.when, "2026-06-01T02:15:00+02:00");
    assert_eq!(task.last.expect("it ran").due, task.order.when);
}

#[test]
fn invalid_tasks_are_refused() {
    let scene = Scene::new();
    let put = |order: TaskOrder| {
        scene.schedule.put(&owner(), &Maker::default(), order, QUOTAS, at("00:00:00"))
    };
    let long = "n".repeat(65);
    let long = long.as_str();
    for name in ["", " a", "a ", "a\nb", "a\u{1b}[2J", "a\u{202e}b", "a/b", "ä", long] {
        assert!(put(order(name, "every", "60", "once")).is_err(), "{name:?}");
    }
    for (kind, when) in [
        ("every", "59"),
        ("every", "1"),
        ("cron", "* * * * * *"),
        ("cron", "0,30 * * * * *"),
        ("cron", "59,0 * * * * *"),
    ] {
        let error = put(order("t", kind, when, "once")).expect_err(when).to_string();
        assert!(error.contains("`min_interval` in [tools.scheduler]"), "{error}");
    }
    assert!(put(order("t", "cron", "30 * * * * *", "once")).is_ok());
    assert!(put(order("t", "sometimes", "60", "once")).is_err());
    assert!(put(order("t", "every", "60", "never")).is_err());
    let large = json!({ "text": "x".repeat(70_000) });
    let action = TaskAction::Call { tool: "read".to_owned(), arguments: large };
    assert!(put(TaskOrder { action, ..order("t", "every", "60", "once") }).is_err());
    for prompt in ["  ".to_owned(), "x".repeat(17_000)] {
        let action = TaskAction::Prompt(prompt);
        assert!(put(TaskOrder { action, ..order("t", "every", "60", "once") }).is_err());
    }
    let tasks = scene.schedule.tasks(None).expect("read");
    assert_eq!(tasks.len(), 1);
}

#[test]
fn two_runners_are_one() {
    let scene = Scene::new();
    let other = Schedule::in_data(scene.folder.path());
    let runner = || other.runner().expect("it is looked up");
    assert_eq!(runner(), None);
    assert!(!scene.folder.path().join("schedule").exists(), "a look creates nothing");
    let lock = scene.schedule.become_runner().expect("it is free");
    assert_eq!(runner(), Some(RunnerProcess { id: Some(std::process::id()) }));
    drop(lock);
    assert_eq!(runner(), None);
    drop(other.become_runner().expect("it is free again"));
}

/// A file as the first version of the tables was.
const FIRST: &str = "
    CREATE TABLE tasks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        owner TEXT NOT NULL, principal TEXT NOT NULL, name TEXT NOT NULL,
        maker TEXT NOT NULL, made INTEGER NOT NULL,
        kind TEXT NOT NULL, spec TEXT NOT NULL, zone TEXT, missed TEXT NOT NULL,
        action TEXT NOT NULL,
        next INTEGER, last INTEGER,
        paused INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0,
        UNIQUE (owner, principal, name)
    ) STRICT;
    CREATE INDEX tasks_next ON tasks (next);
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        task INTEGER NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
        due INTEGER NOT NULL, started INTEGER, ended INTEGER,
        state TEXT NOT NULL, missed INTEGER NOT NULL, output TEXT NOT NULL
    ) STRICT;
    CREATE INDEX runs_task ON runs (task, id);
    CREATE INDEX runs_open ON runs (state) WHERE ended IS NULL;
    PRAGMA application_id = 0x62657254;
    PRAGMA user_version = 1;
    INSERT INTO tasks VALUES
        (3, 'scheduler', 'user', 't', '{\"session\":\"s\",\"directory\":\"/project\",\"phase\":null,\"trust\":\"trusted\",\"untrusted\":false,\"bounds\":[\"x\"]}',
         0, 'every', '60', 'UTC', 'once', '{\"call\":{\"tool\":\"read\",\"arguments\":{}}}', 1780272060000, NULL, 0, 0),
        (5, 'scheduler', 'user', 'broken', 'no JSON', 0, 'every', '60', NULL, 'once', '{}', NULL, NULL, 1, 0),
        (9, 'scheduler', 'user', 'gone', '{}', 0, 'every', '60', NULL, 'once', '{}', NULL, NULL, 1, 0);
    INSERT INTO runs VALUES
        (7, 3, 1780272000000, 1780272000000, 1780272000000, 'done', 0, 'kept'),
        (8, 3, 1780272060000, NULL, NULL, 'waiting', 0, '');
    DELETE FROM tasks WHERE id = 9;";

#[test]
fn tasks_of_the_first_version_are_kept_with_their_runs() {
    let scene = Scene::new();
    let folder = scene.folder.path().join("schedule");
    std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("it is made");
    let first = rusqlite::Connection::open(folder.join("tasks.db")).expect("it is made");
    first.execute_batch(FIRST).expect("it is written");
    drop(first);
    // Several processes may be the first ones of the new version.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let schedule = Schedule::in_data(scene.folder.path());
                assert_eq!(schedule.tasks(None).expect("they are read").len(), 2);
            });
        }
    });
    let runs = scene.runs("t");
    assert_eq!((runs.len(), &*runs[1].output, &*runs[0].state), (2, "kept", "waiting"));
    let listed = scene.schedule.tasks(Some(&owner())).expect("read");
    assert_eq!((listed.len(), listed[0].id), (1, 3));
    // What was claimed runs, within its bounds.
    let run = scene.schedule.claim(at("00:01:00"), &[]).expect("read").expect("it waits");
    assert_eq!((run.id, run.task, &run.owner), (8, 3, &owner()));
    assert_eq!((run.maker.bounds, run.maker.untrusted), (vec!["x".to_owned()], false));
    // A number that was given stays given, and a removed task takes its runs along.
    scene.put("new", "every", "60", "once", at("00:00:00"));
    let listed = scene.schedule.tasks(None).expect("read");
    assert_eq!(listed.iter().map(|task| task.id).max(), Some(10));
    assert!(scene.schedule.remove(&owner(), "t").expect("written"));
    let left = rusqlite::Connection::open(folder.join("tasks.db")).expect("it opens");
    let count = left.query_row("SELECT count(*) FROM runs", [], |row| row.get::<_, i64>(0));
    assert_eq!(count.expect("it is read"), 0);
}

#[test]
fn task_that_cannot_be_read_is_paused_and_stops_no_other() {
    let scene = Scene::new();
    for name in ["asked", "bytes", "made", "what", "when", "good"] {
        scene.put(name, "every", "60", "once", at("00:00:00"));
    }
    let file = rusqlite::Connection::open(scene.folder.path().join("schedule/tasks.db"));
    let damaged = "
        UPDATE tasks SET maker = '{}', next = NULL, asked = 1 WHERE name = 'asked';
        UPDATE tasks SET maker = CAST(x'7bff' AS TEXT), next = 1 WHERE name = 'bytes';
        UPDATE tasks SET maker = '{}', next = 1 WHERE name = 'made';
        UPDATE tasks SET action = '\"x\"' WHERE name = 'what';
        UPDATE tasks SET kind = CAST(x'ff' AS TEXT) WHERE name = 'when';
        INSERT INTO runs (task, due, state, missed, output)
            SELECT id, -1, 'waiting', -1, '' FROM tasks WHERE name = 'what';";
    file.expect("it opens").execute_batch(damaged).expect("it is written");
    let now = at("00:01:30");
    let mut ran = Vec::new();
    while let Some(run) = scene.schedule.claim(now, &[]).expect("it is claimed") {
        assert!(scene.schedule.start(&run, now).expect("it starts"));
        scene.end(&run, now);
        ran.push(run.name);
    }
    assert_eq!(ran, ["good"]);
    let listed = scene.schedule.tasks(Some(&owner())).expect("they are read");
    assert_eq!(listed.len(), 6);
    for task in listed.into_iter().filter(|task| task.state.order.name != "good") {
        let name = task.state.order.name;
        assert!(task.state.paused || task.state.next.is_none(), "{name}");
        let last = &scene.runs(&name)[0];
        assert!(last.state == "failed" && !last.output.is_empty(), "{name}: {last:?}");
    }
    assert!(scene.runs("made")[0].output.contains("so it is paused"));
}

#[test]
fn alarm_wakes_for_a_change_and_for_the_time() {
    let scene = Scene::new();
    let alarm = scene.schedule.alarm().expect("it is made");
    let now = Timestamp::now();
    alarm.set(None, now).expect("it is set");
    scene.put("t", "every", "60", "once", now);
    alarm.wait().expect("it wakes");
    alarm.set(Some(now), now).expect("it is set");
    alarm.wait().expect("it wakes");
}
