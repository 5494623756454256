//! A person is asked when a program first connects to a host that no entry grants.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::{Answer, Approver, BoxFuture, Host, Question, Reply, Request, Scope, Session};

use super::{ran, scene, there_is};
use crate::approvals::Person;
use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{Cli, Scene, shared_cache, soon};

/// Says hello, and closes the connection.
fn hello(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    answer(wire, "200 OK", &[("connection", "close")], b"hello")
}

const CURL: &str = "tools.shell.allowed_commands=[\"curl\"]";

fn request(host: &str, port: u16) -> String {
    format!("curl -sS --max-time 60 http://{host}:{port}/")
}

async fn asking(settings: &[&str]) -> Scene {
    scene(&[&["tools.shell.network=ask", CURL][..], settings].concat(), |_| {}).await
}

async fn call(host: &Host, session: &Session, person: &Arc<Person>, arguments: Value) -> Answer {
    let approver: Arc<dyn Approver> = Arc::clone(person) as _;
    let session = Some(session.clone());
    let request = Request { approver: Some(approver), session, ..Request::new("bash", arguments) };
    host.call(request).await
}

async fn output(host: &Host, session: &Session, person: &Arc<Person>, command: &str) -> String {
    let answer = call(host, session, person, json!({ "command": command })).await;
    ran(&answer).map_or_else(|| format!("{:?}", answer.outcome), |ran| ran.stdout)
}

fn entries(person: &Person) -> Vec<String> {
    let asked = person.asked().into_iter();
    asked.filter_map(|question| question.host).map(|host| host.entry).collect()
}

/// Connects many times at once. Prints how many answers came.
const MANY: &str = r#"
import sys, threading, urllib.request
came = []
def get():
    came.append(urllib.request.urlopen(sys.argv[1], timeout=30).read())
