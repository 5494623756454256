//! `toolhold serve`: the real binary, and clients that write the protocol themselves.

mod approvals;
pub(crate) mod client;
mod config_reload;
mod conformance;
mod hostile;
mod http;
mod model_view;
mod official;
mod only_tools;
mod published_clients;
mod schemas;
mod tasks;
pub(crate) mod third_party_clients;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Cli, plugin};
use client::{Client, LEGACY, MODERN, records, text};

/// Every supported revision.
const VERSIONS: [&str; 4] = ["2025-03-26", "2025-06-18", LEGACY, MODERN];

#[test]
fn every_revision_gets_the_same_tools_and_answers() {
    let cli = Cli::asking();
    let mut lists = Vec::new();
    for version in VERSIONS {
        let mut client = Client::new(&cli, &[], version, false);
        let tools = client.request("tools/list", json!({}))["tools"].clone();
        let read = tools
            .as_array()
            .expect("there are tools")
            .iter()
            .find(|tool| tool["name"] == "read")
            .expect("it is there")
            .clone();
        assert_eq!(read["inputSchema"]["type"], "object", "{version}");
        assert_eq!(read["annotations"]["readOnlyHint"], true, "{version}");
        assert!(read["description"].is_string(), "{version}: {read}");
        lists.push(tools);

        let result = client.call("read", json!({ "path": "notes.txt" }));
        assert_eq!(result["isError"], false, "{version}: {result}");
        assert!(text(&result).contains("second"), "{version}: {result}");
        assert_eq!(client.leave(), 0, "{version}");
    }
    assert!(lists.windows(2).all(|two| two[0] == two[1]), "{lists:?}");
}

