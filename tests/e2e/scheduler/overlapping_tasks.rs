//! Tasks that are due each second and take longer, and more of them than may run at once.

use std::fs;
use std::time::{Duration, Instant};

use super::{Daemon, Scene};
use crate::support::wait_until;

/// More than may run at once, which are four.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

impl Scene {
    /// The begins and the ends of a task's runs.
    fn log(&self, name: &str) -> Vec<String> {
        self.read(&format!("log-{name}")).lines().map(str::to_owned).collect()
    }

    /// Rows of runs that are kept, in whatever state.
    fn kept_runs(&self) -> u64 {
        let file = self.cli.root.path().join("data/schedule/tasks.db");
        let database = rusqlite::Connection::open(file).expect("it opens");
        database.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).expect("it is read")
    }

    /// Makes tasks of each second that begin and wait until the file `go` is there.
    fn make_slow(&self, missed: &str) -> Daemon {
        for name in NAMES {
            let command = format!(
                "echo begin >> log-{name}; until [ -e go ]; do sleep 0.05; done; echo end >> log-{name}"
            );
            self.make(
                "schedule_periodic",
                &format!(
                    r#"{{"name": "{name}", "cron": "* * * * * *", "missed": "{missed}", "tool": "bash", "arguments": {{"command": "{command}"}}}}"#
                ),
            );
        }
        self.daemon()
    }

    fn begun(&self) -> usize {
        NAMES.iter().filter(|name| !self.log(name).is_empty()).count()
    }
}

/// No run of a task begins before the last one has ended.
#[track_caller]
fn assert_apart(log: &[String]) {
    for (at, line) in log.iter().enumerate() {
        assert_eq!(line, ["begin", "end"][at % 2], "{log:?}");
    }
}

#[test]
fn slow_tasks_of_each_second_dont_overlap_and_pile_up_nothing() {
    let scene = Scene::new("");
    let _daemon = scene.make_slow("once");
    wait_until("as many as may run have begun", || scene.begun() == 4);
    let since = Instant::now();
    wait_until("several of their times have passed", || since.elapsed() > Duration::from_secs(5));
    assert_eq!(scene.begun(), 4, "no more than max_running");
    for name in NAMES {
        assert!(scene.log(name).len() <= 1, "{name}: {:?}", scene.log(name));
    }
    // A time that comes while nothing can run is no row: it is found when the task has a place.
    assert_eq!(scene.kept_runs(), 4);
    fs::write(scene.cli.work().join("go"), "").expect("it is written");
    wait_until("all have run twice", || NAMES.iter().all(|name| scene.log(name).len() >= 4));
    for name in NAMES {
        assert_apart(&scene.log(name));
    }
    // One run makes up for all of the times that passed.
    let missed = |run: &serde_json::Value| run["missed"].as_u64().expect("a number");
    let most = scene.runs("a").iter().map(missed).max();
    assert!(most >= Some(3), "{:?}", scene.runs("a"));
    assert!(scene.kept_runs() <= NAMES.len() as u64 * 21);
}

#[test]
fn each_missed_time_of_a_slow_task_has_its_run_one_after_the_other() {
    let scene = Scene::new("");
    let _daemon = scene.make_slow("all");
    wait_until("as many as may run have begun", || scene.begun() == 4);
    let since = Instant::now();
    wait_until("several of their times have passed", || since.elapsed() > Duration::from_secs(5));
    assert_eq!(scene.kept_runs(), 4);
    fs::write(scene.cli.work().join("go"), "").expect("it is written");
    wait_until("each has run for each of them", || {
        NAMES.iter().all(|name| scene.log(name).len() >= 10)
    });
    for name in NAMES {
        assert_apart(&scene.log(name));
        let runs = scene.runs(name);
        let mut due: Vec<&str> = runs.iter().filter_map(|run| run["due"].as_str()).collect();
        let all = due.len();
        due.dedup();
        assert!(due.len() == all && all <= 20, "{name}: no time runs twice: {runs:?}");
    }
    assert!(scene.kept_runs() <= NAMES.len() as u64 * 21);
}

