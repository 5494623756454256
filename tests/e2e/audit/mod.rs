//! The record of every call: its fields, the calls that are refused if it can't be written, and its
//! form from outside.

mod killed_processes;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_contract::{BoxFuture, Call, Definition, Outcome, Output, ToolSource};
use toolhold_core::audit::Trail;
use toolhold_core::config::{self, Folders, Inputs, Who};
use toolhold_core::{
    Access, Annotations, Failure, Host, Phase, Request, Session, Subject, SubjectKind, Trust,
};

use crate::support::{Cli, Scene, run, shared_cache};

fn records(folders: &Folders) -> Vec<Value> {
    Trail::open(folders).and_then(|trail| trail.last(usize::MAX)).expect("the log is readable")
}

/// The records of calls.
fn of_calls(folders: &Folders) -> Vec<Value> {
    records(folders).into_iter().filter(|record| record["call"].is_string()).collect()
}

impl Cli {
    fn own(&self) -> Folders {
        Folders { data: self.root.path().join("data"), ..Folders::inside(self.root.path()) }
    }

    fn audit(&self, name: &str) -> PathBuf {
        self.own().data.join("audit").join(name)
    }
}

#[test]
fn every_command_line_call_is_recorded_with_its_decision() {
    let cli = Cli::asking();
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    cli.run(&["call", "write", "path=new.txt", "content=hello"]).ends(3);
    cli.run(&["call", "write", "path=new.txt", "content=hello", "--yes"]).ends(0);
    cli.run(&["call", "read", "path=../secret.txt"]).ends(3);
    cli.run(&["call", "read", "path=missing.txt"]).ends(1);
    cli.run(&["call", "no-such-tool"]).ends(2);
    cli.run(&["call", "read", "{\"path\": 5}"]).ends(2);

    let found = of_calls(&cli.own());
    let shown: Vec<String> = found
        .iter()
        .map(|record| {
            format!("{} {} {}", record["kind"], record["tool"], record["error_category"])
                .replace('"', "")
        })
        .collect();
    assert_eq!(shown[..2], ["outcome read null", "outcome write confirmation_required"]);
    assert_eq!(
        shown[shown.len() - 4..],
        [
            "outcome read policy_blocked",
            "outcome read permanent_failure",
            "outcome null tool_not_found",
            "outcome read type_mismatch",
        ]
    );
    let read = &found[0];
    let work = cli.work().display().to_string();
    for (key, expected) in [
        ("arguments", json!({ "path": format!("{work}/notes.txt") })),
        (
            "subjects",
            json!([{ "kind": "path", "access": "read", "text": format!("{work}/notes.txt") }]),
        ),
        ("plugin", json!("file")),
        ("claim_source", json!("file_system")),
        ("result", json!("success")),
        ("verdict", json!("allow")),
        ("trust", json!("trusted")),
        ("front_end", json!("toolhold call")),
    ] {
        assert_eq!(read[key], expected, "{key} of {read}");
    }
    assert!(read["digest"].as_str().is_some_and(|digest| digest.len() == 64), "{read}");
    assert!(read["duration_ms"].is_number() && read["bytes"].as_u64() > Some(10), "{read}");
    let absent = [
        "error_category",
        "exit_code",
        "cached",
        "truncated",
        "approved_by",
        "phase",
        "caller_id",
        "denials",
        "attempts",
        "user_issuer",
        "groups",
    ];
    assert!(absent.iter().all(|key| read.get(key).is_none()), "{read}");

    let id = |option| {
        let ended = Command::new("id").arg(option).output().expect("it starts");
        String::from_utf8_lossy(&ended.stdout).trim().to_owned()
    };
    // A name that isn't in `/etc/passwd` is unknown.
    let names = [json!(id("-un")), json!(format!("uid:{}", id("-u")))];
    for record in &found {
        assert!(names.contains(&record["user"]), "{names:?}: {record}");
    }

    // Question, approval, intent and outcome, with the same ID.
    let written: Vec<&Value> =
        found.iter().filter(|record| record["call"] == found[shown.len() - 5]["call"]).collect();
    let kinds: Vec<&str> = written.iter().filter_map(|record| record["kind"].as_str()).collect();
    assert_eq!(kinds, ["approval", "intent", "outcome"], "{written:#?}");
    assert_eq!(
        (written[0]["answer"].as_str(), written[2]["approved_by"].as_str()),
        (Some("yes"), Some("--yes"))
    );
    assert!(written[2]["approval_scope"].is_string(), "{}", written[2]);

    let refused = &found[shown.len() - 4];
    assert_eq!(
        (&refused["result"], &refused["verdict"], &refused["gate"]),
        (&json!("blocked"), &json!("deny"), &json!("grants"))
    );
    assert!(
        refused["rule"].as_str().is_some_and(|rule| rule.contains("allowed_paths")),
        "{refused}"
    );
    assert!(
        refused["arguments"]["path"].as_str().is_some_and(|path| path.ends_with("../secret.txt")),
        "{refused}"
    );
    let missing = &found[shown.len() - 2];
    assert_eq!(missing["asked"], "no-such-tool");

    for (name, mode) in [("", 0o700), ("audit.jsonl", 0o600), ("head", 0o600), ("key", 0o600)] {
        let found =
            fs::metadata(cli.audit(name)).expect("it is there").permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{name}: {found:o}");
    }
    cli.run(&["audit", "verify"]).ends(0);
}

