//! Long calls, for clients that fetch the result later.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, LEGACY, MODERN, records, text};
use crate::support::{Cli, plugin};

pub(super) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A client that takes tasks, of a server with a tool that waits until its deadline.
fn client(cli: &Cli, version: &str, more: &[&str]) -> Client {
    let hostile = plugin("hostile");
    let all =
        [&["--plugin", hostile.to_str().expect("is UTF-8"), "--set", "tools.autonomy=full"], more]
            .concat();
    let mut client = Client::new(cli, &all, version, false);
    if version == MODERN {
        client.knows(EXTENSION);
    }
    client
}

const SLOW: &str = "hostile__sleep_forever";

/// Settings with which it waits for two seconds and for ten minutes.
const SHORT: [&str; 2] = ["--set", "tools.call=2"];
const LONG: [&str; 2] = ["--set", "tools.call=600"];

fn get(client: &mut Client, id: &str) -> Value {
    client.request("tasks/get", json!({ "taskId": id }))
}

/// Polls until a task has another status than this one.
#[track_caller]
fn until_not(client: &mut Client, id: &str, status: &str) -> Value {
    let since = Instant::now();
    loop {
        let task = get(client, id);
        if task["status"] != status {
            return task;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{task}");
    }
}

#[track_caller]
fn begun(task: &Value) -> String {
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{task}"
    );
    for wrong in ["content", "result", "error", "requestState", "task"] {
        assert!(task.get(wrong).is_none(), "{task}");
    }
    task["taskId"].as_str().expect("it has an id").to_owned()
}

#[test]
fn long_call_is_a_task_and_a_quick_one_is_not() {
    let cli = Cli::asking();
    let mut client = client(&cli, MODERN, &SHORT);
    // A busy machine may be slow with one of them.
    let quick = (0..50)
        .map(|_| client.call("read", json!({ "path": "notes.txt" })))
        .find(|answer| answer["resultType"] != "task");
    let quick = quick.expect("most reads are quick");
    assert_eq!(
        (&quick["resultType"], &quick["isError"]),
        (&json!("complete"), &json!(false)),
        "{quick}"
    );
    assert!(quick.get("taskId").is_none());

    let id = begun(&client.call(SLOW, json!({})));
    let working = get(&mut client, &id);
    assert_eq!(
        (&working["resultType"], &working["taskId"]),
        (&json!("complete"), &json!(id)),
        "{working}"
    );
    let ended = until_not(&mut client, &id, "working");
    // A tool's failure is a result, and the task is still complete.
    assert_eq!(
        (&ended["status"], &ended["result"]["isError"]),
        (&json!("completed"), &json!(true)),
        "{ended}"
    );
    assert!(text(&ended["result"]).contains("category: timeout"), "{ended}");
    assert!(
        ended["ttlMs"].as_u64() > Some(300_000)
            && ended["ttlMs"].as_u64() >= working["ttlMs"].as_u64(),
        "{ended}"
    );
    assert_eq!(get(&mut client, &id)["result"], ended["result"], "it can be had again");
    let cancelled = client.request("tasks/cancel", json!({ "taskId": id }));
    assert_eq!(cancelled, json!({ "resultType": "complete" }), "and is not ended twice");
    assert_eq!(get(&mut client, &id)["status"], "completed");
}

#[test]
fn client_without_tasks_gets_an_answer() {
    let cli = Cli::asking();
    for version in [LEGACY, MODERN] {
        let mut client = client(&cli, version, &SHORT);
        let plain = client.request(
            "tools/call",
            json!({ "name": SLOW, "arguments": {}, "_meta": capabilities(version) }),
        );
        assert!(text(&plain).contains("category: timeout"), "{plain}");
        let refused =
            client.request("tasks/get", json!({ "taskId": "x", "_meta": capabilities(version) }));
        assert_eq!(refused["error"]["code"], -32021, "{refused}");
    }
}

/// Declares with one request that the client knows only the protocol itself.
fn capabilities(version: &str) -> Value {
    if version == MODERN {
        json!({ "io.modelcontextprotocol/clientCapabilities": {} })
    } else {
        json!({})
    }
}

#[test]
fn cancelled_task_stops_and_is_private() {
    let cli = Cli::asking();
    let mut client = client(&cli, MODERN, &LONG);
    let id = begun(&client.call(SLOW, json!({})));

    let mut other = Client::new(&cli, &[], MODERN, false);
    other.knows(EXTENSION);
    for (is_other, wrong) in
        [(true, id.as_str()), (false, ""), (false, &id[1..]), (false, "../../etc/passwd")]
    {
        let asking = if is_other { &mut other } else { &mut client };
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let missing = asking.request(method, json!({ "taskId": wrong, "inputResponses": {} }));
            assert_eq!(missing["error"]["code"], -32602, "{method} {wrong}: {missing}");
        }
    }
    for gone in ["tasks/list", "tasks/result"] {
        assert_eq!(
            client.request(gone, json!({ "taskId": id }))["error"]["code"],
            -32601,
            "{gone}"
        );
    }
    let answered = client.request(
        "tasks/update",
        json!({ "taskId": id, "inputResponses": { "answer": { "action": "accept" } } }),
    );
    assert_eq!(answered, json!({ "resultType": "complete" }), "it asks nothing");
    assert_eq!(get(&mut client, &id)["status"], "working", "it goes on");

    assert_eq!(
        client.request("tasks/cancel", json!({ "taskId": id })),
        json!({ "resultType": "complete" })
    );
    let ended = until_not(&mut client, &id, "working");
    assert_eq!(ended["status"], "cancelled", "{ended}");
    let records = records(&cli.root.path().join("data"));
    assert!(
        records.iter().any(|record| record["tool"] == SLOW && record["result"] == "cancelled"),
        "{records:?}"
    );
}

#[test]
fn tasks_end_with_the_connection() {
    let cli = Cli::asking();
    let mut client = client(&cli, MODERN, &LONG);
    begun(&client.call(SLOW, json!({})));
    assert_eq!(client.leave(), 0);
    let last = records(&cli.root.path().join("data")).pop().expect("there are records");
    assert_eq!((&last["tool"], &last["result"]), (&json!(SLOW), &json!("cancelled")), "{last}");
}

#[test]
fn question_comes_before_the_task_and_a_terminal_is_awaited_in_it() {
    let cli = Cli::asking();
    let write = json!({ "path": "notes.txt", "content": "changed\n" });
    let mut asks = Client::new(&cli, &[], MODERN, true);
    asks.knows(EXTENSION);
    assert!((0..50).any(|_| asks.call("write", write.clone())["resultType"] == "input_required"));

    let mut waits = Client::new(
        &cli,
        &["--set", "approvals.mcp=terminal", "--set", "approvals.wait_secs=60"],
        MODERN,
        true,
    );
    waits.knows(EXTENSION);
    let id = begun(&waits.call("write", write));
    let told = get(&mut waits, &id);
    assert_eq!(told["statusMessage"], "waits for approval: `toolhold approvals`", "{told}");
    assert_eq!(
        fs::read_to_string(cli.work().join("notes.txt")).expect("it is there"),
        "first\nsecond\n"
    );
    let listed = cli.run(&["approvals", "--json"]).ends(0).json();
    cli.run(&["approvals", "allow", listed[0]["id"].as_str().expect("it waits")]).ends(0);
    let ended = until_not(&mut waits, &id, "working");
    assert_eq!(ended["result"]["isError"], false, "{ended}");
    assert_eq!(fs::read_to_string(cli.work().join("notes.txt")).expect("it is there"), "changed\n");
}