threads = [threading.Thread(target=get) for _ in range(40)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("came", came.count(b"hello"))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_are_one_question() {
    if !there_is("python3") {
        return;
    }
    let server = Server::plain(hello);
    let session = Session::new("one");
    let scene = asking(&["tools.limits.cpu_secs=20"]).await;
    fs::write(scene.granted.join("many.py"), MANY).expect("it is written");
    let person = Person::yes(Scope::Once);
    let port = server.port();
    let line = format!("/usr/bin/python3 many.py http://npm.test:{port}/");
    let came = output(&scene.host, &session, &person, &line).await;
    assert!(came.contains("came 40"), "{came}");
    assert_eq!(server.connections(), 40);
    assert_eq!(entries(&person), [format!("http://npm.test:{port}")]);
    let question = person.asked().remove(0).to_text();
    let wants = format!("python3 wants http://npm.test:{port}: bash");
    assert!(question.starts_with(&wants) && question.contains("many.py"), "{question}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_hold_for_the_call_or_for_the_session() {
    if !there_is("curl") {
        return;
    }
    let server = Server::plain(hello);
    let scene = asking(&[]).await;
    let host = &scene.host;
    let line = request("npm.test", server.port());
    let twice = format!("({line}); ({line})");
    for (scope, expected) in [(Scope::Once, 2), (Scope::Session, 1)] {
        let before = server.connections();
        let person = Person::yes(scope);
        let session = Session::new(format!("{scope:?}"));
        for _ in 0..2 {
            let came = output(host, &session, &person, &twice).await;
            assert_eq!(came.matches("hello").count(), 2, "{scope:?}: {came}");
        }
        assert_eq!(server.connections() - before, 4, "{scope:?}");
        assert_eq!(entries(&person).len(), expected, "{scope:?}");
        // Another session isn't approved, and neither is another host.
        let no = Person::saying(Reply::No { by: "a test".to_owned(), reason: String::new() });
        let other = request("other.test", server.port());
        output(host, &Session::new("other"), &no, &line).await;
        output(host, &session, &no, &other).await;
        assert_eq!((server.connections() - before, entries(&no).len()), (4, 2), "{scope:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_is_asked_once_in_a_call_and_the_reason_reaches_the_agent() {
    if !there_is("curl") {
        return;
    }
    let server = Server::plain(hello);
    let session = Session::new("one");
    let scene = asking(&[]).await;
    let reason = "use the mirror".to_owned();
    let person = Person::saying(Reply::No { by: "a test".to_owned(), reason });
    let line = request("npm.test", server.port());
    let command = format!("({line}); ({line}); ({line})");
    let answer = call(&scene.host, &session, &person, json!({ "command": command })).await;
    let text = format!("{:?}", answer.outcome);
    assert!(text.contains("use the mirror") && !text.contains("hello"), "{text}");
    assert_eq!((server.connections(), entries(&person).len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn always_writes_the_entry_and_holds_at_once() {
    if !there_is("curl") {
        return;
    }
    let server = Server::plain(hello);
    let session = Session::new("one");
    let root = tempfile::TempDir::new().expect("a temporary folder is made");
    let own = Folders { cache: shared_cache(), ..Folders::inside(&root.path().join("toolhold")) };
    let folders = own.clone();
    let scene = Scene::in_folders(&["tools.call=60", CURL], |_| {}, |_| Some(folders)).await;
    let person = Person::yes(Scope::Always);
    let line = request("npm.test", server.port());
    let came = output(&scene.host, &session, &person, &line).await;
    assert!(came.contains("hello"), "{came}");
    let written = fs::read_to_string(own.config_file()).expect("it is there");
    let entry = format!("[tools.shell]\nhosts = [\"http://npm.test:{}\"]\n", server.port());
    assert!(written.contains(&entry), "{written}");
    let came = output(&scene.host, &Session::new("other"), &person, &line).await;
    assert!(came.contains("hello"), "{came}");
    assert_eq!((server.connections(), entries(&person).len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_person_no_host_is_reached() {
    if !there_is("curl") {
        return;
    }
    let server = Server::plain(hello);
    let session = Session::new("one");
    let scene = asking(&[]).await;
    let line = request("npm.test", server.port());
    let came = scene.call("bash", json!({ "command": line })).await;
    assert!(ran(&came).is_none_or(|ran| ran.code != 0), "{:?}", came.outcome);
    let unasked = Person::saying(Reply::Unasked("nobody is here".to_owned()));
    let answer = call(&scene.host, &session, &unasked, json!({ "command": line })).await;
    let text = format!("{:?}", answer.outcome);
    assert!(text.contains("nobody is here") && text.contains("tools.shell"), "{text}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_about_denied_hosts_and_for_jobs() {
    if !there_is("curl") {
        return;
    }
    let server = Server::plain(hello);
    let session = Session::new("one");
    let scene = asking(&["tools.web.denied_domains=[\"npm.test\"]"]).await;
    let person = Person::yes(Scope::Session);
    output(&scene.host, &session, &person, &request("npm.test", server.port())).await;
    assert_eq!((server.connections(), entries(&person).len()), (0, 0));

    // An approval of the session doesn't hold for its jobs.
    let line = request("other.test", server.port());
    let came = output(&scene.host, &session, &person, &line).await;
    assert!(came.contains("hello"), "{came}");
    let job = format!("({line}) > job.out 2>&1; echo ended > ended");
    call(&scene.host, &session, &person, json!({ "command": job, "background": true })).await;
    soon("the job has ended", || scene.granted.join("ended").exists()).await;
    let seen = fs::read_to_string(scene.granted.join("job.out")).expect("it is there");
    assert!(!seen.contains("hello"), "{seen}");
    assert_eq!((server.connections(), entries(&person).len()), (1, 1));
}

/// Approves after a while.
struct Slow(Duration);

impl Approver for Slow {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async {
            let _ = tokio::time::timeout(self.0, std::future::pending::<()>()).await;
            Reply::Yes { scope: Scope::Once, by: "a test".to_owned() }
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_of_the_person_is_not_time_of_the_command() {
    if !there_is("curl") {
        return;
    }
    let server = Server::plain(hello);
    let scene = asking(&[]).await;
    let slow: Arc<dyn Approver> = Arc::new(Slow(Duration::from_secs(4)));
    let line = request("npm.test", server.port());
    let arguments = json!({ "command": line, "timeout": 2 });
    let request = Request { approver: Some(slow), ..Request::new("bash", arguments) };
    let answer = scene.host.call(request).await;
    let came = ran(&answer).unwrap_or_else(|| panic!("{:?}", answer.outcome));
    assert!(came.stdout.contains("hello"), "{came:?}");
}

/// Shows the exit code and the output of `toolhold policy check`.
fn policy_check(cli: &Cli, setting: &str, host: &str) -> String {
    let ended = cli.run(&["--set", setting, "policy", "check", host]);
    format!("{} {}", ended.code, ended.stdout)
}

#[test]
fn policy_check_names_the_line_that_decides_on_a_host() {
    let cli = Cli::new();
    let asked = policy_check(&cli, "tools.shell.network=ask", "registry.example.org");
    assert!(asked.starts_with("3 ask: ") && asked.contains("network = \"ask\""), "{asked}");
    let hosts = "tools.shell.hosts=[\"*.example.org\"]";
    let allowed = policy_check(&cli, hosts, "registry.example.org");
    assert!(allowed.starts_with("0 allow: ") && allowed.contains("*.example.org"), "{allowed}");
    let other = policy_check(&cli, hosts, "http://registry.example.org");
    assert!(other.starts_with("3 ask: "), "{other}");
    for host in ["http://127.0.0.1:8765", "http://localhost:8765", "[::1]:8765"] {
        for setting in [format!("tools.shell.hosts=[{host:?}]"), "tools.shell.hosts=[]".to_owned()]
        {
            let own = policy_check(&cli, &setting, host);
            let is_said = own.contains("would reach only jobs of its session");
            assert!(own.starts_with("0 allow: ") && is_said, "{own}");
        }
    }
    for (setting, host, rule) in [
        ("tools.web.denied_domains=[\"example.org\"]", "example.org", "denied_domains"),
        ("tools.shell.network=deny", "example.org", "network = \"deny\""),
        ("tools.shell.network=ask", "169.254.169.254:80", "private addresses"),
    ] {
        let denied = policy_check(&cli, setting, host);
        assert!(denied.starts_with("3 deny: ") && denied.contains(rule), "{denied}");
    }
}
