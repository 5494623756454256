//! Work for the agent at a later time, with the scripted model: what it does, what is kept of it,
//! and that it can never do more than whoever made the task.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::Scene;
use crate::support::wait_until;

const ENABLED: &str =
    "[tools]\nautonomy = \"full\"\n[tools.scheduler]\nenabled = true\nmin_interval = 1\n";

/// A daemon, which dies with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Scene {
    fn daemon(&self) -> Daemon {
        let mut command = self.cli.command(&["tasks", "daemon"]);
        Daemon(command.stderr(Stdio::null()).spawn().expect("it starts"))
    }

    /// Gives the agent a task, which is soon due. `flags`: those of whoever makes it.
    #[track_caller]
    fn prompts(&self, flags: &[&str], name: &str, prompt: &str) {
        let task = json!({ "name": name, "when": "1s", "prompt": prompt }).to_string();
        let call = ["call", "--yes", "schedule_deferred", &task];
        let line: Vec<&str> = flags.iter().chain(&call).copied().collect();
        self.cli.run(&line).ends(0);
    }

    /// Waits for the end of a task's one run, and returns how it ended and what it answered.
    #[track_caller]
    fn outcome(&self, name: &str) -> (String, String) {
        let mut run = Value::Null;
        wait_until(&format!("{name} has run"), || {
            let listed = self.cli.run(&["tasks", "results", name, "--json"]).ends(0).json();
            run = listed["runs"][0].clone();
            run["ended"].is_string()
        });
        self.assert_fine();
        let text = |key: &str| run[key].as_str().expect("it is text").to_owned();
        (text("state"), text("output"))
    }
}

/// A task of the model that makes calls.
fn calls(calls: &Value) -> String {
    format!("tries: {calls}")
}

#[test]
fn agent_does_its_task_when_it_is_due_and_the_outcome_is_kept() {
    let scene = Scene::new("chat", "", ENABLED);
    scene.prompts(&[], "work", &calls(&json!([["write", { "path": "made.txt", "content": "x" }]])));
    scene.prompts(&[], "gives-up", "refuses: this");
    scene.prompts(&[], "says", "answer: the time has come");
    let _daemon = scene.daemon();
    let (state, output) = scene.outcome("work");
    assert_eq!(state, "done", "{output}");
    assert_eq!(scene.read("made.txt"), "x");
    let (state, output) = scene.outcome("says");
    assert_eq!(state, "done", "{output}");
    assert!(output.contains("You said: the time has come"), "{output}");
    // Its session is kept as any other one.
    let id = output.strip_prefix("session ").and_then(|rest| rest.lines().next());
    let shown = scene.cli.run(&["run", "--replay", id.expect("it is named")]).ends(0);
    assert!(shown.stdout.contains("You said: the time has come"), "{}", shown.stdout);
    assert_eq!(scene.outcome("gives-up").0, "failed");
    let listed = scene.cli.run(&["tasks", "list"]).ends(0).stdout;
    assert!(listed.contains("the time has come") && listed.contains("never again"), "{listed}");
}

#[test]
fn agent_never_may_more_than_whoever_made_its_task() {
    let scene = Scene::new("messages", "", ENABLED);
    let outside = scene.cli.root.path().join("outside.txt").display().to_string();
    let work = calls(&json!([
        ["bash", { "command": "touch by-bash" }],
        ["write", { "path": outside, "content": "x" }],
        ["schedule_deferred", { "name": "more", "when": "1h", "prompt": "answer: x" }],
        ["delegate", { "task": calls(&json!([["bash", { "command": "touch by-another" }]])) }],
        ["write", { "path": "narrow.txt", "content": "x" }],
    ]));
    scene.prompts(&["--set", "tools.shell.enabled=false"], "narrow", &work);
    // The daemon has all that the user has, and more than the maker had.
    let folder = scene.cli.root.path().display().to_string();
    let mut daemon = scene.cli.command(&["--allow", &folder, "tasks", "daemon"]);
    let _daemon = Daemon(daemon.stderr(Stdio::null()).spawn().expect("it starts"));
    let (state, output) = scene.outcome("narrow");
    assert_eq!(scene.read("narrow.txt"), "x", "{state}: {output}");
    for name in ["by-bash", "by-another"] {
        assert!(!scene.work().join(name).exists(), "{name}: {output}");
    }
    assert!(!scene.cli.root.path().join("outside.txt").exists(), "{output}");
    assert!(output.contains("create the task again"), "{output}");
    // Nor makes it tasks, which would have no end.
    let tasks = scene.cli.run(&["tasks", "list", "--json"]).ends(0).json();
    assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(1), "{tasks}");
}

#[test]
fn agent_asks_nobody_and_leaves_a_question() {
    let asking = ENABLED.replace("full", "ask");
    let scene = Scene::new("chat", "", &asking);
    scene.prompts(&[], "asks", "writes: it");
    let _daemon = scene.daemon();
    let (state, output) = scene.outcome("asks");
    assert_eq!(state, "denied", "{output}");
    assert_eq!(scene.read("written.txt"), "");
    let asked = scene.cli.run(&["approvals"]).ends(0).stdout;
    assert!(asked.contains("written.txt"), "{asked}");
}

#[test]
fn agents_session_is_untrusted_where_that_of_its_maker_was() {
    let scene = Scene::new("chat", "", ENABLED);
    let remembers =
        |key: &str| calls(&json!([["memory_save", { "key": key, "content": format!("a {key}") }]]));
    scene.prompts(&[], "before", &remembers("falcon"));
    // The answers of commands are untrusted text.
    scene.cli.run(&["call", "bash", "command=echo hello"]).ends(0);
    scene.prompts(&[], "after", &remembers("heron"));
    let _daemon = scene.daemon();
    for (task, key, untrusted) in [("before", "falcon", false), ("after", "heron", true)] {
        let (state, output) = scene.outcome(task);
        assert_eq!(state, "done", "{output}");
        let shown = scene.cli.run(&["memory", "show", key, "--json"]).ends(0).json();
        assert_eq!(shown["untrusted"], untrusted, "{shown}");
    }
}
