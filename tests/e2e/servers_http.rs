//! Tools of servers at a URL: through the door, to their own origin alone, and bounded.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::mcp::client::{Client, LEGACY, records, text};
use crate::servers::{PATIENCE, until};
use crate::support::Cli;

/// What the server gets, and nobody else.
const SECRET: &str = "zq-7731-Wert/+=-for-the-server";

/// The hostile server as `[mcp.servers.far]`.
struct Scene {
    cli: Cli,
    server: Child,
    ports: Vec<u16>,
}

impl Scene {
    /// Not approved yet. `files`: what the server finds. `more`: lines of its table.
    fn unapproved(files: &[&str], more: &str) -> Self {
        let cli = Cli::new();
        let folder = cli.root.path().join("server");
        fs::create_dir(&folder).expect("a folder is made");
        for file in files {
            fs::write(folder.join(file), "").expect("a file is written");
        }
        let token = cli.root.path().join("token");
        fs::write(&token, SECRET).expect("a file is written");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&token, mode).expect("it is private");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/hostile_http.py");
        let server = Command::new("/usr/bin/python3")
            .args([script, folder.to_str().expect("UTF-8")])
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut scene = Self { cli, server, ports: Vec::new() };
        until("the server serves", || scene.file("ports").is_some());
        let ports = scene.file("ports").expect("it is there");
        scene.ports = ports.split(' ').map(|port| port.parse().expect("a port")).collect();
        scene.cli.configure(&format!(
            "[tools]\nautonomy = \"full\"\n[mcp.servers.far]\nurl = \"http://127.0.0.1:{}/mcp\"\n\
             headers = {{ X-Team = \"blue\" }}\n{more}\n[mcp.servers.far.secrets.token]\nfile = {token:?}\n",
            scene.ports[0]
        ));
        scene
    }

    fn new(files: &[&str], more: &str) -> Self {
        let scene = Self::unapproved(files, more);
        scene.cli.run(&["mcp", "approve", "far", "--yes"]).ends(0);
        scene
    }

    fn folder(&self) -> PathBuf {
        self.cli.root.path().join("server")
    }

    fn put(&self, name: &str) {
        fs::write(self.folder().join(name), "").expect("a file is written");
    }

    fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder().join(name)).ok()
    }

    fn log(&self) -> String {
        self.file("log").unwrap_or_default()
    }

    fn client(&self) -> Client {
        Client::new(&self.cli, &[], LEGACY, false)
    }

    /// Calls until the answer has this text: a server that failed is connected to after a pause.
    #[track_caller]
    fn call_until(&self, client: &mut Client, tool: &str, expected: &str) -> String {
        let started = Instant::now();
        loop {
            let answer = text(&client.call(&format!("far__{tool}"), json!({})));
            assert!(!answer.contains(SECRET), "{answer}");
            if answer.contains(expected) {
                return answer;
            }
            assert!(started.elapsed() < PATIENCE, "{tool}: {answer}");
            assert!(answer.contains("can't be used"), "{tool}: {answer}");
            std::thread::yield_now();
        }
    }

    /// Nothing reached the other origin, and nobody wrote the secret down.
    #[track_caller]
    fn assert_kept(&self) {
        assert_eq!(self.file("other"), None, "another origin was asked");
        let log = fs::read_to_string(self.cli.root.path().join("data/audit/audit.jsonl"));
        assert!(!log.unwrap_or_default().contains(SECRET), "the audit has the secret");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn server_of_each_era_serves_after_approval_with_its_secret() {
    for (files, version) in [(&["modern"][..], "http 2"), (&["listen", "keeps"], "http 1")] {
        let scene = Scene::unapproved(files, "");
        scene.cli.run(&["call", "far__echo", "text=hello"]).ends(2);
        assert_eq!(scene.log(), "", "nothing is asked before the approval");
        let shown = scene.cli.run(&["mcp", "approve", "far", "--yes"]).ends(0).stdout;
        let url = format!("far is at http://127.0.0.1:{}/mcp", scene.ports[0]);
        assert!(shown.contains(&url) && shown.contains("X-Team"), "{shown}");
        assert!(shown.contains("token") && !shown.contains(SECRET), "{shown}");
        assert!(scene.cli.run(&["mcp", "list"]).ends(0).stdout.contains(version));
        let mut client = scene.client();
        let echoed = text(&client.call("far__echo", json!({ "text": "on" })));
        assert!(echoed.contains("on") && echoed.contains("external-data"), "{echoed}");
        let headers = text(&client.call("far__headers", json!({})));
        assert!(headers.contains("[REDACTED:token]") && headers.contains("blue"), "{headers}");
        assert!(!headers.contains(SECRET), "{headers}");
        assert_eq!(scene.log().contains("the-session"), version == "http 1", "{}", scene.log());
        client.leave();
        scene.assert_kept();
        let records = records(&scene.cli.root.path().join("data"));
        let requests = records.iter().filter(|record| record["purpose"] == "mcp server");
        let by = requests.map(|record| record["front_end"].as_str().expect("it has one"));
        let by: BTreeSet<&str> = by.collect();
        assert_eq!(by, BTreeSet::from(["toolhold mcp", "toolhold serve"]), "approved, and called");
        // Another place needs another approval, and so does another header.
        let log = scene.log();
        for set in ["mcp.servers.far.url='https://a.example'", "mcp.servers.far.headers.X-A='b'"] {
            scene.cli.run(&["--set", set, "call", "far__echo", "text=a"]).ends(2);
        }
        assert_eq!(scene.log(), log);
    }
}

#[test]
fn changes_progress_and_cancellation_pass_through() {
    let scene = Scene::new(&["listen"], "");
    let mut client = scene.client();
    let ask =
        |tool: &str| json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "p" } });
    let echo = client.ask("tools/call", ask("far__echo"));
    let progress = client.notification("notifications/progress");
    assert_eq!(progress["params"]["message"], "a\u{fffd}half", "{progress}");
    client.answer(echo);
    let silent = client.ask("tools/call", ask("far__silent"));
    until("the server has it", || scene.log().matches("tools/call").count() == 2);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": silent } }));
    until("the server learns of it", || scene.file("cancelled").is_some());
    assert!(text(&client.call("far__headers", json!({}))).contains("blue"));
    scene.put("changed");
    until("the server tells of it", || scene.log().contains("told"));
    let started = Instant::now();
    loop {
        let held = text(&client.call("far__echo", json!({ "text": "on" })));
        if held.contains("has changed since the approval") {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{held}");
    }
    assert!(text(&client.call("far__headers", json!({}))).contains("blue"), "others serve");
    client.leave();
    until("the session is ended", || scene.log().contains("DELETE the-session"));
}

