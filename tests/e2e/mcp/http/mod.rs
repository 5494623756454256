//! `toolhold serve --http`: the real binary, and clients that write HTTP themselves.

mod approvals;
pub(super) mod client;
mod denied;
mod enterprise;
mod hostile;
mod oauth;
mod own_work;
mod principals;
mod sharing;
mod tls;
mod tokens;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_core::audit::User;

use super::client::{LEGACY, records, text};
use super::{VERSIONS, looping_settings};
use crate::shell::process_lifetime::{assert_gone, mark, stubborn, with_word};
use crate::support::Cli;
use client::{Serving, modern};

fn write() -> Value {
    json!({ "name": "write", "arguments": { "path": "notes.txt", "content": "changed\n" } })
}

fn notes(cli: &Cli) -> String {
    fs::read_to_string(cli.work().join("notes.txt")).expect("it is there")
}

/// The records of ended calls.
fn calls(cli: &Cli) -> Vec<Value> {
    if cli.root.path().join("data/audit/audit.jsonl").exists() {
        records(&cli.root.path().join("data"))
    } else {
        Vec::new()
    }
}

#[test]
fn every_revision_gets_the_same_tools_and_answers() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &[]);
    let mut lists = Vec::new();
    for version in VERSIONS.into_iter().filter(|version| *version <= LEGACY) {
        let id = serving.handshake(version, false, &[]);
        let head = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", version)];
        let list = serving
            .post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }), &head)
            .message();
        lists.push(list["result"]["tools"].clone());
        let params = json!({ "name": "read", "arguments": { "path": "notes.txt" } });
        let read = serving
            .post(
                &json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }),
                &head,
            )
            .message();
        assert!(text(&read["result"]).contains("second"), "{version}: {read}");
        let ended = serving.raw(&serving.request("DELETE", "/mcp", &head, "")).whole();
        assert_eq!(ended.status, 200, "{ended:?}");
        let gone =
            serving.post(&json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" }), &head);
        assert_eq!(gone.status, 404, "{gone:?}");
    }
    lists.push(serving.modern("tools/list", &json!({}), &[]).message()["result"]["tools"].clone());
    assert!(text(&serving.call("read", &json!({ "path": "notes.txt" }), &[])).contains("second"));
    assert!(
        lists
            .iter()
            .all(|list| list.as_array().is_some_and(|list| list.len() > 5) && *list == lists[0]),
        "{lists:?}"
    );
    assert_eq!(serving.ends(), 0);
}

#[test]
fn job_ends_with_the_connection_of_its_client() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &["--set", "tools.autonomy=full"]);
    let id = serving.handshake(LEGACY, false, &[]);
    let head = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", LEGACY)];
    let mark = mark(25, 0);
    let params =
        json!({ "name": "bash", "arguments": { "command": stubborn(&mark), "background": true } });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let started = serving.post(&call, &head).message();
    assert!(text(&started["result"]).contains("Started as job"), "{started}");
    let until = Instant::now() + Duration::from_secs(60);
    while with_word(&mark) < 4 {
        assert!(Instant::now() < until, "it runs");
        std::thread::yield_now();
    }
    let ended = serving.raw(&serving.request("DELETE", "/mcp", &head, "")).whole();
    assert_eq!(ended.status, 200, "{ended:?}");
    assert_gone(&mark);
    assert_eq!(serving.ends(), 0);
}

