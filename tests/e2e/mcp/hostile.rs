//! Clients that do not mean well, or die: the next one is served, and what they took comes back.

use std::fs;

use serde_json::json;

use super::client::{Client, LEGACY, MODERN};
use crate::support::{Cli, plugin};

#[test]
fn what_is_no_message_is_passed_over() {
    let cli = Cli::new();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let long = format!("{}\n", "x".repeat(5 << 20));
    let deep = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}\n", "[".repeat(100_000));
    let big = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}\n", "y".repeat(5 << 20));
    for nonsense in [&b"not json\n"[..], b"{}\n", b"[]\n", b"null\n", b"\xff\xfe\n", b"{\"jsonrpc\":\"1.0\",\"id\":1}\n", b"\n\n\n"] {
        client.write(nonsense);
    }
    for nonsense in [long, deep, big] {
        client.write(nonsense.as_bytes());
    }
    assert_eq!(client.call("read", json!({ "path": "notes.txt" }))["isError"], false);
    let told = client.aside.iter().filter(|message| message["error"]["code"] == -32700 && message["id"].is_null()).count();
    assert!(told >= 1, "who sends half a message hears of it: {:?}", client.aside);
}

#[test]
fn a_client_may_go_at_any_point() {
    let cli = Cli::new();
    let whole =
        json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": { "name": "read", "arguments": { "path": "notes.txt" } } });
    let whole = format!("{whole}\n");
    for begun in [false, true] {
        for part in [0, 1, whole.len() / 2, whole.len() - 1, whole.len()] {
            let mut client = Client::silent(&cli, &[]);
            if begun {
                client.begin(LEGACY, true);
            }
            client.write(&whole.as_bytes()[..part]);
            let code = client.leave();
            // One that speaks before it has said who it is has spoken another protocol.
            assert!(code == 0 || !begun && part == whole.len(), "begun: {begun}, {part} bytes: {code}");
        }
    }
}

#[test]
fn ten_thousand_requests_at_once_are_all_answered_and_their_memory_comes_back() {
    let cli = Cli::new();
    let bench = plugin("bench");
    let mut client = Client::new(&cli, &["--plugin", bench.to_str().expect("is UTF-8")], MODERN, false);
    client.call("bench__echo", json!({ "text": "warm" }));
    let before = resident(client.pid());
    let text = "x".repeat(4096);
    let ids: Vec<u64> =
        (0..10_000).map(|_| client.ask("tools/call", json!({ "name": "bench__echo", "arguments": { "text": text } }))).collect();
    let mut left: std::collections::HashSet<u64> = ids.into_iter().collect();
    while !left.is_empty() {
        let message = client.next();
        let id = message["id"].as_u64().expect("it is an answer");
        assert!(left.remove(&id), "each is answered once");
        // Beyond what waits for a place, the host says that it is busy, which is an answer.
        assert!(message["result"]["content"].is_array(), "{message}");
    }
    let after = resident(client.pid());
    assert!(after < before + 64 * 1024, "{before} KiB before, {after} KiB after");
    assert_eq!(client.call("bench__echo", json!({ "text": "next" }))["isError"], false);
}

#[test]
fn calls_that_are_taken_back_at_once_are_not_more_at_a_time_than_others() {
    let cli = Cli::new();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    client.call("list_directory", json!({}));
    let before = resident(client.pid());
    for _ in 0..20_000 {
        let id = client.ask("tools/call", json!({ "name": "list_directory", "arguments": {} }));
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
    }
    assert_eq!(client.call("list_directory", json!({}))["isError"], false, "the next one is answered");
    let after = resident(client.pid());
    // Were they, it would be 200 MiB.
    assert!(after < before + 128 * 1024, "{before} KiB before, {after} KiB after");
}

/// KiB of memory that a process holds.
pub(super) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("it is a number")
}

#[test]
fn what_a_guest_prints_does_not_get_to_the_client() {
    let cli = Cli::new();
    let hostile = plugin("hostile");
    let mut client = Client::new(&cli, &["--plugin", hostile.to_str().expect("is UTF-8"), "--set", "tools.autonomy=full"], LEGACY, false);
    // The client fails on a line that is none of the protocol's.
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
