//! What the scheduler says: that nothing runs, what can't run, and when a task runs.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use super::{Daemon, ENABLED, Scene};
use crate::support::Cli;

const DAILY: &str =
    r#"{"name": "t", "cron": "@daily", "tool": "read", "arguments": {"path": "x"}}"#;

impl Scene {
    /// A call that fails without a question: nobody is asked, with or without an approval.
    #[track_caller]
    fn fails(&self, tool: &str, arguments: &str, code: i32) -> String {
        self.cli.run(&["call", "--yes", tool, arguments]).ends(code);
        let said = self.cli.run(&["call", tool, arguments]).ends(code).stderr;
        let waiting = self.cli.run(&["approvals"]).ends(0).stdout;
        assert!(!waiting.contains(tool), "{waiting}");
        assert!(self.tasks().is_empty(), "{arguments}");
        said
    }
}

#[test]
fn everybody_learns_that_nothing_runs_tasks() {
    let scene = Scene::new("");
    let doctor = || {
        let report = scene.cli.run(&["doctor", "--json"]).json();
        let all = report["findings"].as_array().expect("a list").clone();
        all.into_iter().find(|finding| finding["name"] == "tasks").expect("it is there")
    };
    assert_eq!(doctor()["found"], "0 waiting");
    let made = scene.make("schedule_periodic", DAILY).stdout;
    let deferred = r#"{"name": "u", "when": "1h", "prompt": "x"}"#;
    let deferred = scene.make("schedule_deferred", deferred).stdout;
    let listed = scene.cli.run(&["call", "list_tasks"]).ends(0).stdout;
    let run = scene.make("schedule", r#"{"name": "t"}"#).stdout;
    let people = scene.cli.run(&["tasks", "list"]).ends(0).stdout;
    let asked = scene.cli.run(&["tasks", "run", "t"]).ends(0).stdout;
    for said in [made, deferred, listed, run, people, asked] {
        assert!(said.contains("No process runs tasks"), "{said}");
        for starts in
            ["`toolhold tasks daemon`", "`toolhold tasks daemon --install`", "`toolhold serve`"]
        {
            assert!(said.contains(starts), "{said}");
        }
    }
    let finding = doctor();
    assert_eq!(finding["state"], "warning", "{finding}");
    assert!(finding["fix"].to_string().contains("toolhold tasks daemon"), "{finding}");
    scene.cli.run(&["tasks", "remove", "t"]).ends(0);

    let daemon = scene.daemon();
    let number = format!("process {}", daemon.0.id());
    crate::support::wait_until("it runs", || {
        scene.cli.run(&["tasks", "list"]).ends(0).stdout.contains(&number)
    });
    for said in [
        scene.make("schedule_periodic", DAILY).stdout,
        scene.cli.run(&["call", "list_tasks"]).ends(0).stdout,
        scene.cli.run(&["tasks", "run", "u"]).ends(0).stdout,
    ] {
        assert!(!said.contains("No process runs"), "{said}");
    }
    let finding = doctor();
    assert!(finding["state"] == "ok" && finding["found"].to_string().contains(&number));
    let listed = scene.cli.run(&["tasks", "list", "--json"]).ends(0).json();
    assert_eq!(listed["runner"], daemon.0.id());
}

#[test]
fn second_daemon_says_who_runs_the_tasks_and_takes_over() {
    let scene = Scene::new("");
    let start = || {
        let mut command = scene.cli.command(&["tasks", "daemon"]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stderr.take().expect("it is there")).lines();
        (Daemon(child), lines.map(|line| line.expect("it is text")))
    };
    let (first, mut said) = start();
    let line = said.next().expect("it says something");
    assert!(line.contains("runs tasks when they are due"), "{line}");
    let (_second, mut second_said) = start();
    let line = second_said.next().expect("it says something");
    let number = format!("process {} already", first.0.id());
    assert!(line.contains(&number) && line.contains("this process waits"), "{line}");
    drop(first);
    let line = second_said.next().expect("it says something");
    assert!(line.contains("runs tasks when they are due"), "{line}");
}

#[test]
fn remedy_of_a_disabled_scheduler_works_as_it_is_written() {
    for before in
        ["", "[tools.scheduler]\nmin_interval = 5\n", "[tools.scheduler]\nenabled = false\n"]
    {
        let cli = Cli::new();
        cli.configure(before);
        let refused = cli.run(&["call", "--yes", "schedule_periodic", DAILY]).ends(3).stderr;
        let file = cli.root.path().join("config/toolhold.toml").display().to_string();
        assert!(refused.contains(&file), "{refused}");
        let lines = ["[tools.scheduler]", "enabled = true"];
        let written: Vec<&str> =
            refused.lines().map(str::trim).filter(|line| lines.contains(line)).collect();
        let after = match before {
            "" => {
                assert_eq!(written, lines, "{refused}");
                lines.join("\n")
            }
            _ if before.contains("enabled") => {
                assert!(refused.contains("set `enabled` to true there"), "{refused}");
                before.replace("false", "true")
            }
            _ => {
                assert_eq!(written, lines[1..], "{refused}");
                format!("{before}{}\n", lines[1])
            }
        };
        cli.configure(&after);
        cli.run(&["call", "--yes", "schedule_periodic", DAILY]).ends(0);
    }
}

#[test]
fn disabled_tasks_are_run_by_nobody_and_the_remedy_names_what_disables_them() {
    let scene = Scene::new("");
    scene.make("schedule_periodic", DAILY);
    let daemon = scene.daemon();
    let number = format!("process {}", daemon.0.id());
    crate::support::wait_until("it runs", || {
        scene.cli.run(&["tasks", "list"]).ends(0).stdout.contains(&number)
    });
    let flag = "tools.scheduler.enabled=false";
    let off = scene.cli.run(&["--set", flag, "tasks", "list"]).ends(0).stderr;
    assert!(off.contains(&format!("leave out `--set {flag}`")), "{off}");
    assert!(!off.contains("write in"), "{off}");
    scene.cli.configure("[tools.scheduler]\nenabled = false\n");
    let listed = scene.cli.run(&["tasks", "list"]).ends(0);
    assert!(!listed.stdout.contains("run by"), "{}", listed.stdout);
    let said = listed.stderr;
    assert!(said.contains("line 2") && said.contains("set `enabled` to true there"), "{said}");
    assert!(!said.contains("enabled = true"), "{said}");
    let doctor = scene.cli.run(&["doctor", "--json"]).json().to_string();
    assert!(doctor.contains("1 waiting; tasks are disabled, so no task runs"), "{doctor}");
}

#[test]
fn quota_is_refused_with_its_key_and_the_true_count() {
    let scene = Scene::new("");
    for name in ["a", "b", "c"] {
        let task = json!({ "name": name, "cron": "@daily", "prompt": "x" });
        scene.make("schedule_periodic", &task.to_string());
    }
    let line = ["--set", "tools.scheduler.max_tasks=2", "call", "--yes", "schedule_periodic"];
    let line: Vec<&str> = line.into_iter().chain([DAILY]).collect();
    let said = scene.cli.run(&line).ends(1).stderr;
    assert!(said.contains("you have 3 tasks; the limit is 2"), "{said}");
    assert!(said.contains("`max_tasks` in [tools.scheduler]"), "{said}");
    assert_eq!(scene.tasks().len(), 3);
}

#[test]
fn wrong_time_is_refused_before_anybody_is_asked() {
    let scene = Scene::new("[tools]\nautonomy = \"ask\"\n");
    let periodic = |cron: &str, zone: &str| {
        json!({ "name": "t", "cron": cron, "zone": zone, "prompt": "x" }).to_string()
    };
    let deferred = |when: &str| json!({ "name": "t", "when": when, "prompt": "x" }).to_string();
    let form = |form: serde_json::Value| json!({ "schedule": form, "command": "true" }).to_string();
    for (tool, arguments, why) in [
        ("schedule_periodic", periodic("each day", "UTC"), "30 9 * * 1-5"),
        ("schedule_periodic", periodic("61 * * * *", "UTC"), "61"),
        ("schedule_periodic", periodic("@daily", "Europe/Nowhere"), "Europe/Nowhere"),
        ("schedule_deferred", deferred("soon"), "isn't a valid time"),
        ("schedule_deferred", deferred("2020-01-01T00:00:00Z"), "in the past"),
        ("schedule_deferred", deferred("2030-02-30T09:00:00Z"), "the month doesn't have this day"),
        ("schedule_deferred", deferred("2030-04-31"), "the month doesn't have this day"),
        ("schedule_deferred", deferred("2030-13-01T09:00:00Z"), "isn't a valid time: write a time"),
        ("schedule_periodic", periodic("*/0 * * * *", "UTC"), "the step isn't 1 to 59"),
        ("schedule_deferred", deferred("9999-12-31T23:59:59Z"), "the limit is ten years"),
        ("schedule_deferred", deferred("P11Y"), "the limit is ten years"),
        (
            "cron_add",
            json!({ "schedule": { "kind": "cron", "expr": "each day" }, "prompt": "x" })
                .to_string(),
            "30 9 * * 1-5",
        ),
        (
            "schedule",
            json!({ "action": "once", "delay": "soon", "command": "true" }).to_string(),
            "isn't a valid time",
        ),
        (
            "cron_update",
            json!({ "name": "t", "patch": { "schedule": "each day", "command": "true" } })
                .to_string(),
            "30 9 * * 1-5",
        ),
        ("cron_add", form(json!({ "kind": "every", "every": "1h" })), r#""every_ms": 3600000"#),
        ("cron_add", form(json!({ "kind": "every", "every_ms": 1500 })), "in whole seconds"),
        ("cron_add", form(json!({ "kind": "after" })), r#""seconds": 900"#),
        ("cron_add", form(json!({ "kind": "at", "at": "soon" })), "isn't a valid time"),
        ("cron_add", form(json!({ "kind": "bogus" })), "cron, at, after or every"),
        ("cron_add", form(json!({})), "cron, at, after or every"),
    ] {
        let said = scene.fails(tool, &arguments, 2);
        assert!(said.contains(why), "{arguments}: {said}");
        let checked = scene.cli.run(&["policy", "check", tool, &arguments]).ends(2);
        assert!(checked.stderr.contains(why), "{}", checked.stderr);
    }
    // One that is right is asked about.
    scene.cli.run(&["call", "schedule_periodic", &periodic("@daily", "UTC")]).ends(3);
    scene.cli.run(&["policy", "check", "schedule_periodic", &periodic("@daily", "UTC")]).ends(3);
}

#[test]
fn nobody_is_asked_about_a_task_that_is_not_there() {
    let scene = Scene::new("[tools]\nautonomy = \"ask\"\n");
    let ghost = json!({ "name": "ghost" }).to_string();
    let add = json!({ "schedule": "@daily", "command": "true", "approved": true }).to_string();
    for (tool, arguments, why) in [
        ("cancel_task", &*ghost, "there is no task \"ghost\""),
        ("cron_remove", r#"{"job_id": "ghost"}"#, "there is no task \"ghost\""),
        ("schedule", r#"{"action": "pause", "name": "ghost"}"#, "there is no task \"ghost\""),
        ("cron_run", r#"{"job_id": "ghost"}"#, "there is no task \"ghost\""),
        ("cron_update", r#"{"job_id": "ghost", "patch": {"enabled": false}}"#, "there is no task"),
        ("schedule", r#"{"action": "frob", "name": "ghost"}"#, "`frob` isn't an action"),
        ("cron_add", &*add, "only the user can approve"),
    ] {
        let said = scene.fails(tool, arguments, 2);
        assert!(said.contains(why), "{arguments}: {said}");
    }
    // One that is there is asked about.
    scene.make("schedule_periodic", DAILY);
    scene.cli.run(&["call", "cancel_task", r#"{"name": "t"}"#]).ends(3);
    assert_eq!(scene.tasks().len(), 1);
}

#[test]
fn task_of_the_agent_needs_a_model() {
    let scene = Scene::new("");
    scene.cli.configure("[tools.scheduler]\nenabled = true\n");
    for (tool, arguments) in [
        ("schedule_periodic", r#"{"name": "t", "cron": "@daily", "prompt": "look at news"}"#),
        ("cron_add", r#"{"schedule": "@daily", "prompt": "look at news"}"#),
    ] {
        let said = scene.fails(tool, arguments, 2);
        assert!(said.contains("no model provider is configured"), "{said}");
        assert!(said.contains("[providers.anthropic]"), "{said}");
    }
    scene.make("schedule_periodic", DAILY);
}

#[test]
fn task_that_could_never_run_is_refused_with_the_reason() {
    let scene = Scene::new(
        "[tools.web]\nenabled = false\n[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"delete_path\"]\n",
    );
    let task = |tool: &str, arguments: serde_json::Value| {
        json!({ "name": "t", "cron": "@daily", "tool": tool, "arguments": arguments }).to_string()
    };
    let outside = scene.cli.root.path().join("outside").display().to_string();
    for (tool, arguments, code, why) in [
        ("no_such_tool", json!({}), 2, "no tool is named `no_such_tool`"),
        ("read", json!({ "paht": "x" }), 2, "did you mean `path`"),
        ("fetch", json!({ "url": "https://example.com/" }), 3, "[tools.web]"),
        ("delete_path", json!({ "path": "x" }), 3, "[tools.policy"),
        ("write", json!({ "path": outside, "content": "x" }), 3, "allowed_paths"),
    ] {
        let arguments = task(tool, arguments);
        let said = scene.fails("schedule_periodic", &arguments, code);
        assert!(said.contains(why), "{arguments}: {said}");
        let checked = scene.cli.run(&["policy", "check", "schedule_periodic", &arguments]);
        assert_eq!(checked.code, code, "{}{}", checked.stdout, checked.stderr);
    }
    let command = json!({ "schedule": "@daily", "command": "rm -rf /" }).to_string();
    scene.fails("cron_add", &command, 3);
}

#[test]
fn task_whose_call_needs_approval_is_made_with_a_notice() {
    let scene = Scene::new("[tools]\nautonomy = \"ask\"\n");
    let task = r#"{"name": "t", "cron": "@daily", "tool": "write", "arguments": {"path": "x", "content": "x"}}"#;
    let made = scene.make("schedule_periodic", task).stdout;
    assert!(
        made.contains("The call of `write` needs approval, but nobody can approve calls"),
        "{made}"
    );
    let task = r#"{"name": "u", "cron": "@daily", "tool": "read", "arguments": {"path": "x"}}"#;
    let made = scene.make("schedule_periodic", task).stdout;
    assert!(!made.contains("needs approval"), "{made}");
}

#[test]
fn change_of_the_clock_and_the_zone_are_said() {
    let scene = Scene::new("");
    let task =
        r#"{"name": "t", "when": "2035-03-25T02:30:00", "zone": "Europe/Berlin", "prompt": "x"}"#;
    let made = scene.make("schedule_deferred", task).stdout;
    assert!(made.contains("doesn't exist"), "{made}");
    assert!(made.contains("the task runs at 2035-03-25T03:30:00+02:00"), "{made}");
    let listed = scene.cli.run(&["tasks", "list"]).ends(0).stdout;
    // The moment is said once, in the zone.
    assert!(
        listed.contains("  once (Europe/Berlin), next at 2035-03-25T03:30:00+02:00"),
        "{listed}"
    );
    let said = scene.cli.run(&["call", "list_tasks", "name=t"]).ends(0).stdout;
    assert!(said.contains("t: once (Europe/Berlin), next at 2035-03-25T03:30:00+02:00"), "{said}");
    let past = r#"{"name": "v", "when": "2020-01-01T00:00:00Z", "prompt": "x"}"#;
    let said = scene.cli.run(&["call", "--yes", "schedule_deferred", past]).ends(2).stderr;
    let (_, now) = said.split_once("it is ").expect("it says the time");
    assert!(!now.split_once('Z').expect("it is one of UTC").0.contains('.'), "{said}");
}

#[test]
fn tools_that_are_always_on_exist() {
    let cli = Cli::new();
    cli.configure(ENABLED);
    let shown = cli.run(&["config", "show", "--json"]).ends(0).stdout;
    let tools = cli.run(&["tools"]).ends(0).stdout;
    for name in ["schedule_periodic", "schedule_deferred", "list_tasks"] {
        assert!(shown.contains(&format!("\"{name}\"")) && tools.contains(name), "{shown}");
    }
    assert!(!shown.contains("\"scheduler\","), "{shown}");
}

#[test]
fn task_that_cannot_be_read_stops_no_other() {
    let scene = Scene::new("");
    for name in ["bad", "good"] {
        let task = json!({ "name": name, "when": "1h", "tool": "bash", "arguments": { "command": format!("echo x > {name}") } });
        scene.make("schedule_deferred", &task.to_string());
    }
    let file = scene.cli.root.path().join("data/schedule/tasks.db");
    rusqlite::Connection::open(file)
        .expect("it opens")
        .execute_batch(
            "UPDATE tasks SET next = 1; UPDATE tasks SET maker = '{}' WHERE name = 'bad'",
        )
        .expect("they change");
    let _daemon = scene.daemon();
    scene.wait_for("good", "done");
    assert_eq!(scene.read("good"), "x\n");
    let failed = scene.wait_for("bad", "failed");
    assert!(failed["output"].to_string().contains("can't be read, so it is paused"), "{failed}");
    let listed = scene.cli.run(&["tasks", "list"]).ends(0).stdout;
    assert!(listed.contains("paused"), "{listed}");
    assert_eq!(scene.read("bad"), "");
}

#[test]
fn secrets_of_tasks_are_not_shown() {
    let scene = Scene::new("");
    let (key, token) = ("AKIAIOSFODNN7QZ3KLMP", "ghp_16C7e42F292c6912E7710c838347Ae178B4a");
    let by_call = json!({ "name": "c", "when": "1h", "tool": "bash", "arguments": { "command": format!("echo {key}; echo {token}") } });
    let by_prompt =
        json!({ "name": "p", "when": "1h", "prompt": format!("log in with {key} and {token}") });
    scene.make("schedule_deferred", &by_call.to_string());
    scene.make("schedule_deferred", &by_prompt.to_string());
    let file = scene.cli.root.path().join("data/schedule/tasks.db");
    rusqlite::Connection::open(file)
        .expect("it opens")
        .execute(
            "INSERT INTO runs (task, due, state, missed, output)
             SELECT id, 0, 'done', 0, ?1 FROM tasks",
            [format!("{key} and {token}")],
        )
        .expect("they change");
    for line in [
        &["tasks", "list"][..],
        &["tasks", "list", "--json"],
        &["tasks", "show", "c"],
        &["tasks", "show", "c", "--json"],
        &["tasks", "show", "p"],
        &["tasks", "show", "p", "--json"],
        &["tasks", "results", "c"],
        &["tasks", "results", "p", "--json"],
        &["call", "list_tasks"],
        &["call", "list_tasks", "name=p"],
        &["call", "list_tasks", "name=c"],
    ] {
        let ended = scene.cli.run(line).ends(0);
        let said = ended.stdout + &ended.stderr;
        assert!(!said.contains(key) && !said.contains(token), "{line:?}: {said}");
        assert!(said.contains("[REDACTED:"), "{line:?}: {said}");
    }
}