#[test]
fn record_says_what_an_answer_comes_from() {
    let cli = Cli::new();
    for (line, source) in [
        (["memory_save", "content=Deploy with make", "key=deploy"], "memory"),
        (["search_code", "query=first", "max_results=1"], "code_search"),
        (["diagnostics", "checkers=[\"cargo\"]", "path=."], "diagnostics"),
    ] {
        let line: Vec<&str> = ["call", "--yes"].into_iter().chain(line).collect();
        cli.run(&line);
        let last = cli.run(&["audit", "tail", "--json", "-n", "1"]).ends(0).json();
        assert_eq!((&last["claim_source"], &last["exit_code"]), (&json!(source), &Value::Null));
    }
}

#[test]
fn audit_commands_show_records_and_find_changes() {
    let cli = Cli::new();
    for command in
        [&["audit", "verify"][..], &["audit", "stats"], &["audit", "head"], &["audit", "tail"]]
    {
        let ended = cli.run(command).ends(0);
        assert!(
            format!("{}{}", ended.stdout, ended.stderr).contains("Nothing is recorded yet."),
            "{command:?}: {}",
            ended.stdout
        );
    }
    assert!(!cli.audit("").exists(), "looking makes nothing");
    for _ in 0..3 {
        cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    }
    let id = cli.run(&["call", "read", "path=../secret.txt", "--json"]).ends(3).json()["id"]
        .as_str()
        .expect("it has one")
        .to_owned();

    let head = cli.run(&["audit", "head"]).ends(0).stdout.trim().to_owned();
    assert_eq!(cli.run(&["audit", "head", "--json"]).json(), json!({ "seq": 5, "hash": head }));
    let verified = cli.run(&["audit", "verify", "--head", &head, "--json"]).ends(0).json();
    assert_eq!(
        (&verified["ok"], &verified["records"], &verified["problems"]),
        (&json!(true), &json!(5), &json!([]))
    );
    assert!(
        cli.run(&["audit", "verify"])
            .ends(0)
            .stdout
            .contains("ok: 5 records in 1 file: no record was changed, and no record is missing.")
    );
    cli.run(&["audit", "verify", "--head", "x"]).ends(2);

    let tail = cli.run(&["audit", "tail", "-n", "2"]).ends(0).stdout;
    assert!(
        tail.lines().count() == 2 && tail.lines().all(|line| line.contains("  read {\"path\":")),
        "{tail}"
    );
    assert!(tail.contains("  policy_blocked  ") && tail.contains(&id), "{tail}");
    let lines = cli.run(&["audit", "tail", "--json"]).ends(0).stdout;
    assert_eq!(
        lines,
        fs::read_to_string(cli.audit("audit.jsonl")).expect("it is readable"),
        "each record is the line that it is"
    );
    assert!(
        cli.run(&["audit", "show", &id])
            .ends(0)
            .stdout
            .contains("error_category   policy_blocked\n")
    );
    assert_eq!(cli.run(&["audit", "show", &id, "--json"]).json()[0]["call"], json!(id));
    cli.run(&["audit", "show", "no-such-id"]).ends(2);
    let stats = cli.run(&["audit", "stats", "--json"]).ends(0).json();
    let shown = (
        &stats[0]["tool"],
        &stats[0]["calls"],
        &stats[0]["denials"],
        &stats[0]["failures"],
        &stats[0]["asks"],
    );
    assert_eq!(shown, (&json!("read"), &json!(4), &json!(1), &json!(0), &json!(0)));
    assert!(
        cli.run(&["audit", "stats"])
            .ends(0)
            .stdout
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("read"))
    );

    let log = fs::read_to_string(cli.audit("audit.jsonl")).expect("it is readable");
    fs::write(cli.audit("audit.jsonl"), log.replacen("notes.txt", "other.txt", 1))
        .expect("it is written");
    let found = cli.run(&["audit", "verify"]).ends(4).stdout;
    assert!(found.starts_with("wrong: audit.jsonl:2: record 2 was changed\n"), "{found}");
    let report = cli.run(&["doctor", "--json"]).ends(4).json();
    let finding = report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|finding| finding["name"] == "audit log")
        .expect("it is told");
    assert!(
        finding["state"] == "failure"
            && finding["found"]
                .as_str()
                .is_some_and(|found| found.contains("record 2 was changed")),
        "{finding}"
    );
    // The log goes on, and the problem stays visible.
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    assert_eq!(
        cli.run(&["audit", "verify", "--json"]).ends(4).json()["problems"].as_array().map(Vec::len),
        Some(1)
    );
    // The stored hash shows an older state of everything.
    fs::remove_dir_all(cli.audit("")).expect("it is removed");
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    cli.run(&["audit", "verify"]).ends(0);
    assert!(cli.run(&["audit", "verify", "--head", &head]).ends(4).stdout.contains(&head));
}

