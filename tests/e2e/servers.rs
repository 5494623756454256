//! Tools of other servers: pinned, bounded and confined.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mcp::client::{Client, LEGACY, records, text};
use crate::mcp::third_party_clients::{Driven, Kind};
use crate::support::Cli;

/// Time limit for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The hostile server as `[mcp.servers.evil]`, with one granted folder.
pub(crate) struct Scene {
    pub(crate) cli: Cli,
    mark: String,
}

impl Scene {
    /// Not approved yet. `more`: lines of its table.
    pub(crate) fn unapproved(number: u32, more: &str) -> Self {
        let scene = Self {
            cli: Cli::new(),
            mark: format!("{}{number:04}", 8_000_000 + std::process::id()),
        };
        fs::create_dir(scene.folder()).expect("a folder is made");
        let script = scene.folder().join("server.py");
        fs::write(&script, include_str!("../servers/hostile.py")).expect("a file is written");
        let (folder, outside) = (scene.folder(), scene.cli.root.path().to_owned());
        scene.cli.configure(&format!(
            "[tools]\nautonomy = \"full\"\n[mcp.servers.evil]\ncommand = \"/usr/bin/python3\"\n\
             args = [{script:?}, {folder:?}, \"{}\", {outside:?}]\nallowed_paths = [{folder:?}]\n{more}\n",
            scene.mark
        ));
        scene
    }

    pub(crate) fn new(number: u32, more: &str) -> Self {
        let scene = Self::unapproved(number, more);
        scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
        fs::remove_file(scene.folder().join("started")).expect("it was started");
        scene
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.cli.root.path().canonicalize().expect("it is there").join("server")
    }

    pub(crate) fn put(&self, name: &str) {
        fs::write(self.folder().join(name), "").expect("a file is written");
    }

    /// How often the server was started.
    pub(crate) fn starts(&self) -> usize {
        fs::read(self.folder().join("started")).map_or(0, |bytes| bytes.len())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.cli, &[], LEGACY, false)
    }

    /// Processes of this scene's server, and of its children.
    fn processes(&self) -> usize {
        let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let mark = self.mark.as_bytes();
        lines.filter(|line| line.split(|byte| *byte == 0).any(|word| word == mark)).count()
    }

    #[track_caller]
    pub(crate) fn assert_gone(&self) {
        until("all processes are gone", || self.processes() == 0);
    }
}

/// The memory that a server's answers took is free again.
#[track_caller]
pub(crate) fn assert_small(client: &Client) {
    let status = fs::read_to_string(format!("/proc/{}/status", client.pid())).expect("it runs");
    let memory = status.lines().find(|line| line.starts_with("VmRSS")).expect("it says so");
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB");
    assert!(kib < 400 * 1024, "the memory came back: {memory}");
}

#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools["tools"].as_array().expect("a list");
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

#[test]
fn nothing_starts_before_approval_or_a_call() {
    let scene = Scene::unapproved(1, "");
    let call = &["call", "evil__echo_text", "text=hello"];
    scene.cli.run(call).ends(2);
    assert!(scene.cli.run(&["mcp", "list"]).ends(0).stdout.contains("unapproved"));
    assert!(scene.cli.run(&["mcp", "approve", "evil"]).code != 0, "nobody was there to ask");
    assert_eq!(scene.starts(), 0);
    let shown = scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0).stdout;
    assert!(shown.contains("+ Echo.Text") && shown.contains("/usr/bin/python3"), "{shown}");
    let started = scene.starts();
    assert!(scene.cli.run(&["mcp", "list"]).ends(0).stdout.contains("hostile 1.2.3"));
    let tools = scene.cli.run(&["tools"]).ends(0).stdout;
    let row = tools.lines().find(|line| line.contains("evil__echo_text")).expect("it is listed");
    assert_eq!(row.split_whitespace().nth(1), Some("evil"), "{row}");
    let unknown = scene.cli.run(&["call", "zzz"]).ends(2).stderr;
    assert!(unknown.contains("Available tools: "), "{unknown}");
    assert_eq!(scene.starts(), started, "a list starts nothing");
    assert!(scene.cli.run(call).ends(0).stdout.contains("hello"));
    assert_eq!(scene.starts(), started + 1);
    scene.assert_gone();
    // The arguments are checked before the server sees them.
    scene.cli.run(&["call", "evil__echo_text"]).ends(2);
    assert_eq!(scene.starts(), started + 1);
    // Another command line needs another approval.
    let set = ["--set", "mcp.servers.evil.network=true"];
    scene.cli.run(&[&set[..], call].concat()).ends(2);
    assert_eq!(scene.starts(), started + 1);
}

