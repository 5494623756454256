//! Disabled tools, quotas, and dependencies.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolhold_core::{Answer, Category, Gate, Request, Session};

use crate::approvals_command::{only_question, waiting};
use crate::support::{Cli, Ended, Scene, run};

/// Parallel calls.
const MANY: usize = 24;

async fn call_in(scene: &Scene, session: &Session, tool: &str, arguments: Value) -> Answer {
    scene
        .host
        .call(Request { session: Some(session.clone()), ..Request::new(tool, arguments) })
        .await
}

/// Parallel calls, one for each of `arguments`.
async fn at_once(
    scene: &Scene,
    session: &Session,
    tool: &str,
    arguments: impl Fn(usize) -> Value,
) -> Vec<Answer> {
    let calls: Vec<_> = (0..MANY)
        .map(|number| {
            let request =
                Request { session: Some(session.clone()), ..Request::new(tool, arguments(number)) };
            let host = Arc::clone(&scene.host);
            tokio::spawn(async move { host.call(request).await })
        })
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("the host does not panic"));
    }
    answers
}

fn refused(answers: &[Answer]) -> Vec<(Category, Option<&str>)> {
    answers
        .iter()
        .filter_map(|answer| answer.outcome.as_ref().err())
        .map(|failure| (failure.category, failure.code.as_deref()))
        .collect()
}

#[test]
fn calls_at_the_same_time_can_t_exceed_a_quota() {
    run(async {
        let scene =
            Scene::with(&["tools.max_tool_calls_per_session=5", "tools.max_concurrent=64"], |_| {})
                .await;
        let session = Session::new("one");
        let answers =
            at_once(&scene, &session, "echo", |number| json!({ "text": number.to_string() })).await;
        assert_eq!(refused(&answers), [(Category::PolicyBlocked, Some("quota_blocked")); MANY - 5]);
        let decided = answers
            .iter()
            .filter_map(|answer| answer.decision.as_ref())
            .filter(|decision| decision.gate == Gate::Quota);
        assert_eq!(decided.count(), MANY - 5);
        // Another session has calls of its own.
        assert!(
            call_in(&scene, &Session::new("another"), "echo", json!({ "text": "x" }))
                .await
                .outcome
                .is_ok()
        );
        let failure = call_in(&scene, &session, "echo", json!({ "text": "x" }))
            .await
            .outcome
            .expect_err("no call is left");
        let denial = failure.denial.expect("a rule decided");
        assert_eq!(denial.rule, "max_tool_calls_per_session = 5");
        assert!(denial.place.contains("--set tools.max_tool_calls_per_session=5"), "{denial:?}");
    });
}

#[test]
fn processes_at_the_same_time_can_t_exceed_a_quota() {
    let cli = Cli::new();
    cli.configure("[tools]\nmax_tool_calls_per_session = 3\n");
    let started: Vec<_> = (0..8)
        .map(|_| {
            let mut command =
                cli.command(&["call", "--session", "shared", "read", "path=notes.txt"]);
            command
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .expect("toolhold starts")
        })
        .collect();
    let ended: Vec<_> =
        started.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    assert_eq!(
        ended
            .iter()
            .filter(|output| output.status.success()
                && String::from_utf8_lossy(&output.stdout).contains("second"))
            .count(),
        3
    );
    assert_eq!(
        ended
            .iter()
            .filter(|output| output.status.code() == Some(3) && output.stdout.is_empty())
            .count(),
        5
    );
    let refused = cli.run(&["call", "--session", "shared", "read", "path=notes.txt"]).ends(3);
    assert!(
        refused.stderr.contains("policy_blocked/quota_blocked")
            && refused.stderr.contains("toolhold.toml, line 2"),
        "{}",
        refused.stderr
    );
    cli.run(&["call", "--session", "another", "read", "path=notes.txt"]).ends(0);
}

