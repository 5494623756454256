//! The tools and actions of the scheduler under the names, and with the arguments, of other
//! programs.

use serde_json::{Value, json};

use super::Scene;

impl Scene {
    /// Calls a tool with approval, and returns its text.
    #[track_caller]
    fn calls(&self, tool: &str, arguments: &Value) -> String {
        self.make(tool, &arguments.to_string()).stdout
    }

    #[track_caller]
    fn refuses(&self, tool: &str, arguments: &Value) -> String {
        let ended = self.cli.run(&["call", "--yes", tool, &arguments.to_string()]);
        assert_ne!(ended.code, 0, "{tool} {arguments}: {}", ended.stdout);
        format!("{}{}", ended.stdout, ended.stderr)
    }

    /// The task of a name.
    fn task(&self, name: &str) -> Option<Value> {
        self.tasks().into_iter().find(|task| task["name"] == name)
    }
}

#[test]
fn cron_tools_work_by_their_names_and_arguments() {
    let scene = Scene::new("");
    let times = json!({ "kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Berlin" });
    let job = json!({ "name": "j", "schedule": times, "job_type": "shell", "command": "echo a" });
    assert!(scene.calls("cron_add", &job).contains("cron 0 9 * * 1-5 (Europe/Berlin), next at"));
    let made = scene.task("j").expect("it is made");
    assert_eq!(made["action"]["call"]["arguments"]["command"], "echo a", "{made}");
    let prompt = json!({ "name": "p", "schedule": { "kind": "every", "every_ms": 3_600_000 }, "job_type": "agent", "prompt": "tidy" });
    scene.calls("cron_add", &prompt);
    assert_eq!(scene.task("p").expect("it is made")["action"]["prompt"], "tidy");
    for (name, times) in [
        ("at", json!({ "kind": "at", "at": "2030-05-01T09:00:00Z" })),
        ("after", json!({ "kind": "after", "seconds": 90 })),
    ] {
        scene.calls("cron_add", &json!({ "name": name, "schedule": times, "command": "true" }));
        assert_eq!(scene.task(name).expect("it is made")["kind"], "once");
        scene.calls("cron_remove", &json!({ "job_id": name }));
        assert_eq!(scene.task(name), None);
    }
    // As schedule_periodic has it.
    scene.calls("cron_add", &json!({ "name": "flat", "cron_expr": "@daily", "command": "true" }));
    assert!(scene.calls("cron_list", &json!({})).contains("flat: cron @daily"));

    scene.calls("cron_update", &json!({ "job_id": "j", "patch": { "enabled": false } }));
    assert_eq!(scene.task("j").expect("it is there")["paused"], true);
    let patch = json!({ "schedule": "@hourly", "command": "echo ran >> ran", "enabled": true });
    scene.calls("cron_update", &json!({ "job_id": "j", "patch": patch }));
    let changed = scene.task("j").expect("it is there");
    assert_eq!((&changed["when"], &changed["paused"]), (&json!("@hourly"), &json!(false)));

    assert!(scene.calls("cron_run", &json!({ "job_id": "j" })).contains("runs as soon as"));
    let _daemon = scene.daemon();
    scene.wait_for("j", "done");
    assert_eq!(scene.read("ran"), "ran\n");
    let runs = scene.calls("cron_runs", &json!({ "job_id": "j", "limit": 1 }));
    assert_eq!(runs.matches("done for").count(), 1, "{runs}");
    assert!(!scene.calls("cron_runs", &json!({ "job_id": "j", "limit": 0 })).contains("done for"));
    assert!(scene.refuses("cron_remove", &json!({ "job_id": "none" })).contains("no task"));
}

#[test]
fn schedule_knows_the_actions_of_other_programs() {
    let scene = Scene::new("");
    let made = scene.calls(
        "schedule",
        &json!({ "action": "create", "expression": "*/5 * * * *", "command": "echo a" }),
    );
    // It gets a name, which is the ID from then on.
    let name = made.split(':').next().expect("it has one").to_owned();
    assert!(name.starts_with("task-") && scene.task(&name).is_some(), "{made}");
    for action in ["get", "list"] {
        let got = scene.calls("schedule", &json!({ "action": action, "id": name }));
        assert!(got.contains("calls bash {\"command\":\"echo a\"}"), "{got}");
    }
    assert!(scene.calls("schedule", &json!({ "action": "list" })).contains(&name));
    scene.calls("schedule", &json!({ "action": "pause", "id": name }));
    assert_eq!(scene.task(&name).expect("it is there")["paused"], true);
    scene.calls("schedule", &json!({ "action": "resume", "id": name }));
    assert_eq!(scene.task(&name).expect("it is there")["paused"], false);
    scene.calls("schedule", &json!({ "action": "cancel", "id": name }));
    assert_eq!(scene.task(&name), None);
    for (action, more) in [
        ("add", json!({ "expression": "@daily" })),
        ("once", json!({ "delay": "30m" })),
        ("once", json!({ "run_at": "2030-05-01T09:00:00Z" })),
        ("create", json!({ "delay": "2h" })),
    ] {
        let mut task = json!({ "action": action, "id": "t", "command": "true" });
        task.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        scene.calls("schedule", &task);
        scene.calls("schedule", &json!({ "action": "remove", "id": "t" }));
        assert_eq!(scene.task("t"), None);
    }
    scene.calls("schedule", &json!({ "action": "once", "delay": "1s", "command": "echo x > x" }));
    let _daemon = scene.daemon();
    crate::support::wait_until("it has run", || scene.read("x") == "x\n");
}