#[test]
fn failed_call_is_a_result_and_unknown_tool_an_error() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let refused = client.call("read", json!({ "path": "../secret.txt" }));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(text(&refused).starts_with("[tool_error]\ncategory: policy_blocked\n"), "{refused}");
    assert!(!refused.to_string().contains("the secret"), "{refused}");
    let denial = &refused["_meta"]["toolhold"]["denial"];
    assert!(denial["rule"].is_string() && denial["remedy"].is_string(), "{refused}");

    let wrong = client.call("read", json!({ "path": 7 }));
    assert_eq!(wrong["isError"], true, "a model can mend that: {wrong}");

    let unknown = client.call("reed", json!({}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(
        unknown["error"]["message"].as_str().is_some_and(|message| message.contains("read")),
        "it names what looks like it: {unknown}"
    );
    let unknown = client.request("tools/sell", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let long = client.request(&"x".repeat(1 << 20), json!({}));
    assert_eq!(long["error"]["code"], -32601);
    assert!(long.to_string().len() < 1000, "what a client says is not said again at any length");
    for wrong in [json!({ "name": "read", "arguments": [] }), json!({ "name": 7 }), json!({})] {
        assert_eq!(client.request("tools/call", wrong.clone())["error"]["code"], -32602, "{wrong}");
    }
    let unknown = client.request("tools/list", json!({ "cursor": "nonsense" }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let tools: Vec<_> = records(&cli.root.path().join("data"))
        .iter()
        .map(|record| record["front_end"].clone())
        .collect();
    assert!(tools.contains(&json!("toolhold serve")), "every call is recorded: {tools:?}");
}

#[test]
fn progress_precedes_the_answer_and_only_grows() {
    let cli = Cli::asking();
    let hostile = plugin("hostile");
    let mut client = Client::new(
        &cli,
        &["--plugin", hostile.to_str().expect("is UTF-8"), "--set", "tools.autonomy=full"],
        LEGACY,
        false,
    );
    let params = json!({ "name": "hostile__flood_progress", "arguments": { "count": 100 }, "_meta": { "progressToken": "p" } });
    let id = client.ask("tools/call", params);
    client.answer(id);
    let told: Vec<f64> = client
        .aside
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .map(progress)
        .collect();
    assert!(!told.is_empty() && told.windows(2).all(|two| two[0] < two[1]), "{told:?}");
    client.aside.clear();
    let quiet = client.call("hostile__flood_progress", json!({ "count": 100 }));
    assert!(client.aside.is_empty(), "nobody asked for it: {quiet}");
}

fn progress(message: &Value) -> f64 {
    assert_eq!(message["params"]["progressToken"], "p");
    message["params"]["progress"].as_f64().expect("is a number")
}

/// With these settings, `hostile__loop_forever` ends by itself after ten minutes.
fn looping_settings() -> Vec<String> {
    let settings = ["tools.autonomy=full", "tools.limits.cpu_secs=600", "tools.call=600"];
    let plugin = ["--plugin".to_owned(), plugin("hostile").to_str().expect("is UTF-8").to_owned()];
    plugin
        .into_iter()
        .chain(settings.iter().flat_map(|setting| ["--set".to_owned(), (*setting).to_owned()]))
        .collect()
}

/// A client with such a call, and its id.
fn looping(cli: &Cli) -> (Client, u64) {
    let more = looping_settings();
    let mut client =
        Client::new(cli, &more.iter().map(String::as_str).collect::<Vec<_>>(), LEGACY, false);
    let id = client.ask("tools/call", json!({ "name": "hostile__loop_forever", "arguments": {} }));
    (client, id)
}

#[test]
fn cancelled_call_stops_and_no_other_does() {
    let cli = Cli::asking();
    let (mut client, id) = looping(&cli);
    assert_eq!(
        client.call("read", json!({ "path": "notes.txt" }))["isError"],
        false,
        "others go on"
    );
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
    let data = cli.root.path().join("data");
    let ended = || {
        records(&data).iter().any(|record| {
            record["tool"] == "hostile__loop_forever" && record["result"] == "cancelled"
        })
    };
    let since = Instant::now();
    while !ended() {
        assert!(since.elapsed() < Duration::from_secs(60), "it goes on");
        assert_eq!(
            client.call("read", json!({ "path": "notes.txt" }))["isError"],
            false,
            "others go on"
        );
    }
    assert!(client.aside.iter().all(|message| message["id"] != id), "it is not answered");
}

#[test]
fn open_calls_are_answered_after_their_client_has_closed_its_side() {
    for version in [LEGACY, MODERN] {
        let cli = Cli::asking();
        let mut client = Client::new(&cli, &[], version, false);
        // A session without a handshake begins with it.
        client.call("read", json!({ "path": "notes.txt" }));
        let read = json!({ "name": "read", "arguments": { "path": "notes.txt" } });
        let mut left: BTreeSet<u64> =
            (0..20).map(|_| client.ask("tools/call", read.clone())).collect();
        client.close();
        while !left.is_empty() {
            let message = client.next();
            assert!(left.remove(&message["id"].as_u64().expect("it is an answer")), "{message}");
            assert_eq!(message["result"]["isError"], false, "{message}");
        }
    }
}

#[test]
fn repeated_request_id_does_not_bypass_the_bound() {
    let cli = Cli::asking();
    let (mut client, id) = looping(&cli);
    for _ in 0..50 {
        let params = json!({ "name": "read", "arguments": { "path": "notes.txt" } });
        client
            .send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }
    assert_eq!(
        client.call("list_directory", json!({}))["isError"],
        false,
        "the next one is answered"
    );
    let records = records(&cli.root.path().join("data"));
    assert!(
        records.iter().all(|record| record["tool"] != "read"),
        "none of them was run: {records:?}"
    );
}

#[test]
fn disconnect_ends_the_client_s_calls() {
    let cli = Cli::asking();
    let (mut client, _) = looping(&cli);
    let data = cli.root.path().join("data");
    while !data.join("audit/audit.jsonl").exists()
        || !records(&data).iter().any(|record| record["kind"] == "intent")
    {
        client.call("read", json!({ "path": "notes.txt" }));
    }
    assert_eq!(client.leave(), 0);
    let last = records(&data)
        .into_iter()
        .find(|record| record["kind"] == "outcome" && record["tool"] == "hostile__loop_forever");
    assert_eq!(last.expect("its end is recorded")["result"], "cancelled");
}

#[test]
fn new_plugin_is_announced_in_every_revision() {
    for version in [LEGACY, MODERN] {
        let cli = Cli::asking();
        let folder = cli.root.path().join("plugins");
        fs::create_dir(&folder).expect("a folder is made");
        let set =
            format!("plugin_folder.path={}", json!(folder.canonicalize().expect("it is there")));
        let mut client = Client::new(
            &cli,
            &["--set", &set, "--set", "plugin_folder.reload=trust"],
            version,
            false,
        );
        let count = |client: &mut Client| {
            client.request("tools/list", json!({}))["tools"].as_array().map_or(0, Vec::len)
        };
        let before = count(&mut client);
        if version == MODERN {
            client.ask(
                "subscriptions/listen",
                json!({ "notifications": { "toolsListChanged": true } }),
            );
            client.notification("notifications/subscriptions/acknowledged");
        }
        for _ in 0..50 {
            client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        fs::copy(plugin("bench"), folder.join(".bench.tmp")).expect("it is copied");
        fs::rename(folder.join(".bench.tmp"), folder.join("bench.wasm")).expect("it is renamed");
        client.notification("notifications/tools/list_changed");
        assert_eq!(count(&mut client), before + 1, "{version}");
        assert_eq!(
            text(&client.call("bench__echo", json!({ "text": "here" }))),
            "here",
            "{version}"
        );
        let again = client
            .aside
            .iter()
            .filter(|message| message["method"] == "notifications/tools/list_changed")
            .count();
        assert!(
            again == 0 || version == MODERN,
            "{version}: it is told once, however often the client says that it begins"
        );
    }
}

#[test]
fn overflow_and_record_are_private_resources() {
    let cli = Cli::asking();
    fs::write(cli.work().join("long.txt"), "a line of a long text\n".repeat(4000))
        .expect("it is written");
    let mut client = Client::new(&cli, &[], MODERN, false);
    let cut = client.call("read", json!({ "path": "long.txt", "limit": 4000 }));
    let id = cut["_meta"]["toolhold"]["tool"]["toolhold:overflow"]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("it is cut: {cut}"))
        .to_owned();
    let read =
        |client: &mut Client, uri: &str| client.request("resources/read", json!({ "uri": uri }));
    let kept = read(&mut client, &format!("toolhold://kept/{id}?offset=50000&limit=100"));
    assert!(
        kept["contents"][0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("Characters 50000-50100")),
        "{kept}"
    );
    let record = read(&mut client, "toolhold://record");
    let record = record["contents"][0]["text"].as_str().expect("is text");
    assert!(record.lines().any(|line| line.contains("long.txt")), "{record}");

    let mut other = Client::new(&cli, &[], LEGACY, false);
    other.call("list_directory", json!({}));
    for uri in [
        &format!("toolhold://kept/{id}"),
        "toolhold://kept/../../etc/passwd",
        "toolhold://kept/?offset=-1",
        "toolhold://else",
        "file:///etc/passwd",
    ] {
        let missing = read(&mut other, uri);
        assert!(missing["error"]["code"].is_number(), "{uri}: {missing}");
    }
    let record = read(&mut other, "toolhold://record");
    let record = record["contents"][0]["text"].as_str().expect("is text");
    assert!(
        record.contains("list_directory") && !record.contains("long.txt"),
        "another session's calls are not shown: {record}"
    );
    assert_eq!(
        other.request("resources/templates/list", json!({}))["resourceTemplates"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(
        other.request("resources/list", json!({}))["resources"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn prompt_describes_the_grants() {
    let cli = Cli::asking();
    let mut client = Client::new(&cli, &[], LEGACY, false);
    assert_eq!(client.request("prompts/list", json!({}))["prompts"][0]["name"], "tools");
    let told = client
        .request("prompts/get", json!({ "name": "tools", "arguments": { "path": "notes.txt" } }));
    let text = told["messages"][0]["content"]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("is text: {told}"));
    let work = cli.work().display().to_string();
    for line in [
        &format!("* {work}: read and write"),
        "* `read` of notes.txt: allowed",
        "* `write` of notes.txt: needs approval",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in {text}");
    }
    let outside = client.request(
        "prompts/get",
        json!({ "name": "tools", "arguments": { "path": "../secret.txt" } }),
    );
    assert!(outside.to_string().contains("`read` of ../secret.txt: refused"), "{outside}");
    let long = "./".repeat(10_000);
    for wrong in [
        json!({ "name": "tool" }),
        json!({ "name": "tools", "arguments": { "file": "x" } }),
        json!({ "name": "tools", "arguments": { "path": long } }),
    ] {
        assert_eq!(client.request("prompts/get", wrong)["error"]["code"], -32602);
    }
}

#[test]
fn completion_shows_only_readable_paths() {
    let cli = Cli::asking();
    fs::create_dir_all(cli.work().join("notes.d/deep")).expect("folders are made");
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let mut complete = |begun: &str| {
        let argument = json!({ "name": "path", "value": begun });
        client.request(
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "tools" }, "argument": argument }),
        )
    };
    assert_eq!(complete("no")["completion"]["values"], json!(["notes.d/", "notes.txt"]));
    assert_eq!(complete("notes.d/")["completion"]["values"], json!(["notes.d/deep/"]));
    let long = "./".repeat(10_000);
    for outside in ["../se", "/etc/pass", "notes.d/../../se", "nowhere/", &long] {
        assert_eq!(complete(outside)["completion"]["values"], json!([]), "{outside}");
    }
}