#[test]
fn server_sees_its_grants_and_nothing_else() {
    let scene = Scene::new(2, "variables = { MINE = \"yes\" }");
    let shown = scene.cli.run(&["call", "evil__inside", "--json"]).ends(0).stdout;
    let answer: Value = serde_json::from_str(&shown).expect("JSON");
    let text = answer.to_string();
    assert!(text.contains("server.py") && text.contains("MINE"), "{text}");
    for hidden in ["secret.txt", "config", "TOOLHOLD_"] {
        assert!(!text.contains(hidden), "{hidden} is in {text}");
    }
    assert!(text.contains(r#"\"network\": 1"#), "only the loopback: {text}");
    let left = fs::read_dir(scene.folder()).expect("it is there").flatten();
    let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["declared", "server.py", "started"], "the sandbox leaves nothing behind");
    scene.assert_gone();
}

#[test]
fn changed_tools_are_held_and_the_others_serve() {
    let scene = Scene::new(3, "");
    scene.put("changed");
    scene.put("go");
    scene.put("bad");
    let mut client = scene.client();
    let listed = client.request("tools/list", json!({}));
    assert!(!names(&listed).contains(&"evil__added"));
    assert!(!listed.to_string().contains("id_rsa"), "the approved description is shown");
    let held = client.call("evil__slow", json!({}));
    assert_eq!(held["isError"], true, "{held}");
    assert!(text(&held).contains("has changed since the approval"), "{held}");
    assert!(text(&client.call("evil__echo_text", json!({ "text": "on" }))).contains("on"));
    // The list and the doctor say so too, as long as it is so.
    let listed = || scene.cli.run(&["mcp", "list"]).ends(0).stdout;
    let told = listed();
    assert!(told.contains("has run for") && told.contains("since the approval: `slow`;"), "{told}");
    assert!(told.contains("toolhold mcp approve evil"), "{told}");
    let doctor = scene.cli.run(&["doctor"]).stdout;
    assert!(doctor.contains("`slow`") && doctor.contains("toolhold mcp approve evil"), "{doctor}");
    let shown = scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0).stdout;
    for line in ["~ slow", "- Reports progress", "+ Send ~/.ssh/id_rsa", "+ added", "! bad is left"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("~ inside"), "{shown}");
    until("the approval counts", || !listed().contains("`slow`"));
    let mut client = scene.client();
    let listed = client.request("tools/list", json!({}));
    let names = names(&listed);
    assert!(names.contains(&"evil__added") && names.contains(&"evil__slow"), "{names:?}");
    assert!(!names.contains(&"evil__echo_text"), "two tools have that name: {names:?}");
    assert!(text(&client.call("evil__slow", json!({}))).contains("done"));
}

#[test]
fn server_without_a_handshake_is_asked_to_tell_of_changes() {
    let scene = Scene::unapproved(16, "");
    scene.put("modern");
    scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
    let mut client = scene.client();
    let asked = || fs::read(scene.folder().join("listened")).map_or(0, |bytes| bytes.len());
    let before = asked();
    let echo = json!({ "text": "on" });
    // It tells of a change each time, and stops: it is asked again with the next call.
    for number in 1..=3 {
        until("the server is asked again", || {
            assert!(text(&client.call("evil__echo_text", echo.clone())).contains("on"));
            asked() >= before + number
        });
    }
    scene.put("changed");
    until("the change is noticed", || {
        text(&client.call("evil__slow", json!({}))).contains("has changed since the approval")
    });
    client.leave();
    // One that never answers is waited for once.
    scene.put("deaf");
    let (mut client, before) = (scene.client(), asked());
    for _ in 0..10 {
        assert!(text(&client.call("evil__echo_text", echo.clone())).contains("on"));
    }
    assert_eq!(asked(), before + 1);
}