#[test]
fn emptied_log_differs_from_a_new_one() {
    for gone in [&["audit.jsonl", "head"][..], &["head"], &["audit.jsonl"]] {
        let cli = Cli::new();
        cli.run(&["call", "read", "path=notes.txt"]).ends(0);
        for name in gone {
            fs::remove_file(cli.audit(name)).expect("it is removed");
        }
        cli.run(&["audit", "verify"]).ends(4);
        for command in [
            &["audit", "head"][..],
            &["audit", "head", "--json"],
            &["audit", "tail"],
            &["audit", "tail", "--follow"],
            &["audit", "stats"],
        ] {
            let told = cli.run(command).ends(4);
            let all = format!("{}{}", told.stdout, told.stderr);
            assert!(
                all.contains("toolhold audit verify") && !all.contains("Nothing is recorded yet."),
                "{gone:?} {command:?}: {all}"
            );
        }
    }
}

#[test]
fn following_shows_records_as_they_are_written() {
    use std::io::BufRead;
    let cli = Cli::new();
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    let mut child = cli
        .command(&["audit", "tail", "-n", "1", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("toolhold starts");
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("it has an output")).lines();
    let mut next = || {
        serde_json::from_str::<Value>(&lines.next().expect("there is a line").expect("it is text"))
            .expect("it is JSON")
    };
    assert_eq!(next()["seq"], 2);
    cli.run(&["call", "read", "path=notes.txt", "limit=1"]).ends(0);
    let record = next();
    assert_eq!((&record["seq"], &record["arguments"]["limit"]), (&json!(3), &json!(1)));
    child.kill().and_then(|()| child.wait()).expect("it ends");
}

#[test]
fn acting_call_that_cannot_be_recorded_is_not_run() {
    let cli = Cli::new();
    cli.run(&["--set", "audit.enabled=false", "call", "read", "path=notes.txt"]).ends(0);
    assert!(!cli.audit("").exists(), "it is switched off");
    // Something else is in its place.
    fs::create_dir_all(cli.own().data)
        .and_then(|()| fs::write(cli.own().data.join("audit"), "no folder"))
        .expect("it is written");
    let write = ["--set", "tools.autonomy=full", "call", "write", "path=new.txt", "content=x"];
    let new = cli.work().join("new.txt");
    let told = cli.run(&write).ends(4).stderr;
    for words in [
        "error[permanent_failure/audit]: The call was not run",
        "data/audit: ",
        "`on_failure = \"continue\"` in [audit]",
    ] {
        assert!(told.contains(words), "{words:?} is missing in: {told}");
    }
    assert!(!told.contains("audit.jsonl"), "it names what is in the way: {told}");
    assert!(!new.exists(), "nothing was done");
    let read = cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    assert!(
        read.stdout.contains("first") && read.stderr.contains("calls are not recorded"),
        "{}",
        read.stderr
    );
    cli.run(&[&["--set", "audit.on_failure=continue"], &write[..]].concat()).ends(0);
    assert!(new.exists());
    let report = cli.run(&["doctor", "--json"]).ends(4).json();
    let findings = report["findings"].as_array().expect("a list");
    assert!(
        findings
            .iter()
            .any(|finding| finding["name"] == "audit log" && finding["state"] == "failure"),
        "{report}"
    );
}

#[test]
fn untrusted_configuration_cannot_turn_the_record_off() {
    let cli = Cli::new();
    fs::write(
        cli.work().join("toolhold.toml"),
        "[audit]\nenabled = false\non_failure = \"continue\"\nkeep = 1\nmax_mib = 1\n",
    )
    .expect("it is written");
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    assert_eq!(of_calls(&cli.own()).len(), 1);
}

#[test]
fn guests_reach_nothing_of_the_record() {
    run(async {
        let scene = Scene::in_folders(
            &[],
            |_| {},
            |root| {
                Some(Folders {
                    cache: shared_cache(),
                    ..Folders::inside(&root.join("granted/own"))
                })
            },
        );
        let scene = scene.await;
        scene.call("read", json!({ "path": "public.txt" })).await.outcome.expect("it is read");
        let audit = scene.granted.join("own/data/audit");
        let before = fs::read(audit.join("key")).expect("it is there");
        for name in ["audit.jsonl", "key", "head"] {
            let path = audit.join(name);
            for tool in ["read", "delete_path"] {
                crate::support::refused(
                    &scene.call(tool, json!({ "path": path })).await,
                    "own files",
                );
            }
            crate::support::refused(
                &scene.attack("write_outside", json!({ "path": path })).await,
                "own files",
            );
        }
        assert_eq!(fs::read(audit.join("key")).expect("it is there"), before);
        let folders = Folders::inside(&scene.granted.join("own"));
        assert!(
            Trail::open(&folders)
                .and_then(|trail| trail.verify(None))
                .expect("it is readable")
                .holds()
        );
    });
}

/// A tool that reads what was recorded when it runs, and does what its arguments say.
struct Looking {
    folders: Folders,
    seen: Mutex<BTreeMap<String, Vec<Value>>>,
}

impl ToolSource for Looking {
    fn name(&self) -> &str {
        "looking"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        let schema = json!({ "type": "object" });
        let acting = Definition::new("act", "Acts", schema.clone());
        let reading = Definition {
            annotations: Annotations { read_only: true, ..acting.annotations },
            ..acting.clone()
        };
        let subject = Subject {
            pointer: "/command".into(),
            kind: SubjectKind::Command,
            access: Access::Write,
        };
        let shell =
            Definition { subjects: vec![subject], ..Definition::new("shell", "Runs", schema) };
        vec![
            Arc::new(acting),
            Arc::new(Definition { name: "look".into(), ..reading }),
            Arc::new(shell),
        ]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            self.seen
                .lock()
                .expect("nothing panics")
                .insert(call.id.to_string(), records(&self.folders));
            call.report.entries().exit_code =
                call.arguments["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok());
            if call.arguments["wait"] == true {
                std::future::pending::<()>().await;
            }
            match call.arguments["fail"].as_str() {
                Some(message) => Err(Failure::new(toolhold_core::Category::ServerError, message)),
                None => Ok(Output::text("done")),
            }
        })
    }
}