#[test]
fn acting_calls_at_the_same_time_can_t_exceed_a_rate() {
    run(async {
        let scene =
            Scene::with(&["tools.max_actions_per_hour=3", "tools.max_concurrent=64"], |_| {}).await;
        let session = Session::new("one");
        let answers = at_once(
            &scene,
            &session,
            "write",
            |number| json!({ "path": format!("new-{number}"), "content": "x" }),
        )
        .await;
        let made =
            (0..MANY).filter(|number| scene.granted.join(format!("new-{number}")).exists()).count();
        assert_eq!(made, 3);
        assert_eq!(refused(&answers), [(Category::RateLimited, Some("rate")); MANY - 3]);
        for failure in answers.iter().filter_map(|answer| answer.outcome.as_ref().err()) {
            let wait = failure.retry_after.expect("it says when");
            assert!(
                wait > Duration::from_secs(3000) && wait <= Duration::from_secs(3600),
                "{wait:?}"
            );
        }
        // Reading calls aren't limited.
        assert!(
            call_in(&scene, &session, "read", json!({ "path": "public.txt" }))
                .await
                .outcome
                .is_ok()
        );
    });
}

#[test]
fn reached_rate_is_a_refusal_with_a_time() {
    let cli = Cli::new();
    cli.configure("[tools]\nmax_actions_per_hour = 1\n");
    cli.run(&["call", "--yes", "write", "path=first.txt", "content=x"]).ends(0);
    let refused = cli
        .run(&["call", "--yes", "write", "path=second.txt", "content=x", "--json"])
        .ends(3)
        .json();
    assert!(!cli.work().join("second.txt").exists());
    let feedback = refused["feedback"].as_str().expect("a text");
    assert!(feedback.contains("suggestion: Wait 60 minutes, then try again."), "{feedback}");
    let shown = cli.run(&["call", "--yes", "write", "path=second.txt", "content=x"]).ends(3).stderr;
    assert!(
        shown.contains("again in: 60 minutes") && shown.contains("may run in 60 minutes"),
        "{shown}"
    );
    let record = cli
        .run(&["audit", "show", refused["id"].as_str().expect("an id"), "--json"])
        .ends(0)
        .json();
    let last = record.as_array().and_then(|records| records.last()).expect("a record");
    assert_eq!((&last["result"], &last["gate"]), (&json!("blocked"), &json!("rate")));
}

#[test]
fn uncountable_session_is_toolholds_own_failure() {
    let cli = Cli::new();
    cli.configure("[tools]\nmax_tool_calls_per_session = 9\n");
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    let sessions = cli.root.path().join("data/sessions");
    let names = std::fs::read_dir(&sessions)
        .expect("it is there")
        .map(|entry| entry.expect("it is there").path());
    let file = names
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "json"))
        .expect("a session");
    std::fs::write(&file, "{").expect("it is damaged");
    let failed = cli.run(&["call", "read", "path=notes.txt", "--json"]).ends(4).json();
    assert_eq!(
        (&failed["failure"]["category"], &failed["failure"]["code"]),
        (&json!("permanent_failure"), &json!("host"))
    );
    let name = file.file_name().expect("it has a name").to_str().expect("it is text");
    let message = failed["failure"]["message"].as_str().expect("a text");
    assert!(
        message.contains(name) && message.contains("remove it to start with an empty file"),
        "{message}"
    );
    let record =
        cli.run(&["audit", "show", failed["id"].as_str().expect("an id"), "--json"]).ends(0).json();
    let last = record.as_array().and_then(|records| records.last()).expect("a record");
    assert_eq!((&last["result"], &last["gate"]), (&json!("error"), &json!("autonomy")));
    let checked = cli.run(&["policy", "check", "read", "path=notes.txt"]).ends(3).stdout;
    assert!(checked.contains(name), "{checked}");
    // Its advice helps.
    std::fs::remove_file(&file).expect("it is removed");
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
}

