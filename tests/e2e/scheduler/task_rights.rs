//! A task can never do more than the call that made it, nor more than the rules of its time allow.
//! Each test looks at the effect outside.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::Scene;
use crate::support::wait_until;

/// A task that could never run isn't made. So `link` is a folder of the project until the task is
/// made, and leads out of it when the task runs.
impl Scene {
    /// Makes the folder `link`, and one outside, whose path is returned.
    fn outside(&self) -> PathBuf {
        fs::create_dir(self.cli.work().join("link")).expect("a folder is made");
        let outside = self.cli.work().parent().expect("it has a parent").join("outside");
        fs::create_dir(&outside).expect("a folder is made");
        outside
    }

    fn lead_outside(&self, outside: &Path) {
        let link = self.cli.work().join("link");
        fs::remove_dir(&link).expect("it is empty");
        symlink(outside, link).expect("it is made");
    }
}

#[test]
fn task_of_a_narrower_call_stays_narrow() {
    let scene = Scene::new(
        "[tools.file]\nallowed_paths = [\".\", \"~/outside\"]\n[tools.shell]\nallowed_paths = [\".\", \"~/outside\"]\n",
    );
    let outside = scene.outside();
    // The maker was started with less than the daemon has.
    let narrow = [
        "--set",
        "tools.file.allowed_paths=[\".\"]",
        "--set",
        "tools.shell.allowed_paths=[\".\"]",
        "call",
        "--yes",
        "schedule_periodic",
    ];
    let make = |narrow: &[&str], name: &str, tool: &str, arguments: &str| {
        let task = format!(
            r#"{{"name": "{name}", "cron": "* * * * * *", "tool": "{tool}", "arguments": {arguments}}}"#
        );
        let line: Vec<&str> = narrow.iter().copied().chain([&*task]).collect();
        scene.cli.run(&line).ends(0);
    };
    make(&narrow, "file", "write", r#"{"path": "link/stolen-file", "content": "x"}"#);
    make(&narrow, "shell", "bash", r#"{"command": "echo x > link/stolen-shell"}"#);
    // The same by a call without a narrower bound does it.
    make(&narrow[4..], "wide", "write", r#"{"path": "link/stolen-wide", "content": "x"}"#);
    scene.lead_outside(&outside);
    let _daemon = scene.daemon();
    let denied = scene.wait_for("file", "denied");
    let output = denied["output"].as_str().expect("it is text");
    assert!(output.contains("at the creation of the task"), "{output}");
    assert!(output.contains("create the task again"), "{output}");
    // A line in the user's file would not help.
    assert!(!output.contains("add to `allowed_paths`"), "{output}");
    wait_until("the shell's has run", || {
        !scene.runs("shell").is_empty() && scene.runs("shell")[0]["ended"].is_string()
    });
    scene.wait_for("wide", "done");
    assert!(outside.join("stolen-wide").exists());
    assert!(!outside.join("stolen-file").exists() && !outside.join("stolen-shell").exists());
}

#[test]
fn task_that_only_flags_allow_is_refused() {
    let scene = Scene::new("");
    let outside = scene.cli.root.path().join("outside");
    fs::create_dir(&outside).expect("a folder is made");
    fs::write(outside.join("f"), "x").expect("it is written");
    let folder = outside.display().to_string();
    let call = |tool: &str, more: &str| {
        format!(
            r#"{{"name": "t", "cron": "@daily", "tool": "{tool}", "arguments": {{"path": "{folder}/f"{more}}}}}"#
        )
    };
    for (flag, task) in [
        ("--allow-read", call("read", "")),
        ("--allow", call("read", "")),
        ("--allow", call("write", r#", "content": "y""#)),
        ("--allow-read", call("search_code", r#", "query": "x""#)),
        ("--allow-read", call("diagnostics", "")),
    ] {
        for way in [&["call", "--yes"][..], &["policy", "check"]] {
            let line = [&[flag, &*folder], way, &["schedule_periodic", &*task]].concat();
            let refused = scene.cli.run(&line).ends(3);
            let said = refused.stdout + &refused.stderr;
            assert!(said.contains("allowed_paths") && said.contains(&folder), "{said}");
            if way[0] == "call" {
                assert!(said.contains(&format!("without the flags `{flag} {folder}`")), "{said}");
            }
        }
        assert!(scene.tasks().is_empty(), "{flag} {task}");
    }
    // What only a flag allows without approval needs it later.
    scene.cli.configure(&format!("{}[tools]\nautonomy = \"ask\"\n", super::ENABLED));
    let task = r#"{"name": "t", "cron": "@daily", "tool": "write", "arguments": {"path": "f", "content": "x"}}"#;
    let full = ["--set", "tools.autonomy=full", "call", "--yes", "schedule_periodic", task];
    let made = scene.cli.run(&full).ends(0).stdout;
    assert!(made.contains("The call of `write` needs approval"), "{made}");
    assert!(made.contains("`tools.autonomy`"), "{made}");
    // What the configuration allows is made with flags too.
    let task = r#"{"name": "own", "cron": "@daily", "tool": "read", "arguments": {"path": "f"}}"#;
    let line = ["--allow-read", &folder, "call", "--yes", "schedule_periodic", task];
    scene.cli.run(&line).ends(0);
    assert_eq!(scene.tasks().len(), 2);
}

#[test]
fn flag_of_the_maker_grants_nothing_when_the_file_grants_it_later() {
    let scene = Scene::new("");
    let extra = scene.cli.root.path().join("extra");
    fs::create_dir(&extra).expect("a folder is made");
    fs::write(extra.join("f"), "from outside").expect("it is written");
    let folder = extra.display().to_string();
    let task = |name: &str| {
        format!(
            r#"{{"name": "{name}", "when": "1h", "tool": "bash", "arguments": {{"command": "cat {folder}/f > {name}"}}}}"#
        )
    };
    let flag = ["--allow-read", &folder, "call", "--yes", "schedule_deferred"];
    let make = |flag: &[&str], name: &str| {
        let task = task(name);
        let line: Vec<&str> = flag.iter().copied().chain([&*task]).collect();
        scene.cli.run(&line).ends(0).stdout
    };
    let made = make(&flag, "flag");
    assert!(made.contains("Flags of this command don't apply to the task"), "{made}");
    assert!(made.contains("`tools.file.allowed_paths`"), "{made}");
    let made = make(&flag[2..], "control");
    assert!(!made.contains("flags"), "{made}");
    let granted = format!("[tools.file]\nallowed_paths = [\".\", \"{folder}\"]\n");
    scene.cli.configure(&format!("{}{granted}", super::ENABLED));
    make(&flag[2..], "anew");
    let _daemon = scene.daemon();
    for name in ["flag", "control", "anew"] {
        scene.cli.run(&["tasks", "run", name]).ends(0);
        wait_until("it has run", || {
            scene.runs(name).first().is_some_and(|run| run["ended"].is_string())
        });
    }
    assert_eq!(scene.read("anew"), "from outside");
    assert_eq!(scene.read("flag") + &scene.read("control"), "");
}

#[test]
fn flag_of_the_maker_grants_a_file_tool_nothing_when_its_task_runs() {
    let scene = Scene::new("");
    let outside = scene.outside();
    fs::create_dir(scene.cli.work().join("inside")).expect("a folder is made");
    let folder = outside.display().to_string();
    let call = ["--allow", &folder, "call", "--yes"];
    let write = |path: &str| format!(r#"{{"path": "{path}", "content": "x"}}"#);
    let task = |name: &str, path: &str| {
        format!(
            r#"{{"name": "{name}", "when": "1h", "tool": "write", "arguments": {}}}"#,
            write(path)
        )
    };
    for task in [task("flag", "link/made"), task("control", "inside/made")] {
        scene.cli.run(&[&call[..], &["schedule_deferred", &task]].concat()).ends(0);
    }
    scene.lead_outside(&outside);
    let _daemon = scene.daemon();
    for name in ["flag", "control"] {
        scene.cli.run(&["tasks", "run", name]).ends(0);
    }
    scene.wait_for("flag", "denied");
    scene.wait_for("control", "done");
    assert_eq!(scene.read("inside/made"), "x");
    assert!(!outside.join("made").exists());
    // What the flag allows, the maker's own call may do.
    let own = write(&outside.join("made").display().to_string());
    scene.cli.run(&[&call[..], &["write", &own]].concat()).ends(0);
    assert!(outside.join("made").exists());
}

#[test]
fn rule_of_the_maker_denies_and_says_whose_it_is() {
    let scene = Scene::new("");
    let outside = scene.outside();
    let rule = format!(
        "[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"write\"]\npaths = [\"{}/**\"]\n",
        outside.display()
    );
    let granted = format!(
        "[tools.file]\nallowed_paths = [\".\", \"{}\"]\n{}",
        outside.display(),
        super::ENABLED
    );
    scene.cli.configure(&format!("{granted}{rule}"));
    scene.make_steady("t", "write", r#"{"path": "link/made", "content": "x"}"#);
    scene.cli.configure(&granted);
    scene.lead_outside(&outside);
    let _daemon = scene.daemon();
    let run = scene.wait_for("t", "denied");
    let output = run["output"].as_str().expect("it is text");
    assert!(
        output.contains("create the task again") && !output.contains("ask whoever"),
        "{output}"
    );
    assert!(!outside.join("made").exists());
}

#[test]
fn rule_that_came_later_denies() {
    let scene = Scene::new("");
    scene.make_steady("t", "bash", r#"{"command": "echo x > made"}"#);
    scene.cli.configure(&format!(
        "{}[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"bash\"]\n",
        super::ENABLED
    ));
    let _daemon = scene.daemon();
    let run = scene.wait_for("t", "denied");
    assert!(run["output"].as_str().expect("it is text").contains("toolhold.toml"), "{run}");
    assert_eq!(scene.read("made"), "");
    // The advice is true: what didn't hold when the task was made, needs no new task.
    assert!(run["output"].to_string().contains("If the rule is older than the task"), "{run}");
    scene.cli.configure(super::ENABLED);
    scene.wait_for("t", "done");
    assert_eq!(scene.read("made"), "x\n");
}

#[test]
fn project_widens_nothing_and_may_narrow() {
    let scene = Scene::new("");
    let folder = scene.outside();
    let outside = folder.join("file");
    scene.make_steady("out", "write", r#"{"path": "link/file", "content": "x"}"#);
    scene.lead_outside(&folder);
    let project = scene.cli.work().join("toolhold.toml");
    fs::write(&project, "tools.file.allowed_paths = [\"/\"]\ntools.autonomy = \"full\"\n")
        .expect("it is written");
    let _daemon = scene.daemon();
    scene.wait_for("out", "denied");
    assert!(!outside.exists());
    fs::write(&project, "tools.scheduler.enabled = false\n").expect("it is written");
    scene.cli.run(&["tasks", "remove", "out"]).ends(0);
    fs::write(&project, "").expect("it is written");
    scene.make_steady("in", "bash", r#"{"command": "echo x > made"}"#);
    scene.wait_for("in", "done");
    fs::write(&project, "tools.scheduler.enabled = false\n").expect("it is written");
    scene.wait_for("in", "denied");
}

#[test]
fn what_needs_approval_does_not_run_and_waits_as_a_question() {
    let scene = Scene::new("[tools]\nautonomy = \"ask\"\n");
    scene.make_steady("t", "bash", r#"{"command": "echo x > made"}"#);
    let _daemon = scene.daemon();
    let run = scene.wait_for("t", "denied");
    assert!(run["output"].as_str().expect("it is text").contains("approv"), "{run}");
    assert_eq!(scene.read("made"), "");
    let asked = scene.cli.run(&["approvals"]).ends(0).stdout;
    assert!(asked.contains("echo x > made"), "{asked}");
}

#[test]
fn tasks_make_no_tasks() {
    let scene = Scene::new("");
    let nested = r#"{"name": "t", "cron": "@daily", "tool": "schedule_periodic", "arguments": {"name": "u", "cron": "@daily", "prompt": "x"}}"#;
    let failed = scene.cli.run(&["call", "--yes", "schedule_periodic", nested]).ends(1);
    assert!(failed.stderr.contains("a task can't change tasks"), "{}", failed.stderr);
    assert!(scene.tasks().is_empty());
}

#[test]
fn no_tool_reaches_the_tasks_themselves() {
    let scene = Scene::new("[tools.file]\nallowed_paths = [\"~\"]\n");
    scene.make_steady("t", "bash", r#"{"command": "true"}"#);
    let file = scene.cli.root.path().join("data/schedule/tasks.db");
    let before = fs::read(&file).expect("it is there");
    let path = file.display().to_string();
    for (tool, arguments) in [
        ("write", format!(r#"{{"path": "{path}", "content": "x"}}"#)),
        ("delete_path", format!(r#"{{"path": "{path}"}}"#)),
        ("bash", format!(r#"{{"command": "echo x > {path}"}}"#)),
    ] {
        assert_ne!(scene.cli.run(&["call", "--yes", tool, &arguments]).code, 0, "{tool}");
    }
    assert_eq!(fs::read(&file).expect("it is there"), before);
    assert_eq!(scene.tasks().len(), 1);
}

#[test]
fn task_of_a_caller_of_a_server_is_not_the_user_s() {
    let scene = Scene::new("");
    let save = r#""tool": "memory_save", "arguments": {"content": "a falcon", "scope": "user"}"#;
    for name in ["own", "served"] {
        let task = format!(r#"{{"name": "{name}", "when": "P1000D", {save}}}"#);
        scene.make("schedule_deferred", &task);
    }
    let prompt = r#"{"name": "prompt", "when": "P1000D", "prompt": "write a file"}"#;
    scene.make("schedule_deferred", prompt);
    // As if it had come over HTTP from an authenticated caller.
    let file = scene.cli.root.path().join("data/schedule/tasks.db");
    let changed = rusqlite::Connection::open(file)
        .expect("it opens")
        .execute("UPDATE tasks SET principal = 'mcp anna' WHERE name <> 'own'", [])
        .expect("they change");
    assert_eq!(changed, 2);
    let found = || scene.cli.run(&["call", "memory_search", "query=falcon"]).ends(0).stdout;
    for name in ["served", "prompt"] {
        scene.cli.run(&["tasks", "run", name]).ends(0);
    }
    let _daemon = scene.daemon();
    scene.wait_for("served", "done");
    assert!(!found().contains("a falcon"), "{}", found());
    let denied = scene.wait_for("prompt", "denied");
    assert!(denied["output"].to_string().contains("a client of a server"), "{denied}");
    scene.cli.run(&["tasks", "run", "own"]).ends(0);
    scene.wait_for("own", "done");
    assert!(found().contains("a falcon"), "{}", found());
}