#[test]
fn names_of_the_other_tools_arguments_work() {
    let scene = Scene::new("");
    let call = json!({ "path": "notes.txt" });
    let periodic =
        json!({ "id": "a", "expression": "@daily", "tz": "UTC", "tool": "read", "args": call });
    scene.calls("schedule_periodic", &periodic);
    let deferred =
        json!({ "task": "b", "run_at": "2030-05-01T09:00:00Z", "tool": "read", "input": call });
    scene.calls("schedule_deferred", &deferred);
    assert_eq!(scene.task("a").expect("it is made")["zone"], "UTC");
    assert_eq!(scene.task("b").expect("it is made")["kind"], "once");
    scene.calls("cancel_task", &json!({ "id": "a" }));
    assert_eq!(scene.tasks().len(), 1);
}

#[test]
fn names_of_other_programs_open_no_other_door() {
    let scene = Scene::new("");
    let task = json!({ "action": "create", "id": "t", "expression": "@daily", "command": "echo all-of-it" });
    let add = json!({ "name": "u", "schedule": { "kind": "every", "every_ms": 90_000 }, "command": "echo all-of-that" });
    // Making a task needs approval, by whatever name, and the question shows all of it.
    for (tool, arguments) in [("schedule", &task), ("cron_add", &add)] {
        scene.cli.run(&["call", tool, &arguments.to_string()]).ends(3);
    }
    assert!(scene.tasks().is_empty());
    let asked = scene.cli.run(&["approvals"]).ends(0).stdout;
    assert!(asked.contains("echo all-of-it") && asked.contains("echo all-of-that"), "{asked}");
    assert!(asked.contains("90000") && asked.contains("@daily"), "{asked}");
    // A model approves nothing.
    let approved =
        json!({ "name": "v", "schedule": "@daily", "command": "true", "approved": true });
    assert!(scene.refuses("cron_add", &approved).contains("approved"));
    // A call that reads makes nothing.
    let reading = ["--set", "tools.autonomy=\"read-only\"", "call", "--yes", "schedule"];
    let line = |arguments: Value| {
        let text = arguments.to_string();
        let line: Vec<&str> = reading.iter().copied().chain([&*text]).collect();
        scene.cli.run(&line)
    };
    line(json!({ "action": "list" })).ends(0);
    assert_ne!(line(task.clone()).code, 0);
    let mut sneaked = task;
    sneaked["action"] = json!("list");
    assert_ne!(line(sneaked).code, 0);
    assert!(scene.tasks().is_empty());
    scene.calls("cron_add", &add);
    // A rule about the tool holds for all of its names.
    scene.cli.configure(&format!(
        "{}[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"schedule\"]\n",
        super::ENABLED
    ));
    for tool in ["schedule", "cron_add", "cron_update", "cron_run"] {
        scene.cli.run(&["call", "--yes", tool, &add.to_string()]).ends(3);
    }
}

#[test]
fn patch_changes_what_it_names_and_gives_no_rights() {
    let scene = Scene::new("");
    let extra = scene.cli.root.path().join("extra");
    std::fs::create_dir(&extra).expect("a folder is made");
    std::fs::write(extra.join("f"), "from outside").expect("it is written");
    let folder = extra.display().to_string();
    for name in ["patched", "anew"] {
        let command = format!("cat {folder}/f > {name}; echo ran >> {name}");
        let add = json!({ "name": name, "schedule": "@daily", "command": command });
        assert!(!scene.calls("cron_add", &add).contains("replaces"));
    }
    scene.calls("schedule", &json!({ "action": "pause", "name": "patched" }));
    let before = scene.task("patched").expect("it is there");
    let granted = format!("[tools.file]\nallowed_paths = [\".\", \"{folder}\"]\n");
    scene.cli.configure(&format!("{}{granted}", super::ENABLED));
    let times = json!({ "kind": "every", "every_ms": 300_000 });
    let patch = json!({ "job_id": "patched", "patch": { "schedule": times } });
    let said = scene.calls("cron_update", &patch);
    assert!(said.contains("every 300 s") && !said.contains("replaces"), "{said}");
    let after = scene.task("patched").expect("it is there");
    assert_eq!((&after["kind"], &after["when"]), (&json!("every"), &json!("300")));
    assert_eq!((&after["action"], &after["id"]), (&before["action"], &before["id"]));
    assert_eq!(after["paused"], true);
    // A whole task of the same name replaces it, and gets what its maker may.
    let command = format!("cat {folder}/f > anew; echo ran >> anew");
    let add = json!({ "name": "anew", "schedule": "@daily", "command": command });
    let said = scene.calls("cron_add", &add);
    assert!(said.contains("replaces the earlier task with this name"), "{said}");
    let _daemon = scene.daemon();
    for name in ["patched", "anew"] {
        scene.calls("cron_run", &json!({ "job_id": name }));
        crate::support::wait_until("it has run", || scene.read(name).contains("ran"));
    }
    assert_eq!(scene.read("patched"), "ran\n");
    assert_eq!(scene.read("anew"), "from outsideran\n");
    scene.refuses("cron_update", &json!({ "job_id": "none", "patch": { "schedule": "@daily" } }));
}
