//! Tasks at a later time, with the real `toolhold`, its real daemon, and their effects.

mod answers;
mod finished_tasks;
mod names;
mod overlapping_tasks;
mod projects;
mod task_rights;

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::mcp::client::{Client, LEGACY};
use crate::support::{Cli, Ended, wait_until};

/// A second is the shortest period here, so that tests don't wait. Nobody asks the model.
const ENABLED: &str = "[providers.unused]\nformat = \"messages\"\nbase_url = \"http://127.0.0.1:9\"\nmodel = \"m\"\n[tools.scheduler]\nenabled = true\nmin_interval = 1\n";

/// A folder to work in, with tasks.
struct Scene {
    cli: Cli,
}

/// A daemon, which dies with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Scene {
    fn new(more: &str) -> Self {
        let cli = Cli::new();
        cli.configure(&format!("{ENABLED}{more}"));
        Self { cli }
    }

    fn daemon(&self) -> Daemon {
        let mut command = self.cli.command(&["tasks", "daemon"]);
        Daemon(command.stderr(Stdio::null()).spawn().expect("it starts"))
    }

    /// Makes a task, which somebody approves.
    #[track_caller]
    fn make(&self, tool: &str, arguments: &str) -> Ended {
        self.cli.run(&["call", "--yes", tool, arguments]).ends(0)
    }

    /// A task that appends to a file each second.
    #[track_caller]
    fn make_steady(&self, name: &str, tool: &str, arguments: &str) {
        self.make(
            "schedule_periodic",
            &format!(
                r#"{{"name": "{name}", "cron": "* * * * * *", "tool": "{tool}", "arguments": {arguments}}}"#
            ),
        );
    }

    fn tasks(&self) -> Vec<Value> {
        let listed = self.cli.run(&["tasks", "list", "--json"]).ends(0).json();
        listed["tasks"].as_array().expect("it is a list").clone()
    }

    fn runs(&self, name: &str) -> Vec<Value> {
        let listed = self.cli.run(&["tasks", "results", name, "--json"]).ends(0).json();
        listed["runs"].as_array().expect("it is a list").clone()
    }

    /// Waits for a run of a task that has ended this way, and returns it.
    #[track_caller]
    fn wait_for(&self, name: &str, state: &str) -> Value {
        let mut found = None;
        wait_until(&format!("{name} is {state}: {:?}", self.runs(name)), || {
            found = self.runs(name).into_iter().find(|run| run["state"] == state);
            found.is_some()
        });
        found.expect("it was found")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.cli.work().join(name)).unwrap_or_default()
    }
}

#[test]
fn tools_are_there_only_where_they_are_enabled() {
    let cli = Cli::new();
    let list = |cli: &Cli| cli.run(&["tools"]).ends(0).stdout;
    assert!(!list(&cli).contains("schedule_periodic"));
    let refused = cli.run(&[
        "call",
        "--yes",
        "schedule_periodic",
        r#"{"name": "t", "cron": "@daily", "prompt": "x"}"#,
    ]);
    let refused = refused.ends(3);
    assert!(refused.stderr.contains("tools.scheduler"), "{}", refused.stderr);
    let refused = cli.run(&["tasks", "daemon"]).ends(2);
    assert!(refused.stderr.contains("enabled = true"), "{}", refused.stderr);
    cli.configure(ENABLED);
    let listed = list(&cli);
    for tool in ["schedule_periodic", "schedule_deferred", "list_tasks", "schedule", "cancel_task"]
    {
        assert!(listed.contains(tool), "{listed}");
    }
    // A project can't enable them.
    cli.configure("");
    fs::write(cli.work().join("toolhold.toml"), ENABLED).expect("it is written");
    assert!(!list(&cli).contains("schedule_periodic"));
}