#[test]
fn server_that_forgot_its_sessions_is_called_in_a_new_one() {
    let error = |id: &str, message: &str| {
        format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32000,"message":"{message}"}},"id":{id}}}"#)
    };
    let unknown = "Bad Request: No valid session ID provided";
    for (answer, is_known) in [
        ("404 gone".to_owned(), true),
        (format!("404 {}", error("ID", "Session not found")), true),
        (format!("400 {}", error("ID", unknown)), true),
        (format!("400 {}", error("null", "Bad Request: Server not initialized")), true),
        (format!("400 {unknown}"), true),
        (format!("400 {}", error("ID", "the text is too long")), false),
    ] {
        let scene = Scene::new(&[], "");
        let mut client = scene.client();
        assert!(text(&client.call("far__headers", json!({}))).contains("the-session"));
        let before = scene.log().matches("initialize ").count();
        fs::write(scene.folder().join("forgets"), &answer).expect("a file is written");
        let told = text(&client.call("far__headers", json!({})));
        let begun = scene.log().matches("initialize ").count() - before;
        if !is_known {
            assert!(told.contains("the text is too long") && begun == 0, "{answer}: {told}");
            continue;
        }
        assert!(told.contains("session-") && begun == 1, "{answer}: {told}");
        assert_eq!(scene.log().matches("forgot tools/call").count(), 1, "{}", scene.log());
    }
}

