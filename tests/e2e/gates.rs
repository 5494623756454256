//! What the gates allow and refuse, with real tools; judged by the files.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use toolhold_core::config::{self, Config, Folders, Inputs};
use toolhold_core::{
    Access, Answer, Approver, BoxFuture, Call, Category, Definition, Gate, Host, Outcome, Output,
    Question, Reply, Request, Scope, Subject, SubjectKind, ToolSource, Trust, Verdict,
};

use crate::support::{Scene, failure, log_with, refused, run};

/// A scene without a general permission.
async fn supervised(settings: &[&str], prepare: impl FnOnce(&std::path::Path)) -> Scene {
    let settings: Vec<&str> =
        std::iter::once(&"tools.autonomy=supervised").chain(settings).copied().collect();
    Scene::with(&settings, prepare).await
}

#[track_caller]
fn asks(answer: &Answer) {
    failure(answer, Category::ConfirmationRequired, None);
    assert_eq!(answer.decision.as_ref().map(|decision| decision.verdict), Some(Verdict::Ask));
}

/// A configuration with only these settings.
fn settings(folders: &Folders, settings: &[&str]) -> Config {
    let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
    config::load(folders, &Inputs { settings, ..Inputs::default() })
        .expect("the settings are valid")
}

#[test]
fn defaults_run_reads_and_ask_for_acting_calls() {
    run(async {
        let scene = supervised(&[], |_| {}).await;
        let read = scene.call("read", json!({ "path": "public.txt" })).await;
        assert_eq!(read.decision.expect("it was decided").verdict, Verdict::Allow);
        read.outcome.expect("it reads");
        for (tool, arguments) in [
            ("write", json!({ "path": "public.txt", "content": "x" })),
            ("edit", json!({ "path": "public.txt", "old_string": "public", "new_string": "x" })),
            ("delete_path", json!({ "path": "public.txt" })),
            ("move_path", json!({ "source": "public.txt", "destination": "b" })),
            ("copy_path", json!({ "source": "public.txt", "destination": "b" })),
            ("create_directory", json!({ "path": "b" })),
            // It declares nothing.
            (
                "hostile__write_outside",
                json!({ "path": scene.granted.join("public.txt"), "text": "x" }),
            ),
        ] {
            asks(&scene.call(tool, arguments).await);
            assert_eq!(
                fs::read_to_string(scene.granted.join("public.txt")).expect("it is there"),
                "public",
                "{tool}"
            );
            assert!(!scene.granted.join("b").exists(), "{tool}");
        }
    });
}

#[test]
fn permission_applies_to_the_real_path() {
    run(async {
        let rules = "tools.permissions.write=[{ pattern = \"src/**\", action = \"deny\" }, { pattern = \"notes/**\", action = \"allow\" }]";
        let scene = supervised(&[rules], |root| {
            for folder in ["notes", "src"] {
                fs::create_dir(root.join("granted").join(folder)).expect("a folder is made");
            }
            let notes = root.join("granted/notes");
            symlink("../src", notes.join("way")).expect("a link is made");
            symlink("../src/dangling.txt", notes.join("dangling")).expect("a link is made");
            symlink("dangling", notes.join("twice")).expect("a link is made");
        })
        .await;
        let write =
            async |path: &str| scene.call("write", json!({ "path": path, "content": "x" })).await;
        write("notes/a.txt").await.outcome.expect("it is allowed");
        assert!(scene.granted.join("notes/a.txt").exists());
        write("src/../notes/new/b.txt").await.outcome.expect("it is allowed");
        for path in [
            "src/x",
            "SRC/x",
            "notes/../src/x",
            "notes/way/x",
            "notes/way/new/x",
            "notes/dangling",
            "notes/twice",
        ] {
            let answer = write(path).await;
            assert!(answer.outcome.is_err(), "{path}: {answer:?}");
            if path != "SRC/x" {
                let decision = answer.decision.expect("it was decided");
                assert_eq!(
                    (decision.verdict, decision.gate),
                    (Verdict::Deny, Gate::Permissions),
                    "{path}: {decision:?}"
                );
            }
        }
        asks(&write("other.txt").await);
        assert_eq!(fs::read_dir(scene.granted.join("src")).expect("it is there").count(), 0);
        assert!(!scene.granted.join("other.txt").exists() && !scene.granted.join("SRC").exists());
    });
}

