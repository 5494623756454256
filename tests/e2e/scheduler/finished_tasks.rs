//! What is kept of tasks that have finished, were ended, or were made in another zone.

use std::fs;
use std::process::Stdio;

use super::{Daemon, Scene};
use crate::support::wait_until;

const READ: &str = r#""tool": "read", "arguments": {"path": "x"}"#;

#[test]
fn finished_task_gives_way_and_the_answer_says_so() {
    let scene = Scene::new("max_tasks = 2\n");
    scene.make("schedule_deferred", &format!(r#"{{"name": "old", "when": "1s", {READ}}}"#));
    scene.make("schedule_periodic", &format!(r#"{{"name": "daily", "cron": "@daily", {READ}}}"#));
    let daemon = scene.daemon();
    scene.wait_for("old", "failed");
    drop(daemon);
    let third = format!(r#"{{"name": "new", "when": "1h", {READ}}}"#);
    let made = scene.make("schedule_deferred", &third).stdout;
    assert!(made.contains("removed, together with their results: `old`."), "{made}");
    let names: Vec<_> = scene.tasks().iter().map(|task| task["name"].clone()).collect();
    assert_eq!(names, ["daily", "new"]);
    let fourth = format!(r#"{{"name": "more", "when": "1h", {READ}}}"#);
    let refused = scene.cli.run(&["call", "--yes", "schedule_deferred", &fourth]).ends(1).stderr;
    assert!(refused.contains("you have 2 tasks"), "{refused}");
}

#[test]
fn run_that_ends_with_its_server_is_interrupted() {
    let scene = Scene::new("");
    scene.make(
        "schedule_deferred",
        r#"{"name": "t", "when": "1s", "tool": "bash", "arguments": {"command": "echo x >> begun; sleep 60; echo x >> ended"}}"#,
    );
    let mut server = scene.cli.command(&["serve"]);
    let server = server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Daemon(server.spawn().expect("it starts"));
    wait_until("it runs", || !scene.read("begun").is_empty());
    drop(server.0.stdin.take());
    server.0.wait().expect("it ends");
    let run = scene.runs("t").remove(0);
    assert_eq!(run["state"], "interrupted", "{run}");
    assert!(run["output"].as_str().is_some_and(|why| why.contains("not repeated")), "{run}");
    let _daemon = scene.daemon();
    wait_until("the daemon runs the tasks", || {
        let listed = scene.cli.run(&["tasks", "list", "--json"]).ends(0).json();
        listed["runner"].is_number()
    });
    assert_eq!((scene.read("begun"), scene.read("ended")), ("x\n".to_owned(), String::new()));
}

#[test]
fn task_keeps_the_zone_where_it_was_made() {
    let scene = Scene::new("");
    let task = format!(r#"{{"name": "t", "cron": "30 9 * * *", {READ}}}"#);
    let mut make = scene.cli.command(&["call", "--yes", "schedule_periodic", &task]);
    let made = make.env("TZ", "Asia/Tokyo").output().expect("it runs");
    let made = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.contains("(Asia/Tokyo), next at ") && made.contains("T09:30:00+09:00"), "{made}");
    let mut list = scene.cli.command(&["tasks", "list"]);
    let listed = list.env("TZ", "America/Los_Angeles").output().expect("it runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("30 9 * * * (Asia/Tokyo), next at "), "{listed}");
    assert!(listed.contains("T09:30:00+09:00"), "{listed}");
}

#[test]
fn removed_task_ends_while_it_runs() {
    let scene = Scene::new("");
    // Nobody else runs a command with this argument.
    let mark = format!("86{}", std::process::id());
    let task = format!(
        r#"{{"name": "t", "when": "1s", "tool": "bash", "arguments": {{"command": "echo x >> begun; sleep {mark}"}}}}"#
    );
    scene.make("schedule_deferred", &task);
    let is_running = || {
        let processes = fs::read_dir("/proc").expect("it is listed").flatten();
        let mut lines =
            processes.filter_map(|it| fs::read_to_string(it.path().join("cmdline")).ok());
        lines.any(|line| line == format!("sleep\0{mark}\0"))
    };
    let _daemon = scene.daemon();
    wait_until("it runs", is_running);
    scene.cli.run(&["tasks", "remove", "t"]).ends(0);
    wait_until("it has ended", || !is_running());
    // The runner goes on.
    scene.make("schedule_deferred", &task);
    wait_until("another one runs", || scene.read("begun").lines().count() == 2);
}