#[test]
fn requests_without_the_token_are_refused() {
    let cli = Cli::asking();
    let mut serving = Serving::new(&cli, &[]);
    let token = serving.token.take().expect("there is one");
    let (message, head) =
        modern("tools/call", &json!({ "name": "read", "arguments": { "path": "notes.txt" } }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let other = format!("Bearer {}", "0".repeat(token.len()));
    let cut = format!("Bearer {}", &token[1..]);
    let longer = format!("Bearer {token}0");
    let scheme = format!("Basic {token}");
    for wrong in [
        None,
        Some("Bearer "),
        Some(token.as_str()),
        Some(&other),
        Some(&cut),
        Some(&longer),
        Some(&scheme),
    ] {
        let head: Vec<_> =
            head.iter().copied().chain(wrong.map(|wrong| ("authorization", wrong))).collect();
        let answer = serving.post(&message, &head);
        assert_eq!(answer.status, 401, "{wrong:?}: {answer:?}");
        assert!(answer.head["www-authenticate"].starts_with("Bearer"), "{answer:?}");
        assert_eq!(serving.get("/metrics", &head).status, 401);
    }
    let twice = serving.request("POST", "/mcp", &head, &message.to_string());
    let line = format!("authorization: Bearer {token}\r\n");
    let twice = String::from_utf8(twice)
        .expect("is UTF-8")
        .replace("\r\nhost", &format!("\r\n{line}{line}host"));
    assert_eq!(serving.raw(twice.as_bytes()).whole().status, 401, "two of them are none");
    assert_eq!(
        serving.get(&format!("/mcp?access_token={token}"), &[]).status,
        401,
        "an address is kept in logs"
    );
    assert!(calls(&cli).is_empty(), "nothing was called");
    assert_eq!(serving.get("/healthz", &[]).body, "ok\n");
    assert_eq!(serving.get("/.well-known/oauth-protected-resource", &[]).status, 404);
    serving.token = Some(token);
    assert_eq!(serving.call("read", &json!({ "path": "notes.txt" }), &[])["isError"], false);
}

#[test]
fn token_is_private_and_stays() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &[]);
    let (token, file) = (serving.token.clone(), serving.token_file());
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    // No tool can read it, whatever is granted.
    let root = cli.root.path().canonicalize().expect("it is there");
    let granting = Serving::new(&cli, &["--allow", root.to_str().expect("is UTF-8")]);
    let read = granting.call("read", &json!({ "path": file }), &[]);
    assert_eq!(read["isError"], true, "{read}");
    assert!(!read.to_string().contains(token.as_deref().expect("there is one")), "{read}");
    assert_eq!(granting.token, token);
    drop((serving, granting));
    assert_eq!(Serving::new(&cli, &[]).token, token, "clients keep it in their configuration");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode is set");
    let ended = cli.run(&["serve", "--http", "0"]).ends(4);
    assert!(ended.stderr.contains("chmod go-rwx"), "{}", ended.stderr);
}

#[test]
fn socket_is_private_and_can_work_without_a_token() {
    let cli = Cli::asking();
    let path = cli.root.path().join("toolhold.sock");
    let place = format!("unix:{}", path.display());
    let refused = cli.run(&["serve", "--http", "0", "--no-auth"]).ends(4);
    assert!(refused.stderr.contains("unix:/path"), "{}", refused.stderr);
    for own_token in [true, false] {
        let more: &[&str] = if own_token { &[] } else { &["--no-auth"] };
        let mut serving = Serving::at(&cli, &place, more, own_token);
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(serving.call("read", &json!({ "path": "notes.txt" }), &[])["isError"], false);
        let taken = cli.run(&["serve", "--http", &place]).ends(4);
        assert!(taken.stderr.contains("toolhold.sock"), "{}", taken.stderr);
        if serving.token.take().is_some() {
            assert_eq!(serving.modern("tools/list", &json!({}), &[]).whole().status, 401);
        }
        assert_eq!(serving.ends(), 0);
        assert!(!path.exists(), "it goes with the server");
    }
    // A killed server leaves its socket, which is no obstacle.
    drop(Serving::at(&cli, &place, &["--no-auth"], false));
    assert!(path.exists());
    let first = Serving::at(&cli, &place, &["--no-auth"], false);
    fs::remove_file(&path).expect("it is removed");
    let second = Serving::at(&cli, &place, &["--no-auth"], false);
    assert_eq!(first.ends(), 0);
    assert_eq!(second.get("/healthz", &[]).status, 200, "each removes its own");
    assert_eq!(second.ends(), 0);
    drop(Serving::at(&cli, &place, &["--no-auth"], false));
    assert_eq!(Serving::at(&cli, &place, &["--no-auth"], false).ends(), 0);
    fs::write(&path, "precious").expect("it is written");
    cli.run(&["serve", "--http", &place]).ends(4);
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
}