#[test]
fn running_host_takes_over_approvals_and_keeps_its_servers() {
    let scene = Scene::new(14, "");
    let mut client = scene.client();
    let echo = json!({ "text": "on" });
    assert!(text(&client.call("evil__echo_text", echo.clone())).contains("on"));
    let listed = scene.cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("has run for"), "{listed}");
    // A rule for another tool changes nothing for the server.
    let file = scene.cli.root.path().join("config/toolhold.toml");
    let before = fs::read_to_string(&file).expect("it is there");
    let rule = "[tools.permissions]\nread = [{ pattern = \"*\", action = \"deny\" }]\n";
    fs::write(&file, format!("{before}{rule}")).expect("a file is written");
    let read = json!({ "path": "notes.txt" });
    until("the rule counts", || client.call("read", read.clone())["isError"] == true);
    assert!(text(&client.call("evil__echo_text", echo.clone())).contains("on"));
    assert_eq!(scene.starts(), 1, "it goes on in the next host");
    // Another approval ends it, and its tools are there at once.
    scene.put("changed");
    scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
    let started = scene.starts();
    let has_tool = |client: &mut Client| {
        names(&client.request("tools/list", json!({}))).contains(&"evil__added")
    };
    until("the approval counts", || has_tool(&mut client));
    assert!(text(&client.call("evil__echo_text", echo.clone())).contains("on"));
    assert_eq!(scene.starts(), started + 1, "the next call starts what was approved");
    // So does one that changes nothing.
    scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
    let started = scene.starts();
    until("the approval counts", || {
        assert!(text(&client.call("evil__echo_text", echo.clone())).contains("on"));
        scene.starts() == started + 1
    });
    client.leave();
    scene.assert_gone();
}

#[test]
fn failed_server_is_named_by_the_list_and_the_doctor() {
    let scene = Scene::new(15, "");
    let mut client = scene.client();
    scene.put("broken");
    assert_eq!(client.call("evil__echo_text", json!({ "text": "on" }))["isError"], true);
    let listed = scene.cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("failed") && listed.contains("broken"), "{listed}");
    assert!(!listed.contains("\u{1b}[31mbroken"), "{listed}");
    let doctor = scene.cli.run(&["doctor"]).stdout;
    assert!(doctor.contains("Servers") && doctor.contains("broken"), "{doctor}");
    // Nothing of that is left after another approval.
    fs::remove_file(scene.folder().join("broken")).expect("it is there");
    scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
    until("the approval counts", || !scene.cli.run(&["mcp", "list"]).stdout.contains("broken"));
    assert_eq!(client.call("evil__echo_text", json!({ "text": "on" }))["isError"], false);
    scene.cli.run(&["mcp", "remove", "evil"]).ends(0);
    assert!(!scene.cli.run(&["doctor"]).stdout.contains("Servers"));
}