#[test]
fn unreadable_dependency_state_fails_closed() {
    let cli = Cli::new();
    cli.configure("[tools.dependencies]\nenabled = true\n[tools.dependencies.rules.write]\nrequires = [\"read\"]\n");
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    let sessions = cli.root.path().join("data/sessions");
    let names = std::fs::read_dir(&sessions)
        .expect("it is there")
        .map(|entry| entry.expect("it is there").path());
    let file = names
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "json"))
        .expect("a session");
    std::fs::write(&file, "{").expect("it is damaged");
    let write = ["call", "--yes", "write", "path=new.txt", "content=x"];
    let failed = cli.run(&[&write[..], &["--json"]].concat()).ends(4).json();
    assert_eq!(
        (&failed["failure"]["category"], &failed["failure"]["code"]),
        (&json!("permanent_failure"), &json!("host"))
    );
    let name = file.file_name().expect("it has a name").to_str().expect("it is text");
    assert!(
        failed["failure"]["message"].as_str().is_some_and(|message| message.contains(name)),
        "{failed}"
    );
    let record =
        cli.run(&["audit", "show", failed["id"].as_str().expect("an id"), "--json"]).ends(0).json();
    let last = record.as_array().and_then(|records| records.last()).expect("a record");
    assert_eq!((&last["result"], &last["gate"]), (&json!("error"), &json!("autonomy")));
    let checked = cli
        .run(&["policy", "check", "write", "path=new.txt", "content=x", "--json"])
        .ends(3)
        .json();
    assert_eq!(
        (&checked["verdict"], &checked["decision"]["place"]),
        (&json!("deny"), &json!("built in"))
    );
    assert!(
        checked["decision"]["remedy"].as_str().is_some_and(|remedy| remedy.contains(name)),
        "{checked}"
    );
    assert!(!cli.work().join("new.txt").exists());
    // Its advice helps.
    std::fs::remove_file(&file).expect("it is removed");
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    cli.run(&write).ends(0);
}