#[test]
fn server_that_forgets_each_session_is_asked_twice_and_changed_tools_are_held() {
    let scene = Scene::new(&[], "");
    let mut client = scene.client();
    assert!(text(&client.call("far__echo", json!({ "text": "on" }))).contains("on"));
    // It comes back with another tool of that name: no call reaches that.
    fs::write(scene.folder().join("forgets"), "404 gone").expect("a file is written");
    scene.put("changed");
    let held = text(&client.call("far__echo", json!({ "text": "on" })));
    assert!(held.contains("has changed since the approval"), "{held}");
    let calls = |log: &str| log.matches("tools/call ").count();
    assert_eq!(calls(&scene.log()), 2, "{}", scene.log());
    // It forgets each session before a call.
    scene.put("always");
    client.call("far__headers", json!({}));
    let before = scene.log().matches("initialize ").count();
    let told = text(&client.call("far__headers", json!({})));
    let begun = scene.log().matches("initialize ").count() - before;
    assert!(told.contains("can't be used") && begun <= 2, "{begun}: {told}");
}

#[test]
fn redirects_lead_nowhere() {
    let scene = Scene::new(&[], "");
    let mut client = scene.client();
    for tool in ["away", "metadata"] {
        let refused = scene.call_until(&mut client, tool, "can't be followed");
        assert!(refused.contains("doesn't follow redirects"), "{refused}");
    }
    scene.call_until(&mut client, "headers", "blue");
    scene.put("redirect");
    let refused = client.call("far__headers", json!({}));
    assert_eq!(refused["isError"], true, "{refused}");
    client.leave();
    scene.assert_kept();
    let records = records(&scene.cli.root.path().join("data"));
    let asked = records.iter().map(|record| record["url"].as_str().unwrap_or_default());
    assert!(!asked.into_iter().any(|url| url.contains("169.254") || url.contains("stolen")));
}