#[test]
fn failed_start_says_how_it_ended_and_what_to_do() {
    let cli = Cli::new();
    let home = cli.root.path().canonicalize().expect("it is there").join("home");
    let tools = home.join("tools");
    fs::create_dir_all(&tools).expect("a folder is made");
    let script = |name: &str, text: &str| {
        let file = tools.join(name);
        fs::write(&file, text).expect("a file is written");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&file, mode).expect("it can be run");
        file
    };
    let hidden = script("hidden", "#!/bin/sh\nexit 3\n");
    let odd = script("odd", "#!/nowhere/interpreter -x\n");
    script("three", "#!/bin/sh\nexit 3\n");
    let granted = "allowed_paths = [\"~/tools\"]";
    let python = |code: &str| format!("command = \"/usr/bin/python3\"\nargs = [\"-c\", {code:?}]");
    let words = "import sys\nfor word in ['Error: Cannot find module a', *'bcdefg']:\n  \
                 print(word, file=sys.stderr)\nsys.exit(3)";
    let there = format!("{} exists, but the sandbox doesn't have the file", hidden.display());
    for (table, expected) in [
        (
            format!("command = {hidden:?}"),
            [&there, "`allowed_paths` and `presets` of [mcp.servers.a]"],
        ),
        (
            format!("command = {odd:?}\n{granted}"),
            ["its interpreter `/nowhere/interpreter -x`", "presets"],
        ),
        ("command = \"./nothing\"".to_owned(), ["working directory /", "has no ./nothing"]),
        ("command = \"/nothing\"".to_owned(), ["there is no file /nothing", "exit code 127"]),
        ("command = \"no-such-program\"".to_owned(), ["no folder of `PATH`", "whole path"]),
        (format!("command = \"~/tools/three\"\n{granted}"), ["ended with exit code 3", ""]),
        (
            "command = \"/bin/sh\"\nargs = [\"-c\", \"no-such-program\"]".to_owned(),
            ["a program that the server needs may be outside of the sandbox", "`allowed_paths`"],
        ),
        (python("import os; os.kill(os.getpid(), 9)"), ["ended by signal 9", ""]),
        (
            python(words),
            ["code 3; the server's last output: Error: Cannot find module a … e f g", ""],
        ),
    ] {
        cli.configure(&format!("[mcp.servers.a]\n{table}\n"));
        let told = cli.command(&["mcp", "approve", "a", "--yes"]).env("HOME", &home).output();
        let told = String::from_utf8_lossy(&told.expect("toolhold starts").stderr).into_owned();
        assert!(expected.iter().all(|part| told.contains(part)), "{table}: {told}");
    }
}

#[test]
fn odd_schema_hides_no_other_tool() {
    let scene = Scene::unapproved(31, "");
    scene.put("odd");
    let told = scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
    let told = told.stdout + &told.stderr;
    assert!(told.contains("unusable") && told.contains("can't be read"), "{told}");
    // Its pattern looks ahead, which not all clients can.
    assert!(told.contains("odd7"), "{told}");
    let mut client = scene.client();
    let listed = client.request("tools/list", json!({}));
    let found = names(&listed);
    for expected in ["read", "evil__odd0", "evil__odd6", "evil__odd_missing", "evil__odd_icons"] {
        assert!(found.contains(&expected), "{expected}: {found:?}");
    }
    assert!(!found.contains(&"evil__unusable"), "{found:?}");
    // Clients refuse a whole list in which one of these isn't so.
    for tool in listed["tools"].as_array().expect("a list") {
        for schema in [&tool["inputSchema"], &tool["outputSchema"]] {
            if schema.is_null() {
                continue;
            }
            assert_eq!(schema["type"], "object", "{tool:#}");
            let properties = schema["properties"].as_object();
            assert!(properties.is_none_or(|all| all.values().all(Value::is_object)), "{tool:#}");
        }
    }
    let answer = client.call("evil__odd_missing", json!({}));
    assert!(text(&answer).contains("refused the call: error -32602"), "{answer:#}");
    for kind in Kind::ALL {
        let Some(mut client) = Driven::new(kind, &scene.cli, &[]) else { return };
        let listed = client.tools();
        assert!(
            found.iter().all(|tool| listed.iter().any(|it| it == tool)),
            "{kind:?}: {listed:?}"
        );
        client.close();
    }
}

#[test]
fn claims_count_only_if_the_operator_trusts_them() {
    for (trusted, verdict) in [("", 4), ("trust_annotations = true", 0)] {
        let scene = Scene::new(4, trusted);
        let line = ["policy", "check", "evil__claims", "--set", "tools.autonomy=ask", "--json"];
        let told = scene.cli.run(&line);
        let shown = scene.cli.run(&["tools", "evil__claims"]).ends(0).stdout;
        assert_eq!(shown.contains("promises are not trusted"), verdict != 0, "{shown}");
        let is_allowed = told.stdout.contains("\"allow\"") && told.code == 0;
        assert_eq!(is_allowed, verdict == 0, "{trusted}: {} {}", told.code, told.stdout);
        assert_eq!(scene.starts(), 0);
    }
}