#[test]
fn disabled_tasks_are_not_shown_as_if_they_ran() {
    let scene = Scene::new("");
    scene.make("schedule_periodic", r#"{"name": "t", "cron": "@daily", "prompt": "x"}"#);
    let listed = scene.cli.run(&["tasks", "list"]).ends(0);
    assert!(listed.stdout.contains("next at "), "{}", listed.stdout);
    assert!(!listed.stderr.contains("disabled"), "{}", listed.stderr);
    scene.cli.configure("");
    for line in [&["tasks", "list"][..], &["tasks", "show", "t"]] {
        let listed = scene.cli.run(line).ends(0);
        assert!(listed.stdout.contains("not run, because tasks are disabled"), "{}", listed.stdout);
        assert!(!listed.stdout.contains("next at "), "{}", listed.stdout);
        assert!(
            listed.stderr.contains("  [tools.scheduler]\n  enabled = true"),
            "{}",
            listed.stderr
        );
    }
    let listed = scene.cli.run(&["tasks", "list", "--json"]).ends(0).json();
    assert_eq!(listed["enabled"], false, "{listed}");
}

#[test]
fn making_a_task_needs_approval_that_shows_all_of_it() {
    let scene = Scene::new("");
    let task = r#"{"name": "t", "cron": "@daily", "tool": "bash", "arguments": {"command": "echo all-of-it"}}"#;
    let refused = scene.cli.run(&["call", "schedule_periodic", task]).ends(3);
    assert!(refused.stderr.contains("toolhold approvals"), "{}", refused.stderr);
    assert!(scene.tasks().is_empty());
    let asked = scene.cli.run(&["approvals"]).ends(0).stdout;
    assert!(asked.contains("echo all-of-it") && asked.contains("@daily"), "{asked}");
}

#[test]
fn periodic_task_runs_and_its_results_are_kept() {
    let scene = Scene::new("");
    scene.make_steady("t", "bash", r#"{"command": "echo tick >> ticks; echo said"}"#);
    assert_eq!(scene.tasks()[0]["kind"], "cron");
    let _daemon = scene.daemon();
    wait_until("it has run twice", || scene.read("ticks").lines().count() >= 2);
    let run = scene.wait_for("t", "done");
    assert!(run["output"].as_str().expect("it is text").contains("said"), "{run}");
    let seen = scene.cli.run(&["call", "list_tasks", "name=t"]).ends(0).stdout;
    assert!(seen.contains("done for") && seen.contains("said"), "{seen}");
    scene.cli.run(&["tasks", "pause", "t"]).ends(0);
    assert_eq!(scene.tasks()[0]["paused"], true);
    scene.cli.run(&["tasks", "remove", "t"]).ends(0);
    assert!(scene.tasks().is_empty());
    scene.cli.run(&["tasks", "show", "t"]).ends(2);
}

#[test]
fn deferred_task_runs_once_and_late_rather_than_never() {
    let scene = Scene::new("");
    scene.make(
        "schedule_deferred",
        r#"{"name": "once", "when": "1s", "tool": "write", "arguments": {"path": "made", "content": "x"}}"#,
    );
    // A task in whose time nothing ran is due when the daemon starts.
    let _daemon = scene.daemon();
    scene.wait_for("once", "done");
    assert_eq!(scene.read("made"), "x");
    assert_eq!(scene.tasks()[0]["next"], Value::Null);
    assert_eq!(scene.runs("once").len(), 1);
}

#[test]
fn second_daemon_waits_and_takes_over() {
    let scene = Scene::new("");
    scene.make_steady("t", "bash", r#"{"command": "date +%s.%N >> ticks"}"#);
    let first = scene.daemon();
    let _second = scene.daemon();
    wait_until("one of them runs it", || scene.read("ticks").lines().count() >= 3);
    let ticks = scene.read("ticks");
    let mut seconds: Vec<&str> =
        ticks.lines().map(|tick| tick.split('.').next().unwrap_or("")).collect();
    let all = seconds.len();
    seconds.dedup();
    // Two runners would have two lines in each second.
    assert!(seconds.len() + 1 >= all, "{ticks}");
    drop(first);
    let before = scene.read("ticks").lines().count();
    wait_until("the other one goes on", || scene.read("ticks").lines().count() >= before + 2);
}

#[test]
fn killed_daemon_repeats_nothing() {
    let scene = Scene::new("");
    scene.make(
        "schedule_deferred",
        r#"{"name": "long", "when": "1s", "tool": "bash", "arguments": {"command": "echo began >> effects; until [ -e go ]; do sleep 0.05; done; echo ended >> effects"}}"#,
    );
    let daemon = scene.daemon();
    wait_until("it has begun", || scene.read("effects") == "began\n");
    drop(daemon);
    let _daemon = scene.daemon();
    let run = scene.wait_for("long", "interrupted");
    assert!(run["output"].as_str().expect("it is text").contains("not repeated"), "{run}");
    fs::write(scene.cli.work().join("go"), "").expect("it is written");
    // Another task has its turn afterwards, so the first would have had its second one.
    scene.make_steady("other", "bash", r#"{"command": "echo other >> others"}"#);
    wait_until("the other one runs", || scene.read("others").lines().count() >= 2);
    assert_eq!(scene.read("effects"), "began\n");
}

#[test]
fn daemon_that_waits_does_not_spin() {
    let scene = Scene::new("");
    scene.make(
        "schedule_deferred",
        r#"{"name": "later", "when": "1h", "tool": "bash", "arguments": {"command": "true"}}"#,
    );
    scene.make(
        "schedule_deferred",
        r#"{"name": "first", "when": "1s", "tool": "bash", "arguments": {"command": "echo x > first"}}"#,
    );
    let daemon = scene.daemon();
    scene.wait_for("first", "done");
    let switches = || {
        let status = format!("/proc/{}/task", daemon.0.id());
        let threads = fs::read_dir(status).expect("it lives").flatten();
        let count = |entry: fs::DirEntry| {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        threads.map(count).sum::<u64>()
    };
    // After the run, until what it needed has ended.
    let mut last = switches();
    let mut quiet = Instant::now();
    wait_until("it is quiet for two seconds", || {
        let now = switches();
        if now != last {
            (last, quiet) = (now, Instant::now());
        }
        quiet.elapsed() > Duration::from_secs(2)
    });
}

#[test]
fn unit_is_written_and_removed() {
    let scene = Scene::new("");
    let printed = scene.cli.run(&["tasks", "daemon", "--print"]).ends(0).stdout;
    assert!(
        printed.contains("ExecStart=\"/") && printed.contains("\" tasks daemon\n"),
        "{printed}"
    );
    let installed = scene.cli.run(&["tasks", "daemon", "--install"]).ends(0).stdout;
    assert!(installed.contains("systemctl --user enable --now toolhold.service"), "{installed}");
    let path = scene.cli.root.path().join(".config/systemd/user/toolhold.service");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), printed);
    scene.cli.run(&["tasks", "daemon", "--uninstall"]).ends(0);
    assert!(!path.exists());
    scene.cli.run(&["tasks", "daemon", "--uninstall"]).ends(0);
}

#[test]
fn unit_runs_the_tasks_of_this_configuration() {
    let scene = Scene::new("");
    let file = scene.cli.root.path().join("an other $x 50% \"q\".toml");
    fs::write(&file, ENABLED).expect("it is written");
    scene.cli.configure("");
    let file = file.display().to_string();
    let task = r#"{"name": "t", "cron": "* * * * * *", "tool": "bash", "arguments": {"command": "echo x > made"}}"#;
    scene.cli.run(&["--config", &file, "call", "--yes", "schedule_periodic", task]).ends(0);
    let line = ["--config", &file, "--set", "tools.call=77", "tasks", "daemon", "--print"];
    let unit = scene.cli.run(&line).ends(0).stdout;
    // As systemd reads it, in an environment that knows nothing of this one.
    let words = |line: &str| -> Vec<String> {
        let line = line.replace("\\\"", "\u{1}").replace("%%", "%");
        let words = line.split('"').enumerate().filter(|(at, _)| at % 2 == 1);
        words.map(|(_, word)| word.replace('\u{1}', "\"").replace("\\\\", "\\")).collect()
    };
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a line");
    let command: Vec<String> = words(command).iter().map(|word| word.replace("$$", "$")).collect();
    assert_eq!(command[1..], line[..4], "{unit}");
    let mut daemon = std::process::Command::new(&command[0]);
    daemon
        .args(&command[1..])
        .args(["tasks", "daemon"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", scene.cli.root.path());
    for line in unit.lines().filter_map(|line| line.strip_prefix("Environment=")) {
        let variable = words(line).pop().expect("it has one");
        let (name, value) = variable.split_once('=').expect("it has a value");
        daemon.env(name, value);
    }
    let _daemon = Daemon(daemon.stderr(Stdio::null()).spawn().expect("it starts"));
    wait_until("it runs", || scene.read("made") == "x\n");
    let evil =
        scene.cli.run(&["--config", "/a\nExecStart=/bin/evil", "tasks", "daemon", "--print"]);
    assert!(evil.ends(2).stdout.is_empty());
}

#[test]
fn server_runs_tasks_while_it_lives() {
    let scene = Scene::new("");
    scene.make_steady("t", "bash", r#"{"command": "echo tick >> ticks"}"#);
    let mut server = scene.cli.command(&["serve"]);
    let server = server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Daemon(server.spawn().expect("it starts"));
    wait_until("it runs", || scene.read("ticks").lines().count() >= 2);
}

#[test]
fn server_follows_whether_tasks_run() {
    let scene = Scene::new("");
    scene.make_steady("t", "bash", r#"{"command": "echo tick >> ticks"}"#);
    scene.cli.configure("");
    let _client = Client::new(&scene.cli, &[], LEGACY, false);
    assert_eq!(scene.read("ticks"), "");
    scene.cli.configure(ENABLED);
    wait_until("it runs", || scene.read("ticks").lines().count() >= 2);
    scene.cli.configure("");
    let (mut count, mut since) = (0, Instant::now());
    wait_until("nothing runs for three of its periods", || {
        let now = scene.read("ticks").lines().count();
        if now != count {
            (count, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(3)
    });
    // The lock is free for others, and the task goes on where it is enabled.
    scene.cli.configure(ENABLED);
    let _daemon = scene.daemon();
    wait_until("it runs again", || scene.read("ticks").lines().count() >= count + 2);
}

#[test]
fn words_get_the_form_of_cron() {
    let scene = Scene::new("");
    let wrong = r#"{"name": "t", "cron": "every morning at nine", "prompt": "x"}"#;
    let failed = scene.cli.run(&["call", "--yes", "schedule_periodic", wrong]).ends(2);
    assert!(failed.stderr.contains("30 9 * * 1-5"), "{}", failed.stderr);
    for wrong in [
        r#"{"name": "t", "cron": "@daily", "tool": "no_such_tool"}"#,
        r#"{"name": "t", "cron": "@daily", "tool": "read", "arguments": {"paht": "x"}}"#,
        r#"{"name": "a\u001b[2J", "cron": "@daily", "prompt": "x"}"#,
        r#"{"name": "t", "cron": "@daily"}"#,
    ] {
        scene.cli.run(&["call", "--yes", "schedule_periodic", wrong]).ends(2);
    }
    assert!(scene.tasks().is_empty());
}
