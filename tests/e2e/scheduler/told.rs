//! What the scheduler says: that nothing runs, what can't run, and when a task runs.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use super::{Daemon, ENABLED, Scene};
use crate::support::Cli;

const DAILY: &str = r#"{"name": "t", "cron": "@daily", "prompt": "x"}"#;

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
        for starts in ["`berth daemon`", "`berth daemon --install`", "`berth serve`"] {
            assert!(said.contains(starts), "{said}");
        }
    }
    let finding = doctor();
    assert_eq!(finding["state"], "warning", "{finding}");
    assert!(finding["fix"].to_string().contains("berth daemon"), "{finding}");
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
        let mut command = scene.cli.command(&["daemon"]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stderr.take().expect("it is there")).lines();
        (Daemon(child), lines.map(|line| line.expect("it is text")))
    };
    let (first, mut said) = start();
    let line = said.next().expect("it says something");
    assert!(line.contains("runs the tasks that are due"), "{line}");
    let (_second, mut second_said) = start();
    let line = second_said.next().expect("it says something");
    let number = format!("process {} already", first.0.id());
    assert!(line.contains(&number) && line.contains("this one waits"), "{line}");
    drop(first);
    let line = second_said.next().expect("it says something");
    assert!(line.contains("runs the tasks that are due"), "{line}");
}

#[test]
fn remedy_of_a_disabled_scheduler_works_as_it_is_written() {
    for before in
        ["", "[tools.scheduler]\nmin_interval = 5\n", "[tools.scheduler]\nenabled = false\n"]
    {
        let cli = Cli::new();
        cli.configure(before);
        let refused = cli.run(&["call", "--yes", "schedule_periodic", DAILY]).ends(3).stderr;
        let file = cli.root.path().join("config/berth.toml").display().to_string();
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
fn wrong_time_is_refused_before_anybody_is_asked() {
    let scene = Scene::new("[tools]\nautonomy = \"ask\"\n");
    let periodic = |cron: &str, zone: &str| {
        json!({ "name": "t", "cron": cron, "zone": zone, "prompt": "x" }).to_string()
    };
    let deferred = |when: &str| json!({ "name": "t", "when": when, "prompt": "x" }).to_string();
    for (tool, arguments, why) in [
        ("schedule_periodic", periodic("each day", "UTC"), "30 9 * * 1-5"),
        ("schedule_periodic", periodic("61 * * * *", "UTC"), "61"),
        ("schedule_periodic", periodic("@daily", "Europe/Nowhere"), "Europe/Nowhere"),
        ("schedule_deferred", deferred("soon"), "is no time"),
        ("schedule_deferred", deferred("2020-01-01T00:00:00Z"), "in the past"),
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
            "is no time",
        ),
        (
            "cron_update",
            json!({ "name": "t", "patch": { "schedule": "each day", "command": "true" } })
                .to_string(),
            "30 9 * * 1-5",
        ),
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
    assert!(made.contains("The call of `write` needs approval, and nobody is there"), "{made}");
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
    scene.make("schedule_periodic", r#"{"name": "u", "cron": "@daily", "prompt": "x"}"#);
    let listed = scene.cli.run(&["tasks", "list"]).ends(0).stdout;
    assert!(listed.contains("(Europe/Berlin)"), "{listed}");
    let daily = listed.lines().find(|line| line.contains("@daily")).expect("it is listed");
    assert!(daily.contains("the machine"), "{daily}");
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