#[test]
fn hostile_answers_harm_nobody() {
    let scene = Scene::new(5, "timeout_secs = 5");
    let mut client = scene.client();
    let mut call = |tool: &str| client.call(tool, json!({}));
    assert!(text(&call("evil__twice")).contains("first"));
    let ansi = text(&call("evil__ansi"));
    assert!(
        !ansi.contains(['\u{1b}', '\u{7}', '\u{202e}']) && ansi.contains("untrusted"),
        "{ansi}"
    );
    assert!(!text(&call("evil__secret")).contains("IOSFODNN7EXAMPLE"));
    let asked = text(&call("evil__asks"));
    assert!(asked.contains("-32601") || asked.contains("not found"), "{asked}");
    for (tool, reason) in [
        ("evil__die", "the server ended"),
        ("evil__large", "more than 8 MiB"),
        ("evil__flood", "more than 500 unsolicited messages in one second"),
    ] {
        let started = Instant::now();
        // It is started again after a pause, which grows.
        let answer = loop {
            let answer = call(tool);
            if text(&answer).contains(reason) {
                break answer;
            }
            assert!(started.elapsed() < PATIENCE, "{tool}: {answer}");
            assert_eq!(call("read")["isError"], true, "others go on");
        };
        assert_eq!(answer["isError"], true);
    }
    assert_small(&client);
    client.leave();
    scene.assert_gone();
}

#[test]
fn unknown_content_is_left_out_and_the_rest_stays() {
    let scene = Scene::new(301, "");
    let mut client = scene.client();
    let said = text(&client.call("evil__unknown", json!({})));
    for part in [
        "the first part",
        "content of the unknown or incomplete kind `video",
        "`image`",
        "the last part",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains('\u{1b}'), "{said}");
}

#[test]
fn error_in_structured_content_alone_reaches_the_client() {
    let scene = Scene::new(302, "");
    let mut client = scene.client();
    let answer = client.call("evil__structured", json!({}));
    assert!(answer["isError"] == true && text(&answer).contains("the disk is full"), "{answer}");
}

#[test]
fn list_ends_where_a_cursor_or_a_page_repeats() {
    for (number, state) in [(303, "empty"), (304, "again")] {
        let scene = Scene::unapproved(number, "");
        scene.put(state);
        scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
        let mut client = scene.client();
        let said = text(&client.call("evil__echo_text", json!({ "text": "it serves" })));
        assert!(said.contains("it serves"), "{state}: {said}");
    }
}

#[test]
fn rules_about_servers_that_a_call_does_not_need_are_not_unknown() {
    let scene = Scene::new(
        25,
        "[[tools.permissions.evil__echo_text]]\npattern = \"*\"\naction = \"allow\"\n[[tools.permissions.evil__missing]]\npattern = \"*\"\naction = \"deny\"",
    );
    let other = scene.cli.run(&["call", "read", "notes.txt"]).stderr;
    assert!(!other.contains("no tool is named"), "{other}");
    let own = scene.cli.run(&["call", "evil__echo_text", "text=on"]).ends(0).stderr;
    assert!(own.contains("`evil__missing`") && !own.contains("`evil__echo_text`"), "{own}");
}

#[test]
fn secret_of_a_program_is_in_its_variable_and_nowhere_else() {
    let secret = "zq-7731-Wert/+=";
    let more = format!("[mcp.servers.evil.secrets.API_KEY]\ncommand = [\"/bin/echo\", {secret:?}]");
    let scene = Scene::new(12, &more);
    let mut client = scene.client();
    let inside = text(&client.call("evil__inside", json!({})));
    assert!(inside.contains("\"API_KEY\": \"[REDACTED:"), "{inside}");
    let told = client.call("evil__tells", json!({})).to_string();
    assert!(told.contains("[REDACTED:API_KEY]"), "{told}");
    // A terminal's sequences inside of it don't hide it.
    let split = client.call("evil__splits", json!({})).to_string();
    assert!(split.matches("[REDACTED:API_KEY]").count() >= 3, "{split}");
    assert!(!split.contains("7731-Wert") && !split.contains("Wert/+="), "{split}");
    let listed = scene.cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("the key is [REDACTED:API_KEY]"), "{listed}");
    for text in [inside, told, listed, scene.cli.run(&["doctor"]).stdout] {
        assert!(!text.contains("zq-7731"), "{text}");
    }
    // Another source needs another approval.
    let set = ["--set", "mcp.servers.evil.secrets.API_KEY.command=['/bin/echo', 'another']"];
    let started = scene.starts();
    scene.cli.run(&[&set[..], &["call", "evil__inside"]].concat()).ends(2);
    assert_eq!(scene.starts(), started);
}