#[test]
fn hostile_answers_over_http_harm_nobody() {
    // Time for the largest answer on a busy machine: other tests look at the time.
    let scene = Scene::new(&["modern"], "timeout_secs = 30");
    let mut client = scene.client();
    assert!(text(&client.call("far__twice", json!({}))).contains("first"));
    // One answer that is wrong ends nothing.
    for (tool, reason) in [
        ("page", "has the type `text/html`"),
        ("broken", "ended before the answer"),
        ("mixed", "ended before the answer"),
        ("wrong", "is for another request"),
        ("denied", "403"),
        ("failing", "500"),
        ("expired", "404"),
        ("headers", "blue"),
    ] {
        let answer = text(&client.call(&format!("far__{tool}"), json!({})));
        assert!(answer.contains(reason), "{tool}: {answer}");
    }
    assert_eq!(scene.log().matches("server/discover").count(), 2, "{}", scene.log());
    // Too much ends the connection.
    for (tool, reason) in [
        ("event", "more than 8 MiB"),
        ("flood", "more than 500"),
        ("values", "more than 100000 values"),
        ("bomb", "the content encoding `gzip`"),
    ] {
        let told = scene.cli.run(&["call", &format!("far__{tool}")]);
        assert!(told.code != 0 && told.stderr.contains(reason), "{tool}: {}", told.stderr);
    }
    for (tool, reason) in [("large", "more than 8 MiB"), ("comments", "more than 67108864 bytes")] {
        scene.call_until(&mut client, tool, reason);
        let read = client.call("read", json!({ "path": "notes.txt" }));
        assert!(text(&read).contains("first"), "others go on: {read}");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", client.pid())).expect("it runs");
    let memory = status.lines().find(|line| line.starts_with("VmRSS")).expect("it says so");
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB");
    assert!(kib < 400 * 1024, "the memory came back: {memory}");
    client.leave();
    scene.assert_kept();
}

#[test]
fn slow_answers_over_http_end_and_delay_no_other() {
    let scene = Scene::new(&["modern"], "timeout_secs = 2");
    let mut client = scene.client();
    assert!(text(&client.call("far__headers", json!({}))).contains("blue"));
    for tool in ["far__drip", "far__silent"] {
        let started = Instant::now();
        let hanging = client.ask("tools/call", json!({ "name": tool, "arguments": {} }));
        let read = client.call("read", json!({ "path": "notes.txt" }));
        assert!(text(&read).contains("first"));
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        let hung = text(&client.answer(hanging));
        assert!(hung.contains("didn't answer within 2 s"), "{hung}");
    }
    until("the connection is closed", || {
        scene.file("closed").is_some_and(|closed| closed.contains("drip"))
    });
    scene.call_until(&mut client, "headers", "blue");
}

#[test]
fn streams_that_end_at_once_and_bad_sessions_end_the_connection() {
    let scene = Scene::new(&["listen"], "");
    scene.put("storm");
    let mut client = scene.client();
    let started = Instant::now();
    while !text(&client.call("far__headers", json!({}))).contains("more than 30 streams") {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    let opened = scene.log().matches("GET ").count();
    assert!(opened <= 40, "{opened} streams");
    let scene = Scene::unapproved(&["session"], "");
    let told = scene.cli.run(&["mcp", "approve", "far", "--yes"]);
    assert!(
        told.code != 0 && told.stderr.contains("name of the server's session"),
        "{}",
        told.stderr
    );
}

#[test]
fn refused_secret_is_said_and_not_shown() {
    let scene = Scene::new(&["modern"], "");
    scene.put("unauthorized");
    let mut client = scene.client();
    let told = text(&client.call("far__headers", json!({})));
    assert!(told.contains("401") && told.contains("[mcp.servers.far.secrets]"), "{told}");
    assert!(!told.contains(SECRET), "{told}");
    let asked = scene.log().lines().count();
    for _ in 0..20 {
        client.call("far__headers", json!({}));
    }
    assert!(scene.log().lines().count() <= asked + 2, "it isn't asked again and again");
    client.leave();
    fs::remove_file(scene.cli.root.path().join("token")).expect("it was there");
    let told = scene.cli.run(&["call", "far__headers"]);
    assert!(told.code != 0 && told.stderr.contains("the secret `token`"), "{}", told.stderr);
    scene.assert_kept();
}

#[test]
fn servers_that_mix_both_kinds_are_refused() {
    let cli = Cli::new();
    for (table, reason) in [
        ("url = 'https://a.example'\ncommand = 'x'", "both `command` and `url`"),
        ("url = 'https://a.example'\nargs = ['x']", "`args` is for servers with `command`"),
        ("url = 'https://a.example'\nenv = ['X']", "`env` is for servers with `command`"),
        ("url = 'https://a.example'\noauth.secrets.a.env = 'A'", "no `oauth.client_id`"),
        (
            "url = 'https://a.example'\noauth.client_id = 'x'\noauth.secrets.a.env = 'A'\noauth.secrets.b.env = 'B'",
            "more than one secret",
        ),
        (
            "url = 'https://a.example'\noauth.client_id = 'x'\noauth.secrets.a = { env = 'A', header = 'B' }",
            "remove `header`",
        ),
        ("command = 'x'\nheaders = { A = 'b' }", "`headers` is for servers with `url`"),
        ("url = 'a.example'", "an invalid `url`"),
        ("url = 'https://me:pw@a.example'", "an invalid `url`"),
        ("command = 'x'\n[mcp.servers.a.secrets.a-b]\nenv = 'X'", "isn't a variable's name"),
        ("command = 'x'\n[mcp.servers.a.secrets.X]\nenv = 'X'\nheader = 'A'", "gets a variable"),
        (
            "url = 'https://a.example'\n[mcp.servers.a.secrets.X]\nenv = 'X'\nhosts = ['a.b']",
            "only to the server of [mcp.servers.a]",
        ),
        (
            "url = 'https://a.example'\nheaders = { authorization = 'b' }\n[mcp.servers.a.secrets.X]\nenv = 'X'",
            "sets the header `authorization` twice",
        ),
    ] {
        cli.configure(&format!("[mcp.servers.a]\n{table}\n"));
        let told = cli.run(&["mcp", "list"]);
        assert!(told.code != 0 && told.stderr.contains(reason), "{table}: {}", told.stderr);
    }
    // A file that nobody trusts doesn't make an error of it.
    cli.configure("");
    let project = cli.work().join("toolhold.toml");
    fs::write(&project, "[mcp.servers.a]\nenabled = false\n").expect("a file is written");
    cli.run(&["mcp", "list"]).ends(0);
    fs::remove_file(project).expect("it is there");
    cli.configure("");
    let told = cli.run(&["mcp", "add", "a", "--url", "http://a.example"]);
    assert!(told.code != 0 && told.stderr.contains("only https"), "{}", told.stderr);
    cli.run(&["mcp", "add", "a", "--url", "https://a.example/mcp"]).ends(0);
    assert!(cli.run(&["mcp", "list"]).ends(0).stdout.contains("unapproved"));
    cli.run(&["mcp", "add", "b"]).ends(2);
}
