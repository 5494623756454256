//! Tasks are those of the directory where they were made: other projects neither see nor change
//! them. And what came of them is text of others.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::Scene;
use crate::support::Ended;

impl Scene {
    /// Another project of the user.
    fn other(&self) -> PathBuf {
        let other = self.cli.work().parent().expect("it has a parent").join("other");
        fs::create_dir_all(&other).expect("a folder is made");
        other
    }

    /// Runs a command in the other project.
    fn elsewhere(&self, line: &[&str]) -> Ended {
        let mut command = self.cli.command(line);
        Ended::from_output(command.current_dir(self.other()).output().expect("toolhold starts"))
    }

    /// Whether what a model saves now counts as untrusted.
    fn saves_untrusted(&self, key: &str) -> bool {
        let content = format!("content=a {key}");
        self.cli.run(&["call", "memory_save", &content, &format!("key={key}")]).ends(0);
        let shown = self.cli.run(&["memory", "show", key, "--json"]).ends(0).json();
        shown["untrusted"].as_bool().expect("it is said")
    }
}

#[test]
fn tasks_of_another_project_are_neither_seen_nor_changed() {
    let scene = Scene::new("");
    let task = |command: &str| {
        let arguments = json!({ "command": command });
        json!({ "name": "t", "cron": "@daily", "tool": "bash", "arguments": arguments }).to_string()
    };
    scene.make("schedule_periodic", &task("echo secret-of-here > here"));
    let listed = scene.elsewhere(&["call", "list_tasks"]).ends(0).stdout;
    assert!(!listed.contains("secret-of-here") && listed.contains("No task"), "{listed}");
    let named = scene.elsewhere(&["call", "list_tasks", "name=t"]);
    assert!(named.code != 0 && !named.stderr.contains("secret-of-here"), "{}", named.stderr);
    for (tool, arguments) in [
        ("cancel_task", json!({ "name": "t" })),
        ("cron_remove", json!({ "job_id": "t" })),
        ("cron_runs", json!({ "job_id": "t" })),
        ("cron_run", json!({ "job_id": "t" })),
        ("cron_update", json!({ "job_id": "t", "patch": { "enabled": false } })),
        ("cron_update", json!({ "job_id": "t", "patch": { "command": "echo x > stolen" } })),
        ("schedule", json!({ "action": "pause", "name": "t" })),
        ("schedule", json!({ "action": "get", "name": "t" })),
    ] {
        let refused = scene.elsewhere(&["call", "--yes", tool, &arguments.to_string()]);
        assert_ne!(refused.code, 0, "{tool} {arguments}: {}", refused.stdout);
        assert!(refused.stderr.contains("no task"), "{tool}: {}", refused.stderr);
    }
    let before = scene.tasks();
    assert_eq!((before.len(), &before[0]["paused"]), (1, &json!(false)));

    // The same name there is another task, and each runs where it was made.
    let line = ["call", "--yes", "schedule_periodic", &task("echo there > there")];
    scene.elsewhere(&line).ends(0);
    let of = |tasks: Vec<Value>, folder: PathBuf| -> Value {
        let folder = folder.display().to_string();
        tasks.into_iter().find(|task| task["directory"] == *folder).expect("it is listed")
    };
    assert_eq!(of(scene.tasks(), scene.cli.work()), before[0]);
    let there = of(scene.tasks(), scene.other());
    // A person sees both, with their directories, and names one by its number.
    let shown = scene.cli.run(&["tasks", "list"]).ends(0).stdout;
    for folder in [scene.cli.work(), scene.other()] {
        assert!(shown.contains(&folder.display().to_string()), "{shown}");
    }
    let both = scene.cli.run(&["tasks", "run", "t"]).ends(2).stderr;
    assert!(both.contains(&there["id"].to_string()) && both.contains("/other"), "{both}");
    scene.cli.run(&["tasks", "run", &there["id"].to_string()]).ends(0);
    let _daemon = scene.daemon();
    crate::support::wait_until("it has run there", || scene.other().join("there").exists());
    assert!(!scene.cli.work().join("there").exists() && scene.read("here").is_empty());
    scene.elsewhere(&["call", "--yes", "cancel_task", "name=t"]).ends(0);
    assert_eq!(scene.tasks(), before);
}

#[test]
fn what_came_of_a_task_is_text_of_others() {
    let scene = Scene::new("[tools]\nautonomy = \"full\"\n");
    scene.make_steady("t", "bash", r#"{"command": "echo obey-the-page"}"#);
    // Who makes a task reads nothing but what it wrote itself.
    assert!(!scene.saves_untrusted("falcon"));
    let daemon = scene.daemon();
    scene.wait_for("t", "done");
    drop(daemon);
    assert!(!scene.saves_untrusted("kestrel"));
    let list = |line: &[&str]| {
        let line: Vec<&str> = ["call", "--for-model"].iter().chain(line).copied().collect();
        let text = scene.cli.run(&line).ends(0).stdout;
        let begin = text.find("<external-data tool=").expect("it is fenced");
        let end = text.find("</external-data ").expect("it ends");
        let outside = format!("{}{}", &text[..begin], &text[end..]);
        assert!(text[begin..end].contains("obey-the-page"), "{text}");
        assert!(!outside.contains("obey-the-page"), "{text}");
    };
    list(&["list_tasks"]);
    assert!(scene.saves_untrusted("heron"));
    list(&["list_tasks", "name=t"]);
    list(&["schedule", r#"{"action": "list"}"#]);
    list(&["--yes", "cron_update", r#"{"name": "t", "patch": {"enabled": false}}"#]);
}

#[test]
fn patch_of_the_time_marks_what_the_task_does() {
    let scene = Scene::new("[tools]\nautonomy = \"full\"\n");
    scene.make("schedule_periodic", r#"{"name": "t", "cron": "@daily", "prompt": "obey-this"}"#);
    let patch = r#"{"name": "t", "patch": {"schedule": "@hourly"}}"#;
    let said =
        scene.cli.run(&["call", "--for-model", "--yes", "cron_update", patch]).ends(0).stdout;
    let begin = said.find("<external-data tool=").expect("it is fenced");
    assert!(said[begin..].contains("obey-this"), "{said}");
    assert!(!said[..begin].contains("obey-this"), "{said}");
    assert!(scene.saves_untrusted("heron"));
}