#[test]
fn refused_and_blocked_calls_are_recorded() {
    let cli = Cli::asking();
    let outcome = |line: &[&str], code: i32| {
        let id = cli.run(&[line, &["--json"]].concat()).ends(code).json()["id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let records = cli.run(&["audit", "show", &id, "--json"]).ends(0).json();
        records
            .as_array()
            .expect("a list")
            .iter()
            .rfind(|record| record["kind"] == json!("outcome"))
            .expect("an outcome")
            .clone()
    };
    let refused = outcome(&["call", "read", "path=../secret.txt"], 3);
    assert_eq!(refused["gate"], json!("grants"));
    assert_eq!(refused["subjects"][0]["text"], json!(cli.work().join("../secret.txt")));
    let read = outcome(&["call", "read", "path=notes.txt"], 0);
    assert_eq!(read["waited_ms"], Value::Null);
    let left = outcome(&["call", "write", "path=new.txt", "content=x"], 3);
    assert_eq!(left["waited_ms"], Value::Null, "nobody was waited for");
    let agreed = outcome(&["call", "--yes", "write", "path=new.txt", "content=x"], 0);
    assert_eq!(agreed["waited_ms"], Value::Null, "nobody was waited for");
    let id = agreed["call"].as_str().expect("an id");
    let records = cli.run(&["audit", "show", id, "--json"]).ends(0).json();
    let kinds: Vec<&str> = records
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|record| record["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["approval", "intent", "outcome"], "what was said belongs to the call");

    cli.configure("[approvals]\nwait_secs = 600\n");
    let line = ["call", "write", "path=newer.txt", "content=x", "--json"];
    let call = cli
        .command(&line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("toolhold starts");
    while waiting(&cli).is_empty() {}
    cli.run(&["approvals", "deny", &only_question(&cli)]).ends(0);
    let denied = Ended::from_output(call.wait_with_output().expect("it ends")).ends(3).json();
    let records =
        cli.run(&["audit", "show", denied["id"].as_str().expect("an id"), "--json"]).ends(0).json();
    let denied = records
        .as_array()
        .and_then(|records| records.iter().rfind(|record| record["kind"] == json!("outcome")))
        .expect("one")
        .clone();
    let (took, waited) = (
        denied["duration_ms"].as_f64().expect("a time"),
        denied["waited_ms"].as_f64().expect("a time"),
    );
    assert!(0.0 < waited && waited <= took, "{denied}");
}

#[test]
fn approval_is_recorded_when_it_is_given() {
    let cli = Cli::asking();
    for (number, (answer, said)) in
        [(["allow"].as_slice(), "yes"), (&["deny"], "no")].into_iter().enumerate()
    {
        let path = format!("path=new-{number}.txt");
        let call = cli.run(&["call", "--json", "write", &path, "content=x"]).ends(3).json();
        let waiting = cli.run(&["approvals", "--json"]).ends(0).json();
        let id = waiting[0]["id"].as_str().expect("a question waits");
        cli.run(&[&["approvals"], answer, &[id]].concat()).ends(0);
        let records = cli
            .run(&["audit", "show", call["id"].as_str().expect("an id"), "--json"])
            .ends(0)
            .json();
        let last = records.as_array().and_then(|records| records.last()).expect("a record").clone();
        assert_eq!(
            (&last["kind"], &last["answer"], &last["approved_by"]),
            (&json!("approval"), &json!(said), &json!("toolhold approvals"))
        );
        assert_eq!(
            last["subjects"][0]["text"],
            json!(cli.work().join(format!("new-{number}.txt")))
        );
        // The outcome of the call still explains it.
        let explained = cli
            .run(&["policy", "explain", call["id"].as_str().expect("an id"), "--json"])
            .ends(0)
            .json();
        assert_eq!(explained["decision"]["verdict"], json!("ask"));
    }
    assert!(cli.run(&["audit", "verify"]).ends(0).stderr.is_empty());
}

#[test]
fn refused_call_uses_no_quota() {
    run(async {
        let scene = Scene::with(
            &[
                "tools.max_tool_calls_per_session=1",
                "tools.max_actions_per_hour=1",
                "tools.autonomy=supervised",
            ],
            |_| {},
        )
        .await;
        let session = Session::new("one");
        for (tool, arguments) in [
            ("read", json!({ "path": scene.secret_file })),
            ("read", json!({ "wrong": true })),
            ("no-such-tool", json!({})),
            // Nobody can approve.
            ("write", json!({ "path": "new", "content": "x" })),
        ] {
            assert!(call_in(&scene, &session, tool, arguments).await.outcome.is_err(), "{tool}");
        }
        assert!(
            call_in(&scene, &session, "read", json!({ "path": "public.txt" }))
                .await
                .outcome
                .is_ok(),
            "the place is still there"
        );
        assert!(
            call_in(&scene, &session, "read", json!({ "path": "public.txt" }))
                .await
                .outcome
                .is_err()
        );
    });
}

#[test]
fn call_that_fails_has_run() {
    run(async {
        let scene = Scene::with(&["tools.max_tool_calls_per_session=2"], |_| {}).await;
        let session = Session::new("one");
        for _ in 0..2 {
            let failure = call_in(&scene, &session, "read", json!({ "path": "missing" }))
                .await
                .outcome
                .expect_err("there is no such file");
            assert_ne!(failure.code.as_deref(), Some("quota_blocked"));
        }
        let failure = call_in(&scene, &session, "read", json!({ "path": "public.txt" }))
            .await
            .outcome
            .expect_err("no call is left");
        assert_eq!(failure.code.as_deref(), Some("quota_blocked"));
    });
}

#[test]
fn disabled_tool_is_not_listed_and_names_its_line() {
    run(async {
        for (setting, off, on) in [
            ("tools.file.enabled=false", &["read", "write", "file_read"][..], &["echo"][..]),
            ("plugins.hostile.enabled=false", &["hostile__read_outside"], &["read", "echo"]),
            ("tools.enabled=false", &["read", "echo", "hostile__read_outside"], &[]),
        ] {
            let scene = Scene::with(&[setting], |_| {}).await;
            let listed: Vec<String> =
                scene.host.tools().iter().map(|tool| tool.name.clone()).collect();
            for tool in off {
                assert!(!listed.iter().any(|name| name == tool), "{setting}: {listed:?}");
                let path = scene.granted.join("public.txt");
                let answer = scene
                    .call(tool, json!({ "path": path, "content": "changed", "text": "x" }))
                    .await;
                let denial = answer.outcome.expect_err("it is off").denial.expect("a rule decided");
                assert_eq!(
                    (denial.capability.as_str(), denial.rule.as_str()),
                    ("switches", "enabled = false")
                );
                assert!(denial.place.contains(setting), "{denial:?}");
                assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "public");
            }
            for tool in on {
                assert!(listed.iter().any(|name| name == tool), "{setting}: {listed:?}");
            }
        }
    });
}

#[test]
fn tool_is_blocked_until_its_dependency_succeeds() {
    run(async {
        let settings = [
            "tools.dependencies.enabled=true",
            "tools.dependencies.rules.write.requires=[\"read\"]",
        ];
        let scene = Scene::with(&settings, |_| {}).await;
        let (session, other) = (Session::new("one"), Session::new("other"));
        let write = || json!({ "path": "new", "content": "x" });
        let offered = |session: &Session| {
            let tools = scene.host.tools_for(session).expect("it lives in memory");
            tools.iter().any(|offered| offered.definition.name == "write")
        };
        let waits = async |session: &Session| {
            let failure =
                call_in(&scene, session, "write", write()).await.outcome.expect_err("it waits");
            let denial = failure.denial.expect("a rule decided");
            assert_eq!(
                (failure.category, denial.capability.as_str()),
                (Category::PolicyBlocked, "dependencies")
            );
            assert!(
                denial.rule.contains("requires = [\"read\"]")
                    && denial.remedy.contains("Call `read` first"),
                "{denial:?}"
            );
            assert!(!scene.granted.join("new").exists());
        };
        waits(&session).await;
        assert!(!offered(&session));
        // A failure completes nothing.
        call_in(&scene, &session, "read", json!({ "path": "missing" }))
            .await
            .outcome
            .expect_err("there is no such file");
        waits(&session).await;
        assert!(
            call_in(&scene, &session, "read", json!({ "path": "public.txt" }))
                .await
                .outcome
                .is_ok()
        );
        waits(&other).await;
        assert!(offered(&session) && !offered(&other));
        assert!(call_in(&scene, &session, "write", write()).await.outcome.is_ok());
        assert!(scene.granted.join("new").exists());
    });
}

#[test]
fn calls_of_one_process_count_for_the_next() {
    let cli = Cli::new();
    cli.configure("[tools.dependencies]\nenabled = true\n[tools.dependencies.rules.write]\nrequires = [\"read\"]\n");
    let lists =
        |name: &str| cli.run(&["tools"]).ends(0).stdout.lines().any(|line| line.starts_with(name));
    assert!(!lists("write ") && lists("read "));
    let refused = cli.run(&["call", "--yes", "write", "path=new.txt", "content=x"]).ends(3);
    assert!(
        refused.stderr.contains("Call `read` first") && !cli.work().join("new.txt").exists(),
        "{}",
        refused.stderr
    );
    cli.run(&["call", "--session", "another", "read", "path=notes.txt"]).ends(0);
    assert!(!lists("write "));
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    assert!(lists("write "));
    cli.run(&["call", "--yes", "write", "path=new.txt", "content=x"]).ends(0);
    assert!(cli.work().join("new.txt").exists());
}

#[test]
fn rules_that_would_stop_everything_stop_nothing() {
    run(async {
        let settings = [
            "tools.dependencies.enabled=true",
            "tools.file.enabled=false",
            "plugins.hostile.enabled=false",
            "tools.dependencies.rules.echo.requires=[\"read\"]",
        ];
        let scene = Scene::with(&settings, |_| {}).await;
        let others: Vec<String> = scene
            .host
            .tools()
            .iter()
            .map(|tool| tool.name.clone())
            .filter(|name| name != "echo")
            .collect();
        let rules = others
            .iter()
            .map(|name| format!("tools.dependencies.rules.{name}.requires=[\"read\"]"));
        let settings: Vec<String> =
            settings.iter().map(|&setting| setting.to_owned()).chain(rules).collect();
        let all: Vec<&str> = settings.iter().map(String::as_str).collect();
        let scene = Scene::with(&all, |_| {}).await;
        let session = Session::new("one");
        assert_eq!(
            scene.host.tools_for(&session).expect("it lives in memory").len(),
            others.len() + 1
        );
        assert!(call_in(&scene, &session, "echo", json!({ "text": "x" })).await.outcome.is_ok());
        // With a tool without dependencies, the rules hold.
        let free: Vec<&str> = settings
            .iter()
            .map(String::as_str)
            .filter(|setting| *setting != "tools.file.enabled=false")
            .collect();
        let scene = Scene::with(&free, |_| {}).await;
        assert!(call_in(&scene, &session, "echo", json!({ "text": "x" })).await.outcome.is_err());
    });
}

#[test]
fn tool_that_prefers_a_completed_one_is_offered_first() {
    run(async {
        let settings = [
            "tools.dependencies.enabled=true",
            "tools.dependencies.rules.write.prefers=[\"read\"]",
        ];
        let scene = Scene::with(&settings, |_| {}).await;
        let session = Session::new("one");
        let first = || {
            let tools = scene.host.tools_for(&session).expect("it lives in memory");
            tools[0].definition.name.clone()
        };
        assert_ne!(first(), "write");
        let read = json!({ "path": "public.txt" });
        assert!(call_in(&scene, &session, "read", read).await.outcome.is_ok());
        assert_eq!(first(), "write");
    });
}