#[test]
fn both_ends_of_a_move_count() {
    run(async {
        let list = "[{ pattern = \"a/**\", action = \"allow\" }, { pattern = \"locked/**\", action = \"deny\" }]";
        let rules = [
            format!("tools.permissions.move_path={list}"),
            format!("tools.permissions.copy_path={list}"),
        ];
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let scene = supervised(&rules, |root| {
            for folder in ["a", "b", "locked"] {
                let folder = root.join("granted").join(folder);
                fs::create_dir(&folder)
                    .and_then(|()| fs::write(folder.join("x"), "x"))
                    .expect("files are made");
            }
        })
        .await;
        for tool in ["copy_path", "move_path"] {
            let call = async |from: &str, to: &str| {
                scene.call(tool, json!({ "source": from, "destination": to })).await
            };
            refused(&call("a/x", "locked/y").await, "locked/**");
            refused(&call("locked/x", "a/y").await, "locked/**");
            asks(&call("a/x", "b/y").await);
            asks(&call("b/x", "a/y").await);
            call("a/x", &format!("a/{tool}")).await.outcome.expect("it is allowed");
        }
        assert!(
            scene.granted.join("locked/x").exists()
                && !scene.granted.join("locked/y").exists()
                && !scene.granted.join("b/y").exists()
        );
    });
}

#[test]
fn policy_overrides_every_permission_and_approval() {
    run(async {
        let policy = "tools.policy.rules=[{ effect = \"deny\", paths = [\"migrations\"], access = \"write\" }]";
        let allow = "tools.permissions.write=[{ pattern = \"*\", action = \"allow\" }]";
        let scene = Scene::with(&[policy, allow], |root| {
            fs::create_dir(root.join("granted/migrations")).expect("a folder is made");
            fs::write(root.join("granted/migrations/1.sql"), "old").expect("a file is written");
        })
        .await;
        let write = Request::new("write", json!({ "path": "migrations/1.sql", "content": "new" }));
        let answer = scene.host.call(Request { approver: Some(Arc::new(Always)), ..write }).await;
        assert_eq!(
            refused(&answer, "migrations").denial.as_ref().map(|denial| denial.capability.as_str()),
            Some("policy")
        );
        let copy = scene
            .call("copy_path", json!({ "source": "public.txt", "destination": "migrations/2.sql" }))
            .await;
        refused(&copy, "migrations");
        assert_eq!(
            fs::read_to_string(scene.granted.join("migrations/1.sql")).expect("it is there"),
            "old"
        );
        assert!(!scene.granted.join("migrations/2.sql").exists());
        scene
            .call("read", json!({ "path": "migrations/1.sql" }))
            .await
            .outcome
            .expect("reading is allowed");
    });
}

#[test]
fn missing_path_is_the_working_directory() {
    run(async {
        let scene = Scene::with(&["tools.policy.rules=[{ effect = \"deny\", tools = [\"grep\"], paths = [\"granted\"] }]"], |_| {}).await;
        refused(&scene.call("grep", json!({ "pattern": "public" })).await, "granted");
        refused(&scene.call("grep", json!({ "pattern": "public", "path": "." })).await, "granted");
        scene.call("list_directory", json!({})).await.outcome.expect("it is another tool");
    });
}