async fn looking(folder: &TempDir, settings: &[&str]) -> (Host, Arc<Looking>, Folders) {
    let local_user = None;
    looking_for(folder, settings, local_user).await
}

async fn looking_for(
    folder: &TempDir,
    settings: &[&str],
    principal: Option<Who>,
) -> (Host, Arc<Looking>, Folders) {
    let folders =
        Folders { cache: shared_cache(), ..Folders::inside(&folder.path().join("toolhold")) };
    let settings =
        ["tools.autonomy=full"].iter().chain(settings).map(|&setting| setting.to_owned()).collect();
    let loaded = config::load(&folders, &Inputs { settings, ..Inputs::default() })
        .expect("the settings are valid");
    let tools = Arc::new(Looking { folders: folders.clone(), seen: Mutex::default() });
    let mut builder =
        Host::builder().config(loaded).folders(folders.clone()).working_directory(folder.path());
    if let Some(who) = principal {
        builder = builder.principal(who);
    }
    let host = builder
        .provider(Arc::clone(&tools) as Arc<dyn ToolSource>)
        .build()
        .await
        .expect("the host starts");
    (host, tools, folders)
}

#[test]
fn acting_calls_are_recorded_before_running_and_all_before_answering() {
    for durable in ["audit.durable=false", "audit.durable=true"] {
        run(async move {
            let folder = TempDir::new().expect("a temporary folder is made");
            let (host, tools, folders) = looking(&folder, &[durable]).await;
            for (tool, before) in [("act", &["intent"][..]), ("look", &[])] {
                let answer = host.call(Request::new(tool, json!({}))).await;
                let id = answer.id.to_string();
                let kinds = |records: &[Value]| {
                    let own = records.iter().filter(|record| record["call"] == id.as_str());
                    own.map(|record| record["kind"].as_str().unwrap_or_default().to_owned())
                        .collect::<Vec<_>>()
                };
                assert_eq!(
                    kinds(&tools.seen.lock().expect("nothing panics")[&id]),
                    before,
                    "{tool} when it runs"
                );
                assert_eq!(
                    kinds(&records(&folders)),
                    [before, &["outcome"]].concat(),
                    "{tool} when it is answered"
                );
            }
        });
    }
}

