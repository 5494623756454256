//! Instances that last for a session: what they may keep, and what ends with each call.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedSender;

use toolhold_core::{
    Answer, Category, Content, Events, Host, Progress, Reply, Request, Scope, Session,
};

use super::{host, served};
use crate::approvals::Person;
use crate::support::{Cli, descriptors_below, failure, loot, plugin, run, soon};

const NAME: &str = "hostile-session";
const GRANT: &str = "plugins.hostile-session.instance=session";

async fn scene(folder: &Path, settings: &[&str]) -> Host {
    let granted = format!("plugins.{NAME}.allowed_paths=[{folder:?}]");
    let mut all = served(NAME, &plugin(NAME));
    all.extend([granted, format!("plugins.{NAME}.programs=[\"sleep *\"]")]);
    all.extend(settings.iter().map(|setting| (*setting).to_owned()));
    host(folder, &[], &all).await
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder is made")
}

fn request(session: &Session, tool: &str, arguments: Value) -> Request {
    let request = Request::new(format!("{NAME}__{tool}"), arguments);
    Request { session: Some(session.clone()), ..request }
}

async fn answer(host: &Host, session: &Session, tool: &str, arguments: Value) -> Answer {
    host.call(request(session, tool, arguments)).await
}

async fn call(host: &Host, session: &Session, tool: &str, arguments: Value) -> String {
    loot(&answer(host, session, tool, arguments).await)
}

async fn note(host: &Host, session: &Session, text: &str) -> String {
    call(host, session, "note", json!({ "text": text })).await
}

async fn recall(host: &Host, session: &Session) -> String {
    call(host, session, "recall", json!({})).await
}

#[test]
fn memory_lasts_for_its_session_alone() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[GRANT]).await;
        let (mine, theirs) = (Session::new("mine"), Session::new("theirs"));
        assert_eq!(note(&host, &mine, "a").await, "a");
        assert_eq!(note(&host, &mine, "b").await, "a,b");
        assert_eq!(note(&host, &theirs, "c").await, "c");
        // It is cacheable, but nobody could tell what else the instance remembers.
        assert_eq!(recall(&host, &mine).await, "a,b");
        assert_eq!(note(&host, &mine, "d").await, "a,b,d");
        assert_eq!(recall(&host, &mine).await, "a,b,d");
        let helper =
            Request { caller: Some("helper".to_owned()), ..request(&mine, "recall", json!({})) };
        assert_eq!(loot(&host.call(helper).await), "", "another agent has its own");
    });
}

#[test]
fn without_the_grant_each_call_has_its_own_memory() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[]).await;
        let session = Session::new("mine");
        assert_eq!(note(&host, &session, "a").await, "a");
        assert_eq!(note(&host, &session, "b").await, "b");
    });
}

#[test]
fn instance_that_crashed_or_was_stopped_is_not_used_again() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[GRANT, "tools.call=1"]).await;
        let session = Session::new("mine");
        note(&host, &session, "printed before").await;
        let crashed = answer(&host, &session, "crash", json!({ "text": "b" })).await;
        let crash = failure(&crashed, Category::PermanentFailure, Some("crash"));
        let words = format!("{:?}", crash.content);
        assert!(!words.contains("printed before"), "another call printed it: {words}");
        assert_eq!(recall(&host, &session).await, "");
        note(&host, &session, "c").await;
        let late = json!({ "text": "d", "milliseconds": 20_000 });
        let late = answer(&host, &session, "note", late).await;
        failure(&late, Category::Timeout, None);
        assert_eq!(recall(&host, &session).await, "");
    });
}

#[test]
fn nothing_that_a_call_opened_outlives_it() {
    run(async {
        let folder = folder();
        let opened = folder.path().join("work");
        fs::create_dir(&opened).expect("a folder is made");
        let file = opened.join("open.txt");
        fs::write(&file, "its content").expect("a file is written");
        let host = scene(folder.path(), &[GRANT, "tools.shell.sandbox=best-effort"]).await;
        let session = Session::new("mine");
        assert_eq!(call(&host, &session, "keep_open", json!({ "path": file })).await, "open");
        assert_eq!(descriptors_below(&opened), 0);
        assert_eq!(call(&host, &session, "use", json!({})).await, "nothing");
        // A number that no other process sleeps for.
        let seconds = format!("9{}", std::process::id());
        assert_eq!(
            call(&host, &session, "keep_running", json!({ "text": seconds })).await,
            "running"
        );
        let ended = || !commands().contains(&format!("sleep\0{seconds}\0"));
        soon("its process ends", ended).await;
        assert_eq!(call(&host, &session, "use", json!({})).await, "nothing");
    });
}

/// The command lines of all processes, one after the other.
fn commands() -> String {
    let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    processes
        .filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok())
        .collect()
}

#[test]
fn rights_of_one_call_are_not_those_of_the_next() {
    run(async {
        let folder = folder();
        let file = folder.path().join("sneaked.txt");
        let host = scene(folder.path(), &[GRANT]).await;
        let session = Session::new("mine");
        // The instance of this call may write, and has opened the granted directory.
        fs::write(folder.path().join("read.txt"), "read").expect("a file is written");
        let path = folder.path().join("read.txt");
        assert_eq!(call(&host, &session, "look", json!({ "path": path })).await, "read");
        let sneaked = answer(&host, &session, "sneak", json!({ "path": file })).await;
        failure(&sneaked, Category::PolicyBlocked, None);
        assert!(!file.exists());
        assert_eq!(recall(&host, &session).await, "read", "a failure doesn't end the instance");
    });
}