#[test]
fn hanging_call_ends_and_delays_no_other() {
    let scene = Scene::new(6, "timeout_secs = 2");
    let mut client = scene.client();
    let (hanging, started) = (
        client.ask("tools/call", json!({ "name": "evil__hang", "arguments": {} })),
        Instant::now(),
    );
    let read = client.call("read", json!({ "path": "notes.txt" }));
    assert!(text(&read).contains("first"));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let hung = client.answer(hanging);
    assert!(text(&hung).contains("didn't answer within 2 s"), "{hung}");
    // One more call that hangs, and it is ended: the next one starts it anew.
    client.call("evil__noise", json!({}));
    assert!(text(&client.call("evil__echo_text", json!({ "text": "on" }))).contains("on"));
    assert_eq!(scene.starts(), 2);
}

#[test]
fn progress_and_cancellation_pass_through() {
    let scene = Scene::new(7, "");
    let mut client = scene.client();
    let params =
        json!({ "name": "evil__slow", "arguments": {}, "_meta": { "progressToken": "mine" } });
    let slow = client.ask("tools/call", params);
    let progress = client.notification("notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "mine", "{progress}");
    let message = progress["params"]["message"].as_str().expect("a message");
    assert_eq!(message, "aquarter", "{progress}");
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": slow } }));
    scene.put("go");
    until("the server learns of it", || scene.folder().join("cancelled").exists());
    assert!(text(&client.call("evil__echo_text", json!({ "text": "on" }))).contains("on"));
    let (records, tool) = (records(&scene.cli.root.path().join("data")), json!("evil__echo_text"));
    let record = records.iter().rfind(|record| record.to_string().contains("evil__echo_text"));
    assert!(record.is_some_and(|record| record.to_string().contains("mcp.evil")), "{tool}");
}

#[test]
fn idle_server_ends_with_its_children_and_starts_again() {
    let scene = Scene::new(8, "idle_secs = 1");
    let mut client = scene.client();
    assert!(text(&client.call("evil__children", json!({}))).contains("begun"));
    scene.assert_gone();
    assert_eq!(scene.starts(), 1);
    assert!(text(&client.call("evil__echo_text", json!({ "text": "on" }))).contains("on"));
    assert_eq!(scene.starts(), 2);
}

#[test]
fn soak_no_server_outlives_its_killed_host_or_call() {
    let rounds: u64 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 300 } else { 5 };
    let scene = Scene::new(11, "");
    // A program that begins has no command line yet.
    let run = || until("the server and its children run", || scene.processes() >= 4);
    for number in 0..rounds {
        let linger = json!({ "name": "evil__lingers", "arguments": {} });
        match number % 5 {
            // Without a call.
            0 => {
                let mut client = scene.client();
                assert!(text(&client.call("evil__children", json!({}))).contains("begun"));
                run();
                // Dropping it kills the host.
                drop(client);
            }
            1 => {
                let mut client = scene.client();
                client.ask("tools/call", linger);
                run();
                drop(client);
            }
            // At some moment of the server's start.
            2 => {
                let mut client = scene.client();
                client.ask("tools/call", linger);
                // None, some or all of its processes have begun.
                until("it begins", || scene.processes() as u64 >= number / 5 % 4);
                drop(client);
            }
            3 => {
                let mut call = scene.cli.command(&["call", "evil__lingers"]);
                let mut call = call.stdout(Stdio::null()).spawn().expect("toolhold starts");
                run();
                call.kill().expect("it runs");
                call.wait().expect("it ends");
            }
            // Its call is cancelled, and the host ends in order.
            _ => {
                let mut client = scene.client();
                let id = client.ask("tools/call", linger);
                run();
                client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
                client.leave();
            }
        }
        scene.assert_gone();
    }
    assert!(scene.starts() as u64 >= rounds * 4 / 5);
}

