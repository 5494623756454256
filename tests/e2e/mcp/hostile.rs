//! Hostile and crashing clients: the next one is served, and their resources are freed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use serde_json::json;

use super::client::{Client, LEGACY, MODERN};
use crate::support::{Cli, plugin};

#[test]
fn invalid_messages_are_skipped() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let long = format!("{}\n", "x".repeat(5 << 20));
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}\n",
        "[".repeat(100_000)
    );
    let big = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}\n", "y".repeat(5 << 20));
    for nonsense in [
        &b"not json\n"[..],
        b"{}\n",
        b"[]\n",
        b"null\n",
        b"\xff\xfe\n",
        b"{\"jsonrpc\":\"1.0\",\"id\":1}\n",
        b"\n\n\n",
    ] {
        client.write(nonsense);
    }
    for nonsense in [long, deep, big] {
        client.write(nonsense.as_bytes());
    }
    assert_eq!(client.call("read", json!({ "path": "notes.txt" }))["isError"], false);
    let told = client
        .aside
        .iter()
        .filter(|message| message["error"]["code"] == -32700 && message["id"] == 1)
        .count();
    assert!(told >= 1, "who sends half a message hears of it: {:?}", client.aside);
}

#[test]
fn client_can_leave_at_any_point() {
    let cli = Cli::asking();
    let whole = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": { "name": "read", "arguments": { "path": "notes.txt" } } });
    let whole = format!("{whole}\n");
    for begun in [false, true] {
        for part in [0, 1, whole.len() / 2, whole.len() - 1, whole.len()] {
            let mut client = Client::silent(&cli, &[]);
            if begun {
                client.begin(LEGACY, true);
            }
            client.write(&whole.as_bytes()[..part]);
            let code = client.leave();
            // A client that speaks before its handshake has used another protocol.
            assert!(
                code == 0 || !begun && part == whole.len(),
                "begun: {begun}, {part} bytes: {code}"
            );
        }
    }
}

#[test]
fn ten_thousand_requests_are_answered_and_their_memory_is_freed() {
    let cli = Cli::asking();
    let bench = plugin("bench");
    let mut client =
        Client::new(&cli, &["--plugin", bench.to_str().expect("is UTF-8")], MODERN, false);
    client.call("bench__echo", json!({ "text": "warm" }));
    let before = resident(client.pid());
    let text = "x".repeat(4096);
    let ids: Vec<u64> = (0..10_000)
        .map(|_| {
            client
                .ask("tools/call", json!({ "name": "bench__echo", "arguments": { "text": text } }))
        })
        .collect();
    let mut left: std::collections::HashSet<u64> = ids.into_iter().collect();
    while !left.is_empty() {
        let message = client.next();
        let id = message["id"].as_u64().expect("it is an answer");
        assert!(left.remove(&id), "each is answered once");
        assert_eq!(message["result"]["isError"], false, "{message}");
    }
    let after = resident(client.pid());
    assert!(after < before + 64 * 1024, "{before} KiB before, {after} KiB after");
    assert_eq!(client.call("bench__echo", json!({ "text": "next" }))["isError"], false);
}

#[test]
fn calls_that_are_taken_back_at_once_are_not_more_at_a_time_than_others() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    client.call("list_directory", json!({}));
    let before = resident(client.pid());
    for _ in 0..20_000 {
        let id = client.ask("tools/call", json!({ "name": "list_directory", "arguments": {} }));
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
    }
    assert_eq!(
        client.call("list_directory", json!({}))["isError"],
        false,
        "the next one is answered"
    );
    let after = resident(client.pid());
    // If they were kept, it would be 200 MiB.
    assert!(after < before + 128 * 1024, "{before} KiB before, {after} KiB after");
}

/// KiB of memory that a process holds.
pub(super) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("it is a number")
}

#[test]
fn guest_output_never_reaches_the_protocol() {
    let cli = Cli::asking();
    let hostile = plugin("hostile");
    let mut client = Client::new(
        &cli,
        &["--plugin", hostile.to_str().expect("is UTF-8"), "--set", "tools.autonomy=full"],
        LEGACY,
        false,
    );
    // The client fails on a line that isn't the protocol's.
    let tools = client.request("tools/list", json!({}))["tools"].clone();
    let floods: Vec<String> = tools
        .as_array()
        .expect("there are tools")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .filter(|name| name.contains("flood"))
        .map(str::to_owned)
        .collect();
    assert!(floods.len() > 1, "{floods:?}");
    for flood in floods {
        client.call(&flood, json!({}));
    }
    assert_eq!(client.call("read", json!({ "path": "notes.txt" }))["isError"], false);
}