#[test]
fn what_a_person_allowed_for_one_call_stays_with_it() {
    run(async {
        let folder = folder();
        for (name, content) in [("plain.txt", "plain"), ("secret.txt", "the secret")] {
            fs::write(folder.path().join(name), content).expect("a file is written");
        }
        let rules = "tools.permissions.hostile-session__look=[{ pattern = \"**/secret.txt\", action = \"ask\" }, { pattern = \"*\", action = \"allow\" }]";
        let host = scene(folder.path(), &[GRANT, rules]).await;
        let session = Session::new("mine");
        let look = |name: &str| {
            let person = Person::saying(Reply::Yes { scope: Scope::Once, by: "a test".to_owned() });
            let path = folder.path().join(name);
            Request {
                approver: Some(person as _),
                ..request(&session, "look", json!({ "path": path }))
            }
        };
        assert_eq!(loot(&host.call(look("plain.txt")).await), "plain");
        assert_eq!(loot(&host.call(look("secret.txt")).await), "the secret");
        assert_eq!(loot(&host.call(look("plain.txt")).await), "plain,plain");
        assert_eq!(loot(&host.call(look("secret.txt")).await), "the secret,the secret");
    });
}

#[test]
fn calls_of_a_session_take_turns() {
    run(async {
        let folder = folder();
        let host = Arc::new(scene(folder.path(), &[GRANT]).await);
        let session = Session::new("mine");
        let calls: Vec<_> = (0..6)
            .map(|number| {
                let arguments = json!({ "text": number.to_string(), "milliseconds": 30 });
                let (host, request) = (Arc::clone(&host), request(&session, "note", arguments));
                tokio::spawn(async move { loot(&host.call(request).await) })
            })
            .collect();
        let mut lengths = Vec::new();
        for call in calls {
            lengths.push(call.await.expect("it answers").split(',').count());
        }
        lengths.sort_unstable();
        assert_eq!(lengths, [1, 2, 3, 4, 5, 6], "each sees those before it");
    });
}

/// Tells when a call reports its first progress.
struct Begun(UnboundedSender<()>);

impl Events for Begun {
    fn progress(&self, _progress: Progress) {
        let _ = self.0.send(());
    }

    fn emitted(&self, _part: &Content) {}
}

#[test]
fn call_that_waits_for_its_turn_can_be_cancelled() {
    run(async {
        let folder = folder();
        let host = Arc::new(scene(folder.path(), &[GRANT]).await);
        let session = Session::new("mine");
        let slow = request(&session, "note", json!({ "text": "slow", "milliseconds": 1500 }));
        let waiting = request(&session, "note", json!({ "text": "waiting" }));
        let cancel = waiting.cancel.clone();
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let slow = Request { events: Arc::new(Begun(begun)), ..slow };
        let slow = {
            let host = Arc::clone(&host);
            tokio::spawn(async move { loot(&host.call(slow).await) })
        };
        begins.recv().await.expect("it begins");
        let waits = {
            let host = Arc::clone(&host);
            tokio::spawn(async move { host.call(waiting).await })
        };
        cancel.cancel();
        let cancelled = waits.await.expect("it answers");
        failure(&cancelled, Category::Cancelled, None);
        assert!(!slow.is_finished(), "it didn't wait for its turn");
        assert_eq!(slow.await.expect("it answers"), "slow");
        assert_eq!(recall(&host, &session).await, "slow");
    });
}

#[test]
fn hoards_are_dropped_and_sessions_are_bounded() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[GRANT]).await;
        let first = Session::new("first");
        assert_eq!(call(&host, &first, "hoard", json!({ "mib": 20 })).await, "20 MiB");
        assert_eq!(call(&host, &first, "hoard", json!({ "mib": 1 })).await, "20 MiB,1 MiB");
        call(&host, &first, "hoard", json!({ "mib": 80 })).await;
        assert_eq!(recall(&host, &first).await, "", "it held too much");
        note(&host, &first, "a").await;
        let others: Vec<Session> =
            (0..16).map(|number| Session::new(format!("other {number}"))).collect();
        for session in &others {
            note(&host, session, "b").await;
        }
        assert_eq!(recall(&host, &first).await, "", "others took its place");
        assert_eq!(recall(&host, &others[15]).await, "b");
    });
}

#[test]
fn directories_that_were_opened_often_do_not_stay_open() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[GRANT]).await;
        let before = descriptors_below(folder.path());
        let sessions: Vec<Session> =
            (0..6).map(|number| Session::new(format!("session {number}"))).collect();
        for session in &sessions {
            assert_eq!(call(&host, session, "open_all", json!({})).await, "opened");
        }
        let few = || descriptors_below(folder.path()) <= before + 2 * sessions.len();
        soon("they are closed", few).await;
        assert_eq!(recall(&host, &sessions[0]).await, "");
    });
}

#[test]
fn grant_is_shown_and_so_is_the_line_that_gives_it() {
    let cli = Cli::new();
    let file = plugin(NAME).display().to_string();
    let asked = cli.run(&["plugin", "inspect", &file]).ends(0).stdout;
    assert!(asked.contains("\n    instance = \"session\"\n"), "{asked}");
    cli.configure(&format!("[plugins.{NAME}]\npath = {file:?}\ninstance = \"session\"\n"));
    let granted = cli.run(&["plugin", "inspect", &file]).ends(0).stdout;
    assert!(granted.contains("\nGranted\n  session: an instance for each session\n"), "{granted}");
}