#[test]
fn tool_of_which_every_call_is_denied_is_not_shown_and_refuses() {
    run(async {
        let deny = "tools.permissions.write=[{ pattern = \"*\", action = \"deny\" }]";
        let scene = Scene::with(
            &[deny, "tools.permissions.file_edit=[{ pattern = \"**\", action = \"deny\" }]"],
            |_| {},
        )
        .await;
        let names: Vec<String> = scene.host.tools().iter().map(|tool| tool.name.clone()).collect();
        assert!(
            !names.iter().any(|name| name == "write" || name == "edit")
                && names.iter().any(|name| name == "read"),
            "{names:?}"
        );
        refused(
            &scene.call("write", json!({ "path": "new.txt", "content": "x" })).await,
            "pattern = \"*\"",
        );
        refused(
            &scene.call("file_write", json!({ "path": "new.txt", "content": "x" })).await,
            "pattern = \"*\"",
        );
        assert!(!scene.granted.join("new.txt").exists());

        let reading = supervised(&["tools.autonomy=read-only"], |_| {}).await;
        // A tool of which some calls only read stays, for those calls.
        let always_acts = |tool: &&toolhold_core::Definition| {
            !tool.annotations.read_only && tool.name != "http_request"
        };
        let acting =
            |host: &Host| host.tools().iter().map(|tool| &**tool).filter(always_acts).count();
        assert!(acting(&scene.host) > 0 && acting(&reading.host) == 0);
        refused(
            &reading.call("write", json!({ "path": "new.txt", "content": "x" })).await,
            "autonomy = \"read-only\"",
        );
        assert!(!reading.granted.join("new.txt").exists());
    });
}

#[test]
fn plugin_that_is_not_trusted_does_not_run() {
    run(async {
        for (trust, looks) in [("quarantined", true), ("blocked", false)] {
            let scene = Scene::with(&[&format!("plugins.hostile.trust={trust}")], |_| {}).await;
            let file = scene.granted.join("public.txt");
            let answer =
                scene.attack("write_outside", json!({ "path": file, "text": "changed" })).await;
            refused(&answer, trust);
            assert!(!answer.steps.iter().any(|step| step.name == "run"));
            assert_eq!(fs::read_to_string(&file).expect("it is there"), "public");
            assert!(
                scene.host.tools().iter().all(|tool| !tool.name.starts_with("hostile__")
                    || looks && tool.annotations.read_only)
            );
            scene.assert_serves().await;
        }
        // The origin of the call may be trusted less than the tool.
        let scene = Scene::new().await;
        let write = Request {
            trust: Trust::Quarantined,
            ..Request::new("write", json!({ "path": "new.txt", "content": "x" }))
        };
        refused(&scene.host.call(write).await, "quarantined");
        assert!(!scene.granted.join("new.txt").exists());
        let read = Request {
            trust: Trust::Quarantined,
            ..Request::new("read", json!({ "path": "public.txt" }))
        };
        scene.host.call(read).await.outcome.expect("it may look");
    });
}

/// Approves everything.
struct Always;

impl Approver for Always {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async { Reply::Yes { scope: Scope::Once, by: "a test".to_owned() } })
    }
}

/// A shell that runs nothing and counts what it would have run.
struct Shell {
    tool: Arc<Definition>,
    ran: AtomicUsize,
}

impl Shell {
    fn new() -> Arc<Self> {
        let subject = Subject {
            pointer: "/command".to_owned(),
            kind: SubjectKind::Command,
            access: Access::Write,
        };
        let schema = json!({ "type": "object", "properties": { "command": { "type": "string" } }, "required": ["command"] });
        let definition = Definition {
            subjects: vec![subject],
            ..Definition::new("bash", "Runs a command.", schema)
        };
        Arc::new(Self { tool: Arc::new(definition), ran: AtomicUsize::new(0) })
    }
}

impl ToolSource for Shell {
    fn name(&self) -> &str {
        "shell"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        vec![Arc::clone(&self.tool)]
    }

    fn call(&self, _call: Call) -> BoxFuture<'_, Outcome> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(Output::text("done")) })
    }
}