#[test]
fn person_is_asked_over_the_stream_of_the_call() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &[]);
    let id = serving.handshake(LEGACY, true, &[]);
    let head = [("mcp-session-id", id.as_str())];
    for (action, changed) in [("decline", "first\nsecond\n"), ("accept", "changed\n")] {
        let mut call = serving.posted(
            &json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": write() }),
            &head,
        );
        let question = call.until(|message| message["method"] == "elicitation/create");
        assert!(
            question["params"]["message"].as_str().is_some_and(|asked| asked.contains("+changed")),
            "{question}"
        );
        let said = json!({ "action": action, "content": { "answer": "once" } });
        let taken =
            serving.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": said }), &head);
        assert_eq!(taken.status, 202, "{taken:?}");
        let answer = call.until(|message| message["id"] == 7);
        assert_eq!(answer["result"]["isError"], action == "decline", "{answer}");
        assert_eq!(notes(&cli), changed, "{action}");
    }
}

#[test]
fn ticket_is_valid_once_at_any_server_of_the_user() {
    let cli = Cli::asking();
    let (here, there) = (Serving::new(&cli, &[]), Serving::new(&cli, &[]));
    let asked = here.modern("tools/call", &write(), &[]).message()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let mut again = write();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] =
        json!({ "answer": { "action": "accept", "content": { "answer": "once" } } });

    // Another session's, another call's, and a forged one.
    let other = there.modern("tools/call", &again, &[("toolhold-session", "other")]).whole();
    assert!(
        other.message()["error"]["message"]
            .as_str()
            .is_some_and(|why| why.contains("requestState")),
        "{other:?}"
    );
    let mut moved = again.clone();
    moved["arguments"]["path"] = json!("elsewhere.txt");
    let mut forged = again.clone();
    forged["requestState"] =
        json!(format!("A{}", &asked["requestState"].as_str().expect("is text")[1..]));
    assert!(there.modern("tools/call", &forged, &[]).message()["error"].is_object());
    assert_eq!(notes(&cli), "first\nsecond\n");

    let done = there.modern("tools/call", &again, &[]).message();
    assert_eq!(done["result"]["isError"], false, "{done}");
    assert_eq!(notes(&cli), "changed\n");
    fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("it is written");
    for server in [&here, &there] {
        assert!(
            server.modern("tools/call", &again, &[]).message()["error"].is_object(),
            "it was used"
        );
    }
    assert_eq!(here.modern("tools/call", &moved, &[]).message()["error"]["code"], -32602);
    assert_eq!(notes(&cli), "first\nsecond\n");
    assert!(!cli.work().join("elsewhere.txt").exists());
}

#[test]
fn session_approval_belongs_to_its_session() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &[]);
    let agree = |session: &str| {
        let asked = serving
            .modern("tools/call", &write(), &[("toolhold-session", session)])
            .message()["result"]
            .clone();
        let mut again = write();
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] =
            json!({ "answer": { "action": "accept", "content": { "answer": "session" } } });
        serving.modern("tools/call", &again, &[("toolhold-session", session)]).message()["result"]
            .clone()
    };
    assert_eq!(agree("one")["isError"], false);
    let begun = |session: &str| {
        fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("it is written");
        serving.modern("tools/call", &write(), &[("toolhold-session", session)]).message()["result"]
            .clone()
    };
    // The first change was from another text, and the question is about the change.
    fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("it is written");
    assert_eq!(begun("one")["isError"], false);
    assert_eq!(notes(&cli), "changed\n");
    assert_eq!(begun("two")["resultType"], "input_required");
    assert_eq!(notes(&cli), "first\nsecond\n");
    for wrong in ["", "a b", "../x", &"x".repeat(65)] {
        assert_eq!(
            serving.modern("tools/list", &json!({}), &[("toolhold-session", wrong)]).whole().status,
            400,
            "{wrong}"
        );
    }
    let sessions: Vec<_> = calls(&cli).iter().map(|record| record["session"].clone()).collect();
    assert!(
        sessions.contains(&json!("mcp token one")) && sessions.contains(&json!("mcp token two")),
        "{sessions:?}"
    );
}