#[test]
fn servers_that_dont_start_say_why() {
    let scene = Scene::unapproved(9, "");
    for (file, reason) in [("broken", "it is �[31mbroken"), ("million", "left out")] {
        scene.put(file);
        let told = scene.cli.run(&["mcp", "approve", "evil", "--yes"]);
        let all = format!("{}{}", told.stdout, told.stderr);
        assert!(all.contains(reason) && !all.contains("\u{1b}[31m"), "{file}: {all}");
        fs::remove_file(scene.folder().join(file)).expect("it is there");
    }
    scene.cli.run(&["mcp", "approve", "nothing", "--yes"]).ends(2);
    scene.assert_gone();
}

#[test]
fn servers_are_added_and_removed() {
    let scene = Scene::unapproved(10, "# kept");
    let cli = &scene.cli;
    let added = cli.run(&["mcp", "add", "more", "--", "/usr/bin/python3", "-V"]).ends(0).stdout;
    assert!(added.contains("+[mcp.servers.more]"), "{added}");
    let listed: Value =
        serde_json::from_str(&cli.run(&["mcp", "list", "--json"]).ends(0).stdout).expect("JSON");
    assert_eq!(listed[1]["command"], json!(["/usr/bin/python3", "-V"]), "{listed}");
    assert_eq!(listed[1]["state"], "unapproved");
    let refused = cli.run(&["mcp", "add", "more", "--", "x"]).ends(2).stderr;
    assert!(refused.contains("`toolhold mcp remove more`"), "{refused}");
    cli.run(&["mcp", "add", "No", "--", "x"]).ends(2);
    cli.run(&["mcp", "remove", "more"]).ends(0);
    cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0);
    let file = cli.root.path().join("config/toolhold.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    assert!(text.contains("# kept") && !text.contains("more"), "{text}");
    cli.run(&["mcp", "remove", "evil"]).ends(0);
    fs::write(&file, text).expect("a file is written");
    let listed = cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("unapproved"), "its approval is forgotten: {listed}");
}

#[test]
fn nobody_who_says_no_starts_or_approves_a_server() {
    let scene = Scene::unapproved(12, "");
    let line = &["mcp", "approve", "evil"];
    let Some(refused) = scene.cli.typed(line, "n\n") else { return };
    assert!(refused.stdout.contains("The server was not started"), "{}", refused.stdout);
    assert_eq!(scene.starts(), 0);
    let refused = scene.cli.typed(line, "y\nn\n").expect("there is a terminal");
    assert!(refused.stdout.contains("Starting the server"), "{}", refused.stdout);
    assert!(refused.stdout.contains("The server is not approved"), "{}", refused.stdout);
    scene.cli.run(&["call", "evil__echo_text", "text=hello"]).ends(2);
    assert_eq!(scene.starts(), 1);
    let approved = scene.cli.typed(line, "y\ny\n").expect("there is a terminal");
    assert!(approved.stdout.contains("Approved, with 22 tools; 3 left out"), "{}", approved.stdout);
    scene.cli.run(&["call", "evil__echo_text", "text=hello"]).ends(0);
}

#[test]
fn project_adds_a_server_only_if_it_is_trusted() {
    let scene = Scene::unapproved(13, "");
    let table =
        "[mcp.servers.sly]\ncommand = \"/usr/bin/python3\"\n[mcp.servers.evil]\nnetwork = true\n";
    fs::write(scene.cli.work().join("toolhold.toml"), table).expect("a file is written");
    let listed = scene.cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("evil") && !listed.contains("sly"), "{listed}");
    scene.cli.run(&["mcp", "approve", "sly", "--yes"]).ends(2);
    let shown = scene.cli.run(&["mcp", "approve", "evil", "--yes"]).ends(0).stdout;
    assert!(shown.contains("network = false"), "{shown}");
    let asked = scene.cli.run(&["trust", "--yes"]).ends(0).stdout;
    assert!(asked.contains("sly") && asked.contains("network"), "{asked}");
    let listed = scene.cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("sly") && listed.contains("unapproved"), "{listed}");
    assert!(listed.contains("changed"), "the grant needs another approval: {listed}");
    // What takes away needs no trust.
    fs::write(scene.cli.work().join("toolhold.toml"), "[mcp]\nenabled = false\n")
        .expect("a file is written");
    let listed = scene.cli.run(&["mcp", "list"]).ends(0).stdout;
    assert!(listed.contains("disabled"), "{listed}");
}