#[test]
fn blocked_command_never_runs() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder is made");
        let folders = Folders::inside(folder.path());
        let allow = "tools.permissions.bash=[{ pattern = \"*\", action = \"allow\" }]";
        let loaded = settings(&folders, &["tools.autonomy=full", allow]);
        let shell = Shell::new();
        let builder =
            Host::builder().config(loaded).folders(folders).working_directory(folder.path());
        let host =
            builder.provider(Arc::clone(&shell) as _).build().await.expect("the host starts");
        let call = async |command: &str| {
            let request = Request::new("bash", json!({ "command": command }));
            host.call(Request { approver: Some(Arc::new(Always)), ..request }).await
        };
        for command in [
            "sudo x",
            "A=1 sudo x",
            "true & sudo x",
            "bash -c 'sudo x'",
            "echo $(sudo x)",
            "s'u'do x",
            "rm -r -f /",
        ] {
            let answer = call(command).await;
            refused(&answer, "blocked command");
            assert_eq!(
                answer.decision.map(|decision| decision.gate),
                Some(Gate::Blocklist),
                "{command}"
            );
        }
        assert_eq!(shell.ran.load(Ordering::SeqCst), 0);
        let seen_by_a_person = call("$X y").await;
        assert!(seen_by_a_person.approval.is_some() && seen_by_a_person.outcome.is_ok());
        call("ls").await.outcome.expect("it is allowed");
        assert_eq!(shell.ran.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn rules_are_exchanged_as_a_whole_while_calls_run() {
    run(async {
        let scene = Arc::new(
            Scene::with(&[], |root| {
                fs::create_dir(root.join("granted/a")).expect("a folder is made");
            })
            .await,
        );
        let folders = Folders::inside(&scene.root().join("toolhold"));
        // Each of the two denies the move, by another gate and another end of it. A mixture would
        // allow it.
        let allow = |folder: &str| {
            format!(
                "tools.permissions.move_path=[{{ pattern = \"{folder}\", action = \"allow\" }}]"
            )
        };
        let deny = |path: &str| {
            format!(
                "tools.policy.rules=[{{ effect = \"deny\", tools = [\"move_path\"], paths = [\"{path}\"] }}]"
            )
        };
        let one = settings(&folders, &["tools.autonomy=full", &allow("*"), &deny("public.txt")]);
        let other = settings(&folders, &["tools.autonomy=read-only", &allow("*")]);
        scene.host.reload_rules(&one).expect("they are right");
        let done = Arc::new(AtomicBool::new(false));
        let swapping = {
            let (scene, done) = (Arc::clone(&scene), Arc::clone(&done));
            std::thread::spawn(move || {
                for round in 0_usize.. {
                    if done.load(Ordering::Relaxed) {
                        return round;
                    }
                    scene
                        .host
                        .reload_rules(if round % 2 == 0 { &other } else { &one })
                        .expect("they are right");
                }
                0
            })
        };
        let mut gates = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let answer = scene
                .call("move_path", json!({ "source": "public.txt", "destination": "a/public.txt" }))
                .await;
            let decision = answer.decision.expect("it was decided");
            assert_eq!(decision.verdict, Verdict::Deny, "{decision:?}");
            gates.insert(decision.gate);
        }
        done.store(true, Ordering::Relaxed);
        assert!(swapping.join().expect("nothing panics") > 1);
        assert!(
            gates.is_subset(&[Gate::Policy, Gate::Autonomy].into())
                && scene.granted.join("public.txt").exists(),
            "{gates:?}"
        );
    });
}

#[test]
fn new_rules_count_from_the_next_call_on() {
    run(async {
        let scene = Scene::with(
            &["tools.permissions.write=[{ pattern = \"*\", action = \"deny\" }]"],
            |_| {},
        )
        .await;
        let folders = Folders::inside(&scene.root().join("toolhold"));
        refused(&scene.call("write", json!({ "path": "x", "content": "x" })).await, "pattern");
        scene
            .host
            .reload_rules(&settings(&folders, &["tools.autonomy=full"]))
            .expect("they are right");
        scene
            .call("write", json!({ "path": "x", "content": "x" }))
            .await
            .outcome
            .expect("the new rules allow it");
    });
}

#[test]
fn permission_for_an_unknown_tool_is_reported() {
    run(async {
        let _scene = Scene::with(
            &["tools.permissions.wrlte=[{ pattern = \"*\", action = \"deny\" }]"],
            |_| {},
        )
        .await;
        let told = log_with(&["`wrlte`", "permissions"]);
        assert!(told.iter().any(|line| line.contains("did you mean `write`?")), "{told:?}");
    });
}