#[test]
fn every_entry_of_a_principal_names_it() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let who = Who {
            issuer: "https://login.example.org".to_owned(),
            subject: "anna".to_owned(),
            groups: vec!["dev".to_owned(), "ops".to_owned()],
            client: None,
            token: None,
        };
        let (host, _, folders) = looking_for(&folder, &[], Some(who)).await;
        host.call(Request::new("act", json!({}))).await.outcome.expect("it works");
        let found = of_calls(&folders);
        let kinds: Vec<&Value> = found.iter().map(|record| &record["kind"]).collect();
        assert_eq!(kinds, ["intent", "outcome"]);
        for record in found {
            assert_eq!(record["user"], "anna", "{record}");
            assert_eq!(record["user_issuer"], "https://login.example.org", "{record}");
            assert_eq!(record["groups"], json!(["dev", "ops"]), "{record}");
        }
    });
}

#[test]
fn record_has_the_caller_and_the_exit_code() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let (host, _, folders) = looking(&folder, &[]).await;
        let request = Request {
            caller: Some("reviewer\u{1b}[2J".into()),
            phase: Some(Phase::Verifier),
            trust: Trust::Verified,
            session: Some(Session::new("a session")),
            ..Request::new("shell", json!({ "command": "make", "exit_code": 2, "fail": "broke" }))
        };
        host.call(request).await.outcome.expect_err("it fails");
        host.call(Request::new("shell", json!({ "command": "sleep" })))
            .await
            .outcome
            .expect("it works");
        host.call(Request::new(
            "act",
            json!({ "_tafc_think": "private", "_TAFC_THINK": "private" }),
        ))
        .await
        .outcome
        .expect("it works");
        let found: Vec<Value> =
            of_calls(&folders).into_iter().filter(|record| record["kind"] == "outcome").collect();
        for (key, expected) in [
            ("caller_id", json!("reviewer\u{fffd}[2J")),
            ("phase", json!("verifier")),
            ("trust", json!("verified")),
            ("session", json!("a session")),
            ("front_end", json!("library")),
            ("provider", json!("looking")),
            ("claim_source", json!("shell")),
            ("exit_code", json!(2)),
            ("result", json!("error")),
            ("error_category", json!("server_error")),
            ("error", json!("broke")),
        ] {
            assert_eq!(found[0][key], expected, "{key} of {}", found[0]);
        }
        assert_eq!(found[1]["exit_code"], -1, "a command always has one: {}", found[1]);
        assert!(
            found[2].get("exit_code").is_none() && found[2]["arguments"] == json!({}),
            "{}",
            found[2]
        );
    });
}