#[test]
fn session_continues_at_another_process() {
    let cli = Cli::asking();
    let first = Serving::new(&cli, &[]);
    let id = first.handshake(LEGACY, true, &[]);
    let head = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", LEGACY)];
    assert_eq!(first.ends(), 0);
    let second = Serving::new(&cli, &[]);
    let mut call = second.posted(
        &json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": write() }),
        &head,
    );
    let question = call.until(|message| message["method"] == "elicitation/create");
    let said = json!({ "action": "accept", "content": { "answer": "once" } });
    second.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": said }), &head);
    assert_eq!(
        call.until(|message| message["id"] == 7)["result"]["isError"],
        false,
        "that it can ask is known there as well"
    );
    assert_eq!(notes(&cli), "changed\n");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let (raw, seal) = id.rsplit_once('.').expect("it is sealed");
    for wrong in [
        raw.to_owned(),
        format!("{raw}."),
        format!("{raw}.{}", seal.replace(&seal[..1], "_")),
        "nonsense".to_owned(),
        format!("x{id}"),
    ] {
        assert_eq!(second.post(&list, &[("mcp-session-id", &wrong)]).status, 404, "{wrong}");
    }
}

#[test]
fn new_tools_are_announced_on_the_open_stream() {
    let cli = Cli::asking();
    let folder = cli.root.path().join("plugins");
    fs::create_dir(&folder).expect("a folder is made");
    let set = format!("plugin_folder.path={}", json!(folder.canonicalize().expect("it is there")));
    let serving = Serving::new(&cli, &["--set", &set, "--set", "plugin_folder.reload=trust"]);
    let id = serving.handshake(LEGACY, false, &[]);
    let mut stream = serving.raw(&serving.request("GET", "/mcp", &[("mcp-session-id", &id)], ""));
    assert_eq!(stream.status, 200);
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let mut listening = serving.modern("subscriptions/listen", &listen, &[]);
    listening.until(|message| message["method"] == "notifications/subscriptions/acknowledged");
    fs::copy(crate::support::plugin("bench"), folder.join(".bench.tmp")).expect("it is copied");
    fs::rename(folder.join(".bench.tmp"), folder.join("bench.wasm")).expect("it is renamed");
    for stream in [&mut stream, &mut listening] {
        stream.until(|message| message["method"] == "notifications/tools/list_changed");
    }
    assert_eq!(text(&serving.call("bench__echo", &json!({ "text": "here" }), &[])), "here");
    assert_eq!(serving.ends(), 0, "open streams don't keep it");
}

#[test]
fn disconnect_and_cancellation_end_the_call() {
    let cli = Cli::asking();
    let settings = looping_settings();
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let serving = Serving::new(&cli, &settings);
    let looping = json!({ "name": "hostile__loop_forever", "arguments": {} });
    let wait_for = |what: &dyn Fn(&Value) -> bool| {
        let since = std::time::Instant::now();
        while !calls(&cli)
            .iter()
            .any(|record| record["tool"] == "hostile__loop_forever" && what(record))
        {
            assert!(since.elapsed().as_secs() < 60, "it comes: {:?}", calls(&cli));
            // Another call meanwhile, which also shows that others are answered.
            serving.call("read", &json!({ "path": "notes.txt" }), &[]);
        }
    };
    let (message, head) = modern("tools/call", &looping);
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut gone = serving.connect();
    gone.write_all(&serving.request("POST", "/mcp", &head, &message.to_string()))
        .expect("the server reads");
    wait_for(&|record| record["kind"] == "intent");
    drop(gone);
    wait_for(&|record| record["result"] == "cancelled");

    let id = serving.handshake(LEGACY, false, &[]);
    let head = [("mcp-session-id", id.as_str())];
    let mut call = serving.connect();
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": looping });
    call.write_all(&serving.request("POST", "/mcp", &head, &message.to_string()))
        .expect("the server reads");
    let intents = |count: usize| {
        move |cli: &Cli| {
            calls(cli)
                .iter()
                .filter(|record| {
                    record["kind"] == "intent" && record["tool"] == "hostile__loop_forever"
                })
                .count()
                >= count
        }
    };
    while !intents(2)(&cli) {
        serving.call("read", &json!({ "path": "notes.txt" }), &[]);
    }
    serving.post(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } }), &head);
    let since = std::time::Instant::now();
    while calls(&cli).iter().filter(|record| record["result"] == "cancelled").count() < 2 {
        assert!(since.elapsed().as_secs() < 60, "it ends: {:?}", calls(&cli));
        serving.call("read", &json!({ "path": "notes.txt" }), &[]);
    }
}