#[test]
fn broken_request_is_answered_with_its_id() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let request = |id: &str, text: &str| {
        format!(
            r#"{{"method":"tools/call","params":{{"name":"read","arguments":{{"path":"{text}"}}}},"jsonrpc":"2.0","id":{id}}}"#
        )
    };
    for (id, text, code) in
        [("1000", "y".repeat(5 << 20), -32600), (r#""a""#, r"\ud800".to_owned(), -32700)]
    {
        client.write(format!("{}\n", request(id, &text)).as_bytes());
        let answer = client.next();
        assert_eq!(
            (answer["id"].to_string(), &answer["error"]["code"]),
            (id.to_owned(), &json!(code)),
            "{answer}"
        );
    }
    client.write(format!("{{{}\n", "y".repeat(5 << 20)).as_bytes());
    assert_eq!(client.next().get("id"), Some(&json!(null)));
    // Also after a byte order mark.
    client.write(format!("\u{feff}{}\n", request("7", r"\ud800")).as_bytes());
    assert_eq!(client.next().get("id"), Some(&json!(7)));
}

#[test]
fn request_with_the_id_of_another_that_is_under_way_is_refused() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &["--set", "tools.autonomy=full"], LEGACY, false);
    let command = "until [ -e go ]; do sleep 0.1; done; echo first";
    let id =
        client.ask("tools/call", json!({ "name": "bash", "arguments": { "command": command } }));
    client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" }));
    let refused = client.next();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(id), &json!(-32600)),
        "{refused}"
    );
    fs::write(cli.work().join("go"), "").expect("a file is written");
    let answer = client.next();
    assert!(answer["id"] == json!(id) && answer.to_string().contains("first"), "{answer}");
}

#[test]
fn unknown_revision_gets_the_supported_ones() {
    let cli = Cli::asking();
    let mut client = Client::silent(&cli, &[]);
    let info = json!({ "name": "tester", "version": "1" });
    let old = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info });
    client.ask("initialize", old);
    let answer = client.next();
    let message = answer["error"]["message"].as_str().expect("it is refused");
    assert!(
        message.contains("2024-11-05 is not supported") && message.contains(LEGACY),
        "{message}"
    );
    assert!(
        answer["error"]["data"]["supported"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(LEGACY))),
        "{answer}"
    );
}

#[test]
fn client_that_has_closed_its_end_is_logged_once() {
    let cli = Cli::asking();
    for (level, lines) in [("warn", 0), ("info", 1)] {
        let mut server = cli.command(&["serve", "--log", level]);
        let server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = server.spawn().expect("toolhold starts");
        let mut stdin = server.stdin.take().expect("it is piped");
        let mut say = |message: &str| {
            stdin.write_all(format!("{message}\n").as_bytes()).expect("the server reads");
        };
        say(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#,
        );
        let mut answer = String::new();
        BufReader::new(server.stdout.take().expect("it is piped"))
            .read_line(&mut answer)
            .expect("it is UTF-8");
        for id in 1..100 {
            say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#));
        }
        drop(stdin);
        let mut said = String::new();
        server.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it is UTF-8");
        server.wait().expect("it ends");
        assert_eq!(
            said.lines().filter(|line| line.contains("client") || line.contains("respon")).count(),
            lines,
            "{said}"
        );
        for debug in ["Some(", "{ ", "peer_info"] {
            assert!(!said.contains(debug), "Rust's own: {said}");
        }
    }
}

#[test]
fn trap_is_logged_in_one_sentence_and_whole_on_request() {
    let cli = Cli::asking();
    let hostile = plugin("hostile");
    let call = |level: &str| {
        let line = [
            "--log",
            level,
            "--plugin",
            hostile.to_str().expect("is UTF-8"),
            "--set",
            "tools.autonomy=full",
            "call",
            "hostile__trap",
        ];
        cli.run(&line).ends(1).stderr
    };
    let usual = call("warn");
    assert_eq!(
        usual
            .lines()
            .filter(|line| line.starts_with("warning: ") && line.contains("crashed"))
            .count(),
        1,
        "{usual}"
    );
    assert!(!usual.contains("backtrace"), "{usual}");
    assert!(call("debug").contains("wasm backtrace"));
}