#[test]
fn dropped_call_is_recorded() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let (host, _, folders) = looking(&folder, &[]).await;
        let mut call = Box::pin(host.call(Request::new("act", json!({ "wait": true }))));
        std::future::poll_fn(|context| {
            assert!(call.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(call);
        let found = of_calls(&folders);
        let last = found.last().expect("it is recorded");
        assert_eq!(
            (&last["result"], &last["error_code"]),
            (&json!("cancelled"), &json!("dropped")),
            "{last}"
        );
        assert_eq!(found.len(), 2);
    });
}

#[test]
fn denials_within_a_call_that_works_are_recorded() {
    run(async {
        let scene = Scene::with(&["tools.file.deny_read=[\"secret/**\"]"], |root| {
            fs::create_dir(root.join("granted/secret")).expect("a folder is made");
            fs::write(root.join("granted/secret/file"), "x").expect("a file is written");
        });
        let scene = scene.await;
        let answer = scene
            .call("hostile__read_outside", json!({ "path": scene.granted.join("secret/file") }))
            .await;
        let folders = Folders::inside(&scene.root().join("toolhold"));
        let record = of_calls(&folders)
            .into_iter()
            .find(|record| {
                record["kind"] == "outcome" && record["call"] == answer.id.to_string().as_str()
            })
            .expect("it is recorded");
        assert!(record["denials"].as_u64() > Some(0), "{record}");
        assert!(
            record["denied"].as_str().is_some_and(|denied| denied.contains("secret/file")),
            "{record}"
        );
        assert!(
            record["denied_by"].as_str().is_some_and(|rule| rule.contains("deny_read")),
            "{record}"
        );
    });
}

#[test]
fn callers_of_a_durable_log_share_the_disk_s_time_and_lose_nothing() {
    run(async {
        let folder = TempDir::new().expect("a temporary folder is made");
        let (host, _, folders) = looking(&folder, &["audit.durable=true"]).await;
        let host = Arc::new(host);
        let calls: Vec<_> = (0..64)
            .map(|number| {
                let host = Arc::clone(&host);
                tokio::spawn(async move {
                    host.call(Request::new("look", json!({ "number": number }))).await.id
                })
            })
            .collect();
        let mut ids = Vec::new();
        for call in calls {
            ids.push(call.await.expect("nothing panics").to_string());
        }
        let trail = Trail::open(&folders).expect("it is readable");
        assert!(trail.verify(None).expect("it is readable").holds());
        assert!(ids.iter().all(|id| trail.of_call(id).expect("it is readable").len() == 1));
    });
}