#[test]
fn shutdown_waits_for_calls_and_then_ends_them() {
    let cli = Cli::asking();
    let mut settings = looping_settings();
    settings.extend(["--set", "serve.grace_secs=0"].map(str::to_owned));
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let serving = Serving::new(&cli, &settings);
    let (message, head) =
        modern("tools/call", &json!({ "name": "hostile__loop_forever", "arguments": {} }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut call = serving.connect();
    call.write_all(&serving.request("POST", "/mcp", &head, &message.to_string()))
        .expect("the server reads");
    while !calls(&cli).iter().any(|record| record["kind"] == "intent") {
        serving.call("read", &json!({ "path": "notes.txt" }), &[]);
    }
    assert_eq!(serving.ends(), 0);
    let looping = calls(&cli)
        .into_iter()
        .find(|record| record["kind"] == "outcome" && record["tool"] == "hostile__loop_forever");
    assert_eq!(looping.expect("its end is recorded")["result"], "cancelled");
    let answered = client::Answering::new(call).whole();
    assert_eq!(
        (answered.status, &answered.message()["result"]["isError"]),
        (200, &json!(true)),
        "its client hears of it: {answered:?}"
    );
}

#[test]
fn metrics_token_calls_no_tool() {
    let cli = Cli::asking();
    let mut serving = Serving::new(&cli, &[]);
    let file = serving.token_file().with_file_name("metrics-token");
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let own =
        serving.token.replace(fs::read_to_string(&file).expect("it is read").trim().to_owned());
    assert_ne!(own, serving.token);
    assert_eq!(serving.get("/metrics", &[]).status, 200);
    let (message, head) =
        modern("tools/call", &json!({ "name": "read", "arguments": { "path": "notes.txt" } }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(serving.post(&message, &head).status, 401);
    assert!(calls(&cli).is_empty(), "nothing was called");
    serving.token = own;
    assert_eq!(serving.post(&message, &head).status, 200);
}

#[test]
fn metrics_are_served() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &[]);
    serving.call("read", &json!({ "path": "notes.txt" }), &[]);
    serving.call("read", &json!({ "path": "../secret.txt" }), &[]);
    serving.modern("tools/call", &json!({ "name": "made_up", "arguments": {} }), &[]).whole();
    let told = serving.get("/metrics", &[]);
    assert!(told.head["content-type"].starts_with("application/openmetrics-text"), "{told:?}");
    let user = User::local().name;
    let calls =
        format!("toolhold_calls_total{{tool=\"read\",outcome=\"OUTCOME\",user=\"{user}\"}} 1");
    for line in [
        calls.replace("OUTCOME", "success").as_str(),
        calls.replace("OUTCOME", "policy_blocked").as_str(),
        "toolhold_call_seconds_count{tool=\"read\"} 2",
        "toolhold_calls_running 0",
        "toolhold_http_requests_total{status=\"200\"} 3",
        "# EOF",
    ] {
        assert!(told.body.lines().any(|told| told == line), "{line} is not in {}", told.body);
    }
    assert!(!told.body.contains("made_up"), "{}", told.body);
}