#[test]
fn each_second_is_refused_by_default_whatever_the_form() {
    let scene = Scene::new("");
    scene.cli.configure("[tools.scheduler]\nenabled = true\n");
    for (tool, task) in [
        (
            "schedule_periodic",
            r#"{"name": "t", "cron": "* * * * * *", "tool": "read", "arguments": {"path": "x"}}"#,
        ),
        (
            "schedule_periodic",
            r#"{"name": "t", "cron": "*/59 * * * * *", "tool": "read", "arguments": {"path": "x"}}"#,
        ),
        (
            "cron_add",
            r#"{"name": "t", "schedule": {"kind": "every", "every_ms": 1000}, "command": "true"}"#,
        ),
        ("schedule", r#"{"action": "add", "expression": "0,1 * * * * *", "command": "true"}"#),
    ] {
        let failed = scene.cli.run(&["call", "--yes", tool, task]);
        assert_ne!(failed.code, 0, "{task}");
        assert!(failed.stderr.contains("min_interval"), "{}", failed.stderr);
    }
    assert!(scene.tasks().is_empty());
}

#[test]
fn flag_of_the_maker_lifts_no_quota_of_what_lasts() {
    let scene = Scene::new("");
    scene.cli.configure("[tools.scheduler]\nenabled = true\nmax_tasks = 1\n");
    let task = |cron: &str, name: &str| {
        format!(
            r#"{{"name": "{name}", "cron": "{cron}", "tool": "read", "arguments": {{"path": "x"}}}}"#
        )
    };
    let make = |flag: &str, task: &str| {
        scene.cli.run(&["--set", flag, "call", "--yes", "schedule_periodic", task])
    };
    let each_second = task("* * * * * *", "t");
    let refused = make("tools.scheduler.min_interval=1", &each_second).ends(1).stderr;
    assert!(refused.contains("the shortest period is 60 s"), "{refused}");
    assert!(refused.contains("`--set tools.scheduler.min_interval`"), "{refused}");
    let form = r#"{"name": "t", "patch": {"schedule": {"kind": "every", "every_ms": 5000}}}"#;
    scene.make("schedule_periodic", &task("@daily", "t"));
    let line = ["--set", "tools.scheduler.min_interval=5", "call", "--yes", "cron_update", form];
    assert!(scene.cli.run(&line).ends(1).stderr.contains("the shortest period is 60 s"));
    let refused = make("tools.scheduler.max_tasks=9", &task("@daily", "u")).ends(1).stderr;
    assert!(refused.contains("the limit is 1 (`max_tasks`"), "{refused}");
    assert!(refused.contains("`--set tools.scheduler.max_tasks`"), "{refused}");
    let [kept] = &scene.tasks()[..] else { panic!("one is kept") };
    assert_eq!(kept["when"], "@daily", "{kept}");
    // One that takes something away holds, and one that enables tasks too.
    scene.cli.configure("");
    let make = |flags: &[&str]| {
        let task = task("@hourly", "v");
        scene.cli.run(&[flags, &["call", "--yes", "schedule_periodic", &*task]].concat())
    };
    let enabled = ["--set", "tools.scheduler.enabled=true"];
    let rare = [&enabled[..], &["--set", "tools.scheduler.min_interval=7200"]].concat();
    assert!(make(&rare).ends(1).stderr.contains("the shortest period is 7200 s"));
    make(&enabled).ends(0);
    assert_eq!(scene.tasks().len(), 2);
}

#[test]
fn quota_of_tasks_holds_for_every_name() {
    let scene = Scene::new("max_tasks = 3\n");
    for name in ["a", "b", "c"] {
        scene.make(
            "schedule_periodic",
            &format!(r#"{{"name": "{name}", "cron": "@daily", "prompt": "x"}}"#),
        );
    }
    for (tool, task) in [
        ("schedule_periodic", r#"{"name": "d", "cron": "@daily", "prompt": "x"}"#),
        ("schedule_deferred", r#"{"name": "d", "when": "1h", "prompt": "x"}"#),
        ("cron_add", r#"{"schedule": "@daily", "command": "true"}"#),
        ("schedule", r#"{"action": "create", "delay": "1h", "command": "true"}"#),
    ] {
        let failed = scene.cli.run(&["call", "--yes", tool, task]);
        assert!(failed.code != 0 && failed.stderr.contains("3 tasks"), "{}", failed.stderr);
    }
    assert_eq!(scene.tasks().len(), 3);
    // One that is there can still change.
    scene.make("cron_add", r#"{"name": "a", "schedule": "@hourly", "command": "true"}"#);
}
